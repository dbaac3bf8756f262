//! Durable tasks of the benchmark: what their handlers do.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use task_engine::durable::WaitTimedOut;
use task_engine::{Context, Failure, RetryRule, Task, TaskOptions};

use crate::engine::{BenchParameters, QUEUE, emit};
use crate::event::{Event, now_us};

/// Runs [`STEPS_PER_TASK`] steps.
pub(crate) const STEPS: &str = "bench_steps";
/// Waits for the signal [`APPROVED`], and reports when it continues.
pub(crate) const SIGNAL: &str = "bench_signal";
/// Records [`REPLAYED_STEPS`] steps, then gets them again in every attempt.
pub(crate) const REPLAY: &str = "bench_replay";
/// Creates children and awaits them.
pub(crate) const PARENT: &str = "bench_parent";
pub(crate) const CHILD: &str = "bench_child";

pub(crate) const APPROVED: &str = "approved";
pub(crate) const STEPS_PER_TASK: u32 = 10;
/// As many as a task may have.
pub(crate) const REPLAYED_STEPS: u32 = 1000;

/// Longer than any measurement.
const WEEK: Duration = Duration::from_secs(7 * 86_400);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReplayParameters {
    /// How often the task is replayed.
    pub(crate) replays: u16,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ParentParameters {
    pub(crate) children: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Child(BenchParameters);

impl Task for Child {
    const CLASS: &'static str = CHILD;

    fn options() -> TaskOptions {
        TaskOptions::default().retry(RetryRule::never()).queue(QUEUE)
    }
}

pub(crate) async fn steps(_: BenchParameters, cx: Context<()>) -> Result<&'static str, Failure> {
    for _ in 0..STEPS_PER_TASK {
        cx.step("charge", || async { Ok::<_, Failure>("receipt-1815".to_owned()) }).await?;
    }
    Ok("done")
}

pub(crate) async fn signalled(
    _: BenchParameters,
    cx: Context<()>,
) -> Result<&'static str, Failure> {
    match cx.wait_for::<String>(APPROVED, WEEK).await {
        Ok(_) => {
            emit(Event::Began { task_id: cx.task_id().0, at_us: now_us() });
            Ok("done")
        }
        Err(WaitTimedOut { .. }) => Err(Failure::no_retry("no signal arrived")),
    }
}

pub(crate) async fn replay(
    task: ReplayParameters,
    cx: Context<()>,
) -> Result<&'static str, Failure> {
    let began = Instant::now();
    for _ in 0..REPLAYED_STEPS {
        cx.step("charge", || async { Ok::<_, Failure>(BenchParameters::sample()) }).await?;
    }
    if cx.attempt() > 1 {
        let took_us = i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX);
        emit(Event::Replayed { took_us });
    }
    if cx.attempt() > i32::from(task.replays) {
        return Ok("done");
    }
    Err(Failure::snooze(Duration::ZERO))
}

pub(crate) async fn parent(task: ParentParameters, cx: Context<()>) -> Result<u64, Failure> {
    let children = (0..task.children).map(|_| Child(BenchParameters::sample()));
    let mut succeeded = 0;
    for result in cx.call_all::<_, String>(children).await {
        result.map_err(|error| Failure::no_retry(error.to_string()))?;
        succeeded += 1;
    }
    Ok(succeeded)
}

pub(crate) async fn child(_: Child) -> Result<&'static str, Failure> {
    Ok("done")
}
