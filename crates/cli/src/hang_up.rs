//! What a closed terminal means.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Fault;

/// SIGHUP, unless whoever started this said that it should not matter (`nohup`).
#[derive(Debug)]
pub(crate) struct HangUp(Option<Signal>);

impl HangUp {
    pub(crate) fn listen() -> Result<Self, Fault> {
        if is_ignored() {
            return Ok(Self(None));
        }
        let heard = signal(SignalKind::hangup());
        heard
            .map(|heard| Self(Some(heard)))
            .map_err(|error| Fault::Failure(format!("no signal handlers: {error}")))
    }

    pub(crate) async fn comes(&mut self) {
        match &mut self.0 {
            Some(signal) => _ = signal.recv().await,
            None => std::future::pending().await,
        }
    }
}

/// Where that cannot be found out, the signal is left to do what it does.
fn is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & 1 == 1)
}
