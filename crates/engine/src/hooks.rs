//! Hooks that are ready to use, and the values that hooks pass to handlers.
//!
//! There is none for memory, because the memory of tasks in one process cannot be
//! measured separately.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use task_engine_core::json::Json;

use crate::context::Context;
use crate::failure::Failure;
use crate::hook::Hook;
pub use crate::hook::Next;
#[cfg(feature = "metrics")]
pub use metrics_hook::Metrics;

/// Values that hooks pass to the handler, at most one of each type.
///
/// Clones share them.
///
/// ```
/// use task_engine::hooks::Extensions;
///
/// struct Tenant(String);
///
/// let values = Extensions::default();
/// values.insert(Tenant("acme".into()));
/// assert_eq!(values.get::<Tenant>().unwrap().0, "acme");
/// ```
#[derive(Clone, Default)]
pub struct Extensions(Arc<Mutex<Values>>);

type Values = HashMap<TypeId, (&'static str, Arc<dyn Any + Send + Sync>)>;

impl Extensions {
    /// Adds a value, and replaces one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&self, value: T) {
        self.values().insert(TypeId::of::<T>(), (type_name::<T>(), Arc::new(value)));
    }

    /// Returns the value of this type, if there is one.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let (_, value) = self.values().get(&TypeId::of::<T>())?.clone();
        value.downcast().ok()
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        // Each change is one step, so a panic leaves it consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values().values().map(|(name, _)| name)).finish()
    }
}

/// A hook that warns of executions that take too long, or fails them.
///
/// The timeout of a class is one of its options; a budget is a setting of this engine.
/// Asynchronous code that exceeds a failing budget is dropped. Blocking code is asked
/// to end (`cx.is_cancelled()`), and the worker waits for it.
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
    async fn around(&self, cx: &Context<S>, next: Next<'_, S>) -> Result<Json, Failure> {
        let mut next = Box::pin(next.run());
        if let Ok(outcome) = tokio::time::timeout(self.time, &mut next).await {
            return outcome;
        }
        if self.fails {
            let message = format!("not finished within its budget of {:?}", self.time);
            return Err(Failure::named("OverBudget", message));
        }
        tracing::warn!(
            "Worker {} task {} of class {} is over its budget of {:?}",
            cx.worker(),
            cx.task_id(),
            cx.class(),
            self.time
        );
        next.await
    }
}

#[cfg(feature = "metrics")]
mod metrics_hook {
    use std::time::Instant;

    use task_engine_core::json::Json;

    use crate::context::Context;
    use crate::failure::Failure;
    use crate::hook::{Hook, Next};

    /// Counts executions (`task_engine_executions_total`) and measures how long they take
    /// (`task_engine_execution_seconds`).
    ///
    /// Both have the labels `class` and `outcome`: `success`, `failure`, `snoozed`, or
    /// `interrupted` for executions that were dropped by a timeout, a cancel or a stop.
    ///
    /// The gauge `task_engine_executions_running` counts the running executions by `class`.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Metrics;

    impl<S: Send + Sync + 'static> Hook<S> for Metrics {
        async fn around(&self, cx: &Context<S>, next: Next<'_, S>) -> Result<Json, Failure> {
            let class = cx.class().to_owned();
            metrics::gauge!("task_engine_executions_running", "class" => class.clone())
                .increment(1);
            let mut count = ExecutionCount { class, begun: Instant::now(), outcome: "interrupted" };
            let outcome = next.run().await;
            count.outcome = match &outcome {
                Ok(_) => "success",
                Err(failure) if failure.snoozes().is_some() => "snoozed",
                Err(_) => "failure",
            };
            outcome
        }
    }

    /// Counts when it is dropped, so that what is interrupted counts, too.
    struct ExecutionCount {
        class: String,
        begun: Instant,
        outcome: &'static str,
    }

    impl Drop for ExecutionCount {
        fn drop(&mut self) {
            let class = std::mem::take(&mut self.class);
            let labels = [("class", class.clone()), ("outcome", self.outcome.to_owned())];
            metrics::counter!("task_engine_executions_total", &labels).increment(1);
            metrics::histogram!("task_engine_execution_seconds", &labels)
                .record(self.begun.elapsed());
            metrics::gauge!("task_engine_executions_running", "class" => class).decrement(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_found_by_type() {
        struct Tenant(u32);
        let extensions = Extensions::default();
        assert!(extensions.get::<Tenant>().is_none());
        extensions.clone().insert(Tenant(1));
        extensions.insert(7_u8);
        extensions.insert(Tenant(2));
        assert_eq!(extensions.get::<Tenant>().unwrap().0, 2);
        assert_eq!(*extensions.get::<u8>().unwrap(), 7);
        assert!(format!("{extensions:?}").contains("Tenant"));
    }
}
