//! Resources used between two moments, per task.

use std::time::Duration;

use crate::database::{BenchDatabase, Counters};
use crate::engines::Engines;
use crate::error::BenchError;
use crate::metric::{Measurement, Metric};

/// The counters at the start.
#[derive(Debug)]
pub(crate) struct Costs<'a> {
    database: &'a BenchDatabase,
    counters: Counters,
    engines: Option<Duration>,
}

impl<'a> Costs<'a> {
    pub(crate) async fn start(
        database: &'a BenchDatabase,
        engines: Option<&Engines>,
    ) -> Result<Costs<'a>, BenchError> {
        let counters = database.counters().await?;
        Ok(Self { database, counters, engines: engines.and_then(Engines::cpu) })
    }

    /// Adds the costs since the start.
    pub(crate) async fn finish(
        self,
        engines: Option<&Engines>,
        tasks: u64,
        measurement: Measurement,
    ) -> Result<Measurement, BenchError> {
        // The engines first: they go on while the database is read.
        let engines = engines.map(|engines| (engines.cpu(), engines.memory_mb()));
        let now = self.database.counters().await?;
        let then = self.counters;
        let cpu = between(then.cpu, now.cpu, |then, now| micros(now.saturating_sub(then)));
        let wal = between(then.wal_bytes, now.wal_bytes, |then, now| now - then);
        let writes = between(then.writes, now.writes, |then, now| (now - then) as f64);
        let share = |total: Option<f64>| total.map(|total| total / tasks.max(1) as f64);
        let measurement = measurement
            .with(Metric::DatabaseCpuUsPerTask, share(cpu))
            .with(Metric::WalBytesPerTask, share(wal))
            .with(Metric::CommitsPerTask, share(writes));
        let Some((cpu, memory_mb)) = engines else {
            return Ok(measurement);
        };
        let cpu = between(self.engines, cpu, |then, now| micros(now.saturating_sub(then)));
        Ok(measurement
            .with(Metric::EngineCpuUsPerTask, share(cpu))
            .with(Metric::EngineMemoryMb, memory_mb))
    }
}

fn between<T>(then: Option<T>, now: Option<T>, cost: impl Fn(T, T) -> f64) -> Option<f64> {
    Some(cost(then?, now?))
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
