//! Start-up: from the start of the process to the first task, which waits
//! already.

use super::super::arena::Arena;
use super::super::engine::STAMP;
use super::super::event::now_us;
use super::super::fleet::{Crew, Fleet};
use super::super::measure::{Measure, Take, median};
use super::super::tasks;
use super::pickup::WORKERS;
use crate::error::CliError;

/// How many processes a repeat starts.
const STARTS: u16 = 5;

pub(super) async fn take(arena: &Arena) -> Result<Take, CliError> {
    let store = arena.store().await?;
    let stamp = [tasks::task(STAMP)?];
    let mut start_ups_ms = Vec::new();
    for _ in 0..STARTS {
        store.create(&stamp).await?;
        let started_us = now_us();
        let crew = Crew { at_once: true, ..Crew::new(1, WORKERS) };
        let mut fleet = Fleet::start(arena, crew)?;
        let (_, began_us) = fleet.began().await?;
        start_ups_ms.push((began_us - started_us) as f64 / 1000.0);
        fleet.recorded(1).await?;
        fleet.stop().await?;
    }
    // Too few for a percentile beyond the middle.
    let mut take = Take::default().with(Measure::LatencyMsP50, median(&start_ups_ms));
    take.latencies_ms = start_ups_ms;
    Ok(take)
}
