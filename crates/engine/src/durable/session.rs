//! What the durable calls of all attempts of a session share.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use task_engine_core::step::{NewStep, StepOutcome};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::writer::StepRequest;
use crate::failure::Failure;

/// Shorter sleeps wait in place: their attempt goes on.
const IN_PLACE_MAX: Duration = Duration::from_secs(5);

/// The session of an attempt.
pub(crate) struct SessionHandle {
    pub(crate) store: Arc<dyn Store>,
    /// Where the store has its tables.
    pub(crate) schema: String,
    /// The runtime of handlers, for blocking ones.
    pub(crate) runtime: Handle,
    pub(crate) in_place_max: Duration,
    pub(crate) injected_failures: InjectedFailures,
    requests: UnboundedSender<StepRequest>,
}

impl SessionHandle {
    /// Steps are recorded by [`write_steps`](super::writer::write_steps) with the receiver.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        runtime: Handle,
        injected_failures: InjectedFailures,
    ) -> (Self, UnboundedReceiver<StepRequest>) {
        let (requests, receiver) = unbounded_channel();
        let schema = store.schema_name().to_owned();
        // A test moves the clock of the database, and waits for nothing.
        let in_place_max = if injected_failures.in_test { Duration::ZERO } else { IN_PLACE_MAX };
        let session = Self { store, schema, runtime, in_place_max, injected_failures, requests };
        (session, receiver)
    }

    /// Records a step, together with those of other attempts.
    pub(crate) async fn record(&self, step: NewStep) -> Result<StepOutcome, StoreError> {
        let (reply, outcome) = oneshot::channel();
        let stopped = || StoreError::Unavailable("the engine has stopped".to_owned());
        self.requests.send((step, reply)).map_err(|_| stopped())?;
        outcome.await.map_err(|_| stopped())?
    }
}

impl fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionHandle").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// Failures that a test injects into steps, by the name of the step.
#[derive(Debug, Clone, Default)]
pub(crate) struct InjectedFailures {
    pub(crate) in_test: bool,
    by_step: Arc<Mutex<HashMap<String, VecDeque<String>>>>,
}

impl InjectedFailures {
    #[cfg(feature = "testing")]
    pub(crate) fn for_tests() -> Self {
        Self { in_test: true, ..Self::default() }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn add(&self, step: &str, message: String) {
        let mut by_step = self.by_step.lock().unwrap_or_else(PoisonError::into_inner);
        by_step.entry(step.to_owned()).or_default().push_back(message);
    }

    /// The next failure of a step that is about to run.
    pub(crate) fn take(&self, step: &str) -> Option<Failure> {
        if !self.in_test {
            return None;
        }
        let mut by_step = self.by_step.lock().unwrap_or_else(PoisonError::into_inner);
        let message = by_step.get_mut(step)?.pop_front()?;
        Some(Failure::named("InjectedFailure", format!("step {step:?}: {message}")))
    }
}
