//! Execution of tasks that were created before.

use std::time::Duration;

use super::curve::rate_over_time;
use crate::costs::Costs;
use crate::database::BenchDatabase;
use crate::engines::{EngineOptions, Engines};
use crate::error::BenchError;
use crate::metric::{Measurement, Metric};
use crate::options::BenchSettings;
use crate::tasks;

pub(crate) async fn measure(
    class: &str,
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let store = database.store().await?;
    tasks::create(&*store, class, settings.tasks).await?;
    drop(store);
    execute(database, settings).await
}

/// Measures the execution of the tasks that wait.
pub(crate) async fn execute(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let count = settings.tasks;
    let dead_before = database.dead_rows().await?;

    let mut engines =
        Engines::start(database, EngineOptions::new(settings.engines, settings.workers))?;
    engines.wait_registered().await?;
    let costs = Costs::start(database, Some(&engines)).await?;
    let from_us = engines.release().await?;
    let until_us = engines.recorded(count).await?;
    let took = Duration::from_micros(u64::try_from(until_us - from_us).unwrap_or(0));
    let measurement = Measurement::default().rate(count, took);
    let mut measurement = costs.finish(Some(&engines), count, measurement).await?;
    measurement.rate_over_time = rate_over_time(engines.curve(), from_us);

    engines.stop().await?;
    let dead = database.dead_rows().await?;
    let dead = dead_before.zip(dead).map(|(before, after)| (after - before) as f64 / count as f64);
    Ok(measurement.with(Metric::DeadRowsPerTask, dead))
}
