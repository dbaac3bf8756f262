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
        Ok(Self(Some(listen(SignalKind::hangup())?)))
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
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
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

/// The third SIGTERM or SIGINT ends the process, whatever it waits for.
pub(crate) fn exit_on_third_signal() -> Result<(), CliError> {
    let (mut terminate, mut interrupt) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    tokio::spawn(async move {
        let mut code = 0;
        for _ in 0..3 {
            code = tokio::select! {
                _ = terminate.recv() => 128 + 15,
                _ = interrupt.recv() => 128 + 2,
            };
        }
        std::process::exit(code);
    });
    Ok(())
}

fn listen(kind: SignalKind) -> Result<Signal, CliError> {
    signal(kind).map_err(|e| CliError::Failure(format!("could not install signal handlers: {e}")))
}

/// Where this is unknown, the signal is left alone.
fn is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & 1 == 1)
}
