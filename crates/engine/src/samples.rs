//! The four tasks of the book, for trying things out. Each is known by its own
//! name and by the book's (`TaskEngine::Tasks::WaitingTask`), so that tasks
//! created by the book's program run too.

use std::time::Duration;

use serde::Deserialize;
use task_engine_model::{ClassRules, RetryRule};

use crate::engine::Engine;
use crate::failure::Failure;
use crate::run::Run;

/// Waits for some seconds.
#[derive(Debug, Deserialize)]
pub struct WaitingTask {
    /// How long, in seconds; may have a fraction.
    pub waiting_time: f64,
}

/// Raised by `FailingNotRetryExceptionTask`.
#[derive(Debug, thiserror::Error)]
#[error("Oh no")]
pub struct FailingNotRetryTaskException;

/// Adds the four classes to an engine.
#[must_use]
pub fn handle_samples<S: Send + Sync + 'static>(engine: Engine<S>) -> Engine<S> {
    ["", "TaskEngine::Tasks::"].into_iter().fold(engine, |engine, prefix| {
        let name = |class: &str| format!("{prefix}{class}");
        let never = ClassRules::retry(RetryRule::never());
        engine
            .handle_class(name("WaitingTask"), ClassRules::default(), wait)
            .handle_class(name("FailingTask"), ClassRules::default(), fail)
            .handle_class(name("FailingNotRetryTask"), never, fail)
            .handle_class(
                name("FailingNotRetryExceptionTask"),
                ClassRules::default(),
                fail_for_good,
            )
    })
}

async fn wait<S>(task: WaitingTask, _: Run<S>) -> Result<(), Failure> {
    let time = Duration::try_from_secs_f64(task.waiting_time)
        .map_err(|_| Failure::no_retry(format!("cannot wait {} seconds", task.waiting_time)))?;
    tokio::time::sleep(time).await;
    Ok(())
}

async fn fail<S>(
    parameters: serde_json::Map<String, serde_json::Value>,
    _: Run<S>,
) -> Result<u64, Failure> {
    let divisor = parameters.get("divisor").and_then(serde_json::Value::as_u64).unwrap_or(0);
    let quotient = 1_u64.checked_div(divisor);
    quotient.ok_or_else(|| Failure::named("ZeroDivisionError", "divided by 0"))
}

async fn fail_for_good<S>(_: serde_json::Value, _: Run<S>) -> Result<(), Failure> {
    Err(Failure::no_retry(FailingNotRetryTaskException))
}
