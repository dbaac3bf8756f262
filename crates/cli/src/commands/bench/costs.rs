//! What a stretch of time has cost, shared out over its tasks.

use std::time::Duration;

use super::arena::{Arena, Reading};
use super::fleet::Fleet;
use super::measure::{Measure, Take};
use crate::error::CliError;

/// Read at the beginning of the stretch.
#[derive(Debug)]
pub(super) struct Costs<'a> {
    arena: &'a Arena,
    database: Reading,
    engines: Option<Duration>,
}

impl<'a> Costs<'a> {
    pub(super) async fn from_here(
        arena: &'a Arena,
        fleet: Option<&Fleet>,
    ) -> Result<Costs<'a>, CliError> {
        let database = arena.read().await?;
        Ok(Self { arena, database, engines: fleet.and_then(Fleet::cpu) })
    }

    /// Adds what has been used since; the engines' part only if there are some.
    pub(super) async fn until_here(
        self,
        fleet: Option<&Fleet>,
        tasks: u64,
        take: Take,
    ) -> Result<Take, CliError> {
        // The engines first: they do not stand still while the database is asked.
        let engines = fleet.map(|fleet| (fleet.cpu(), fleet.memory_mb()));
        let now = self.arena.read().await?;
        let then = self.database;
        let cpu = between(then.cpu, now.cpu, |then, now| micros(now.saturating_sub(then)));
        let wal = between(then.wal_bytes, now.wal_bytes, |then, now| now - then);
        let writes = between(then.writes, now.writes, |then, now| (now - then) as f64);
        let share = |total: Option<f64>| total.map(|total| total / tasks.max(1) as f64);
        let take = take
            .with(Measure::DatabaseCpuUsPerTask, share(cpu))
            .with(Measure::WalBytesPerTask, share(wal))
            .with(Measure::CommitsPerTask, share(writes));
        let Some((cpu, memory_mb)) = engines else {
            return Ok(take);
        };
        let cpu = between(self.engines, cpu, |then, now| micros(now.saturating_sub(then)));
        Ok(take
            .with(Measure::EngineCpuUsPerTask, share(cpu))
            .with(Measure::EngineMemoryMb, memory_mb))
    }
}

fn between<T>(then: Option<T>, now: Option<T>, cost: impl Fn(T, T) -> f64) -> Option<f64> {
    Some(cost(then?, now?))
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
