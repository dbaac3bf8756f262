//! One event an execution, with everything a log search needs.

use std::time::Instant;

use task_engine_model::Json;

use crate::failure::Failure;
use crate::hook::{Hook, Inner};
use crate::run::Run;

/// Logs each execution as one event with fields: `task_id`, `class`, `attempt`,
/// `correlation_id`, `outcome`, `ms`, and the error of a failure.
///
/// An execution that is dropped half-way (its timeout, a cancel, a stop) is
/// `interrupted`.
///
/// ```
/// # use task_engine::{Engine, hooks::Log};
/// # fn example(engine: Engine<()>) -> Engine<()> {
/// engine.hook(Log)
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Log;

impl<S: Send + Sync + 'static> Hook<S> for Log {
    async fn around(&self, run: &Run<S>, inner: Inner<'_, S>) -> Result<Json, Failure> {
        let mut line = Line { run, begun: Instant::now(), ended: false };
        let outcome = inner.run().await;
        line.ended = true;
        match &outcome {
            Ok(_) => line.write("success", None),
            Err(failure) if failure.snoozes().is_some() => line.write("snoozed", None),
            Err(failure) => line.write("failure", Some(failure)),
        }
        outcome
    }
}

struct Line<'a, S> {
    run: &'a Run<S>,
    begun: Instant,
    ended: bool,
}

impl<S> Line<'_, S> {
    fn write(&self, outcome: &str, failure: Option<&Failure>) {
        let error = failure.map(Failure::to_string);
        let error = error.as_deref().map(|error| self.run.without_secrets(error));
        tracing::info!(
            task_id = self.run.task_id().0,
            class = self.run.class(),
            attempt = self.run.attempt(),
            correlation_id = self.run.correlation_id(),
            outcome,
            ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            error = error.as_deref(),
            "execution ended"
        );
    }
}

impl<S> Drop for Line<'_, S> {
    fn drop(&mut self) {
        if !self.ended {
            self.write("interrupted", None);
        }
    }
}
