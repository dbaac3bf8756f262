//! A budget of time for executions.

use std::time::Duration;

use task_engine_core::json::Json;

use crate::failure::Failure;
use crate::hook::{Hook, Inner};
use crate::run::Run;

/// Warns as soon as an execution takes longer than it should, or fails it.
///
/// The timeout of a class is part of its rules; a budget is a setting of this engine.
/// Asynchronous code that exceeds a failing budget is dropped. Blocking code is asked
/// to end (`run.is_cancelled()`), and the worker waits for it.
///
/// ```
/// # use std::time::Duration;
/// # use task_engine::{Engine, hooks::Budget};
/// # fn example(engine: Engine<()>) -> Engine<()> {
/// engine.hook(Budget::warn(Duration::from_secs(5)))
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    time: Duration,
    fails: bool,
}

impl Budget {
    /// Logs a warning when an execution is over its budget, while it still runs.
    #[must_use]
    pub fn warn(time: Duration) -> Self {
        Self { time, fails: false }
    }

    /// Ends an execution that is over its budget with the failure `OverBudget`.
    #[must_use]
    pub fn fail(time: Duration) -> Self {
        Self { time, fails: true }
    }
}

impl<S: Send + Sync + 'static> Hook<S> for Budget {
    async fn around(&self, run: &Run<S>, inner: Inner<'_, S>) -> Result<Json, Failure> {
        let mut inner = Box::pin(inner.run());
        if let Ok(outcome) = tokio::time::timeout(self.time, &mut inner).await {
            return outcome;
        }
        if self.fails {
            let message = format!("not finished within its budget of {:?}", self.time);
            return Err(Failure::named("OverBudget", message));
        }
        tracing::warn!(
            "Worker {} task {} of class {} is over its budget of {:?}",
            run.worker(),
            run.task_id(),
            run.class(),
            self.time
        );
        inner.await
    }
}
