//! Draining: tasks that were created before, as fast as engines can.

use std::time::Duration;

use super::super::arena::Arena;
use super::super::costs::Costs;
use super::super::fleet::{Crew, Fleet};
use super::super::measure::{Measure, Take};
use super::super::options::Settings;
use super::super::tasks;
use super::curve::rate_over_time;
use crate::error::CliError;

pub(super) async fn take(class: &str, arena: &Arena, settings: &Settings) -> Result<Take, CliError> {
    let count = settings.tasks;
    let store = arena.store().await?;
    tasks::create(&*store, class, count).await?;
    drop(store);
    let dead_before = arena.dead_rows().await?;

    let mut fleet = Fleet::start(arena, Crew::new(settings.engines, settings.workers))?;
    fleet.all_alive().await?;
    let costs = Costs::from_here(arena, Some(&fleet)).await?;
    let from_us = fleet.go().await?;
    let until_us = fleet.recorded(count).await?;
    let took = Duration::from_micros(u64::try_from(until_us - from_us).unwrap_or(0));
    let take = Take::default().rate(count, took);
    let mut take = costs.until_here(Some(&fleet), count, take).await?;
    take.rate_over_time = rate_over_time(fleet.curve(), from_us);

    fleet.stop().await?;
    let dead = arena.dead_rows().await?;
    let dead = dead_before.zip(dead).map(|(before, after)| (after - before) as f64 / count as f64);
    Ok(take.with(Measure::DeadRowsPerTask, dead))
}
