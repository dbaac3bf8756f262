//! Time from the start of the process to the start of a task that waits already.

use super::pickup::WORKERS;
use crate::database::BenchDatabase;
use crate::engine::STAMP;
use crate::engines::{EngineOptions, Engines};
use crate::error::BenchError;
use crate::event::now_us;
use crate::metric::{Measurement, Metric, median};
use crate::tasks;

/// Processes per repeat.
const STARTS: u16 = 5;

pub(crate) async fn measure(database: &BenchDatabase) -> Result<Measurement, BenchError> {
    let store = database.store().await?;
    let stamp = [tasks::task(STAMP)?];
    let mut start_ups_ms = Vec::new();
    for _ in 0..STARTS {
        store.create(&stamp).await?;
        let started_us = now_us();
        let options = EngineOptions { at_once: true, ..EngineOptions::new(1, WORKERS) };
        let mut engines = Engines::start(database, options)?;
        let (_, began_us) = engines.began().await?;
        start_ups_ms.push((began_us - started_us) as f64 / 1000.0);
        engines.recorded(1).await?;
        engines.stop().await?;
    }
    // Too few samples for higher percentiles.
    let mut measurement = Measurement::default().with(Metric::LatencyMsP50, median(&start_ups_ms));
    measurement.latencies_ms = start_ups_ms;
    Ok(measurement)
}
