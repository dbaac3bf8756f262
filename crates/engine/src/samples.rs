//! The four sample tasks of the book, for `demo`, `start --samples` and tests; no
//! other engine has them. Each has a short name and the book's
//! (`TaskEngine::Tasks::WaitingTask`), so that tasks created by the book's program
//! run, too. `ReportingTask`, which reports progress, is an addition.

use std::time::Duration;

use serde::Deserialize;
use task_engine_core::progress::LogLevel;
use task_engine_core::retry::RetryRule;
use task_engine_core::task::TaskOptions;

use crate::context::Context;
use crate::engine::Engine;
use crate::failure::Failure;

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

/// Reports progress, step by step.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportingTask {
    /// How many steps.
    pub steps: u32,
    /// How long each takes, in seconds.
    #[serde(default)]
    pub step_time: f64,
    /// What it does when a user cancels it.
    #[serde(default)]
    pub when_cancelled: WhenCancelled,
}

/// What a [`ReportingTask`] does when a user cancels it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenCancelled {
    /// It ends with an error.
    #[default]
    Obey,
    /// It ends with success, as if it had been done anyway.
    Finish,
    /// It goes on.
    Hang,
}

/// Adds the classes to an engine.
pub fn handle_samples<S: Send + Sync + 'static>(engine: Engine<S>) -> Engine<S> {
    let engine = engine.handle_class("ReportingTask", TaskOptions::default(), report);
    ["", "TaskEngine::Tasks::"].into_iter().fold(engine, |engine, prefix| {
        let name = |class: &str| format!("{prefix}{class}");
        let never = TaskOptions::default().retry(RetryRule::never());
        engine
            .handle_class(name("WaitingTask"), TaskOptions::default(), wait)
            .handle_class(name("FailingTask"), TaskOptions::default(), fail)
            .handle_class(name("FailingNotRetryTask"), never, fail)
            .handle_class(
                name("FailingNotRetryExceptionTask"),
                TaskOptions::default(),
                fail_for_good,
            )
    })
}

async fn wait<S>(task: WaitingTask, _: Context<S>) -> Result<(), Failure> {
    tokio::time::sleep(seconds(task.waiting_time)?).await;
    Ok(())
}

fn seconds(seconds: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Failure::no_retry(format!("cannot wait {seconds} seconds")))
}

async fn report<S>(task: ReportingTask, cx: Context<S>) -> Result<u32, Failure> {
    let time = seconds(task.step_time)?;
    for step in 1..=task.steps {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = cx.cancelled(), if task.when_cancelled != WhenCancelled::Hang => {
                cx.log_at(LogLevel::Warn, format!("asked to end before step {step}"));
                return match task.when_cancelled {
                    WhenCancelled::Finish => Ok(step - 1),
                    _ => Err(Failure::named("GaveUp", format!("before step {step}"))),
                };
            }
        }
        cx.log(format!("step {step} of {} is done", task.steps));
        cx.progress(f64::from(step) / f64::from(task.steps) * 100.0, format!("step {step}"));
    }
    Ok(task.steps)
}

async fn fail<S>(
    parameters: serde_json::Map<String, serde_json::Value>,
    _: Context<S>,
) -> Result<u64, Failure> {
    let divisor = parameters.get("divisor").and_then(serde_json::Value::as_u64).unwrap_or(0);
    let quotient = 1_u64.checked_div(divisor);
    quotient.ok_or_else(|| Failure::named("ZeroDivisionError", "divided by 0"))
}

async fn fail_for_good<S>(_: serde_json::Value, _: Context<S>) -> Result<(), Failure> {
    Err(Failure::no_retry(FailingNotRetryTaskException))
}
