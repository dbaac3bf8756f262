//! Signals that stop the process, SIGHUP among them: the terminal was closed.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CliError;

/// Waits for SIGHUP, unless this process was started with it ignored (`nohup`).
#[derive(Debug)]
pub(crate) struct SighupListener(Option<Signal>);

impl SighupListener {
    pub(crate) fn listen() -> Result<Self, CliError> {
        if is_ignored() {
            return Ok(Self(None));
        }
        let listener = signal(SignalKind::hangup());
        listener.map(|listener| Self(Some(listener))).map_err(|error| {
            CliError::Failure(format!("could not install signal handlers: {error}"))
        })
    }

    pub(crate) async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => _ = signal.recv().await,
            None => std::future::pending().await,
        }
    }
}

/// The signals that end a command that runs until it is stopped.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    sighup: SighupListener,
}

impl StopSignals {
    pub(crate) fn listen() -> Result<Self, CliError> {
        let on = |kind| {
            signal(kind)
                .map_err(|e| CliError::Failure(format!("could not install signal handlers: {e}")))
        };
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            sighup: SighupListener::listen()?,
        })
    }

    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = self.sighup.recv() => {}
        }
    }
}

/// Where this is unknown, the signal is left alone.
fn is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & 1 == 1)
}
