//! How an engine stops.

use std::sync::Arc;

use tokio::sync::watch;

/// The phases of an engine, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Running,
    /// No task starts; running tasks may finish.
    Draining,
    /// Running tasks are cancelled and released.
    Forced,
}

/// A handle that stops an engine from another part of the program.
///
/// Clones stop the same engine. An engine that is started after a stop ends at once.
///
/// ```
/// # use task_engine::{StopHandle, TaskEngine};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tasks = TaskEngine::connect("sqlite::memory:").await?;
/// let stop = StopHandle::new();
/// let engine = tasks.engine(()).stopped_by(stop.clone()).start().await?;
/// stop.stop();                              // from any task or thread
/// let stopped = engine.join().await?;
/// assert!(!stopped.forced);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct StopHandle {
    phase: Arc<watch::Sender<Phase>>,
}

impl Default for StopHandle {
    fn default() -> Self {
        Self { phase: Arc::new(watch::Sender::new(Phase::Running)) }
    }
}

impl StopHandle {
    /// Creates a handle for an engine that is yet to be made.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops the engine when this process receives SIGTERM or SIGINT: after the first gracefully,
    /// after the second at once.
    ///
    /// Later signals do nothing. Call this before anything else, so that no signal is missed: in a
    /// container, process 1 ignores signals without a handler.
    ///
    /// # Errors
    /// Fails if the system does not allow listening to signals.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime.
    pub fn stop_on_signals(&self) -> std::io::Result<()> {
        on_signals(self.clone()).map(drop)
    }

    /// Stops after the running tasks have finished.
    ///
    /// No new task starts.
    pub fn stop(&self) {
        self.advance(Phase::Draining);
    }

    /// Stops at once: running tasks are cancelled and released.
    pub fn stop_now(&self) {
        self.advance(Phase::Forced);
    }

    /// Waits until a stop is requested.
    ///
    /// A program uses this for what it does before its engine runs, like connecting to the
    /// database.
    pub async fn requested(&self) {
        self.watch().reached(Phase::Draining).await;
    }

    /// Returns whether a stop is requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.phase.borrow() > Phase::Running
    }

    /// Waits until a stop at once is requested.
    ///
    /// A program uses this if it runs several engines, each with a handle of its own.
    pub async fn requested_now(&self) {
        self.watch().reached(Phase::Forced).await;
    }

    pub(crate) fn watch(&self) -> StopSignal {
        StopSignal(self.phase.subscribe())
    }

    fn advance(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            let forward = *phase < to;
            if forward {
                *phase = to;
            }
            forward
        });
    }
}

/// Receives the phase of an engine.
#[derive(Debug, Clone)]
pub(crate) struct StopSignal(watch::Receiver<Phase>);

impl StopSignal {
    pub(crate) fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Waits until the engine is at least in this phase.
    pub(crate) async fn reached(&mut self, phase: Phase) {
        // Without a sender the phase cannot change.
        if self.0.wait_for(|now| *now >= phase).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The report of an engine that has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// Whether running tasks were cancelled.
    pub forced: bool,
    /// How many tasks were released, and wait again.
    pub released: usize,
    /// How many endings could not be recorded, because the store was unreachable.
    ///
    /// Their attempts are left to recovery.
    pub unrecorded: usize,
}

pub(crate) fn on_signals(stop: StopHandle) -> std::io::Result<tokio::task::JoinHandle<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            }
        };
        let name = next().await;
        tracing::info!(
            "{name}: no new task starts, running tasks finish; send it again to stop at once"
        );
        stop.stop();
        let name = next().await;
        tracing::warn!("{name} again: running tasks are cancelled and released");
        stop.stop_now();
    }))
}
