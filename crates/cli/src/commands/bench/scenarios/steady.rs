//! The steady state: creation and execution at once. The producer stays a few
//! batches ahead, so that the slower of the two sets the pace.

use std::time::{Duration, Instant};

use super::super::arena::Arena;
use super::super::costs::Costs;
use super::super::engine::NOOP;
use super::super::event::now_us;
use super::super::fleet::{Crew, Fleet};
use super::super::measure::{Measure, Take};
use super::super::options::Settings;
use super::super::tasks;
use super::curve::rate_over_time;
use crate::error::CliError;

/// How far the producer may be ahead.
const BATCHES_AHEAD: u64 = 10;
/// How long a producer that is too far ahead waits before it looks again.
const LOOK_EVERY: Duration = Duration::from_millis(2);

pub(super) async fn take(arena: &Arena, settings: &Settings) -> Result<Take, CliError> {
    let store = arena.store().await?;
    let batch = vec![tasks::task(NOOP)?; settings.batch as usize];
    let batch_len = batch.len() as u64;
    let dead_before = arena.dead_rows().await?;
    let crew = Crew::new(settings.engines, settings.workers);
    let mut fleet = Fleet::at_work(arena, crew).await?;
    store.create(&batch).await?;
    fleet.recorded(batch_len).await?;

    let costs = Costs::from_here(arena, Some(&fleet)).await?;
    let (began, from_us) = (Instant::now(), now_us());
    let first = fleet.recorded_so_far()?;
    let mut created = first;
    let deadline = began + settings.time;
    while Instant::now() < deadline {
        if created - fleet.recorded_so_far()? >= BATCHES_AHEAD * batch_len {
            tokio::time::sleep(LOOK_EVERY).await;
        } else {
            store.create(&batch).await?;
            created += batch_len;
        }
    }
    let executed = fleet.recorded_so_far()? - first;
    let take = Take::default().rate(executed, began.elapsed());
    let mut take = costs.until_here(Some(&fleet), executed, take).await?;
    let window: Vec<_> = fleet.curve().iter().filter(|(at_us, _)| *at_us > from_us).collect();
    let window: Vec<_> = window.into_iter().map(|(at_us, count)| (*at_us, count - first)).collect();
    take.rate_over_time = rate_over_time(&window, from_us);

    // The rest is of no interest, but is executed before the engine stops.
    fleet.recorded(created).await?;
    fleet.stop().await?;
    drop(store);
    let dead = arena.dead_rows().await?;
    let dead =
        dead_before.zip(dead).map(|(before, after)| (after - before) as f64 / created as f64);
    Ok(take.with(Measure::DeadRowsPerTask, dead))
}
