//! Executions as metrics, for whichever recorder the application has installed.

use std::time::Instant;

use task_engine_core::json::Json;

use crate::failure::Failure;
use crate::hook::{Hook, Inner};
use crate::run::Run;

/// Counts executions (`task_engine_executions_total`) and measures how long they
/// take (`task_engine_execution_seconds`), each by `class` and `outcome`:
/// `success`, `failure`, `snoozed`, or `interrupted` for executions that were dropped (its
/// timeout, a cancel, a stop). How many run is `task_engine_executions_running`,
/// by `class`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Metrics;

impl<S: Send + Sync + 'static> Hook<S> for Metrics {
    async fn around(&self, run: &Run<S>, inner: Inner<'_, S>) -> Result<Json, Failure> {
        let class = run.class().to_owned();
        metrics::gauge!("task_engine_executions_running", "class" => class.clone()).increment(1);
        let mut count = Count { class, begun: Instant::now(), outcome: "interrupted" };
        let outcome = inner.run().await;
        count.outcome = match &outcome {
            Ok(_) => "success",
            Err(failure) if failure.snoozes().is_some() => "snoozed",
            Err(_) => "failure",
        };
        outcome
    }
}

/// Counts when it is dropped, so that what is interrupted counts, too.
struct Count {
    class: String,
    begun: Instant,
    outcome: &'static str,
}

impl Drop for Count {
    fn drop(&mut self) {
        let class = std::mem::take(&mut self.class);
        let labels = [("class", class.clone()), ("outcome", self.outcome.to_owned())];
        metrics::counter!("task_engine_executions_total", &labels).increment(1);
        metrics::histogram!("task_engine_execution_seconds", &labels).record(self.begun.elapsed());
        metrics::gauge!("task_engine_executions_running", "class" => class).decrement(1);
    }
}
