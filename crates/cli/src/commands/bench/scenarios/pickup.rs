//! Pickup: from the commit of a task to its first line of code, on an engine
//! that has nothing else to do.
//!
//! The commit is somewhere between the call that creates the task and its
//! return. Latency counts from the return, and is zero if the task was faster
//! than the answer; it is given from the call too, so that the truth is between
//! the two.

use std::time::Duration;

use task_engine::{NewTask, Store};

use super::super::arena::Arena;
use super::super::engine::STAMP;
use super::super::event::now_us;
use super::super::fleet::{Crew, Fleet};
use super::super::measure::{Measure, Take, percentile};
use super::super::options::Settings;
use super::super::tasks;
use crate::error::CliError;

/// As of a usual application.
pub(super) const WORKERS: u16 = 10;
/// Tasks before the first that counts: connections open, statements prepared.
const WARM_UP: u16 = 5;

pub(super) async fn take(arena: &Arena, settings: &Settings) -> Result<Take, CliError> {
    let store = arena.store().await?;
    let mut fleet = idle_fleet(arena, &*store).await?;
    let stamp = [tasks::task(STAMP)?];
    let (mut from_return, mut from_call) = (Vec::new(), Vec::new());
    for sample in 0..settings.samples {
        tokio::time::sleep(pause(sample)).await;
        let (called_us, returned_us, began_us) = create_one(&*store, &mut fleet, &stamp).await?;
        from_return.push((began_us - returned_us).max(0) as f64 / 1000.0);
        from_call.push((began_us - called_us) as f64 / 1000.0);
    }
    fleet.stop().await?;
    Ok(Take::default()
        .latencies(from_return)
        .with(Measure::CallLatencyMsP50, percentile(&from_call, 0.50))
        .with(Measure::CallLatencyMsP99, percentile(&from_call, 0.99)))
}

/// An engine that has shown that it works, and then sleeps.
pub(super) async fn idle_fleet(arena: &Arena, store: &dyn Store) -> Result<Fleet, CliError> {
    let mut fleet = Fleet::at_work(arena, Crew::new(1, WORKERS)).await?;
    let stamp = [tasks::task(STAMP)?];
    for _ in 0..WARM_UP {
        create_one(store, &mut fleet, &stamp).await?;
    }
    Ok(fleet)
}

/// When the call began, when it returned, and when the task began.
async fn create_one(
    store: &dyn Store,
    fleet: &mut Fleet,
    stamp: &[NewTask; 1],
) -> Result<(i64, i64, i64), CliError> {
    let called_us = now_us();
    store.create(stamp).await?;
    let returned_us = now_us();
    let (_, began_us) = fleet.began().await?;
    Ok((called_us, returned_us, began_us))
}

/// Long enough for the engine to record the last task and fall asleep, and
/// never in step with anything that it does regularly.
fn pause(sample: u16) -> Duration {
    Duration::from_micros(20_000 + u64::from(sample) * 7919 % 30_000)
}
