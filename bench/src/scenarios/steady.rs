//! Concurrent creation and execution. The producer stays a few batches ahead, so
//! that the slower of the two limits the rate.

use std::time::{Duration, Instant};

use super::curve::rate_over_time;
use crate::costs::Costs;
use crate::database::BenchDatabase;
use crate::engine::NOOP;
use crate::engines::{EngineOptions, Engines};
use crate::error::BenchError;
use crate::event::now_us;
use crate::metric::{Measurement, Metric};
use crate::options::BenchSettings;
use crate::tasks;

/// How far the producer may be ahead.
const BATCHES_AHEAD: u64 = 10;
/// How long a producer that is too far ahead waits.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let store = database.store().await?;
    let batch = vec![tasks::task(NOOP)?; settings.batch as usize];
    let batch_len = batch.len() as u64;
    let dead_before = database.dead_rows().await?;
    let options = EngineOptions::new(settings.engines, settings.workers);
    let mut engines = Engines::start_claiming(database, options).await?;
    store.create(&batch).await?;
    engines.recorded(batch_len).await?;

    let costs = Costs::start(database, Some(&engines)).await?;
    let (began, from_us) = (Instant::now(), now_us());
    let first = engines.recorded_now()?;
    let mut created = first;
    let deadline = began + settings.time;
    while Instant::now() < deadline {
        if created - engines.recorded_now()? >= BATCHES_AHEAD * batch_len {
            tokio::time::sleep(POLL_INTERVAL).await;
        } else {
            store.create(&batch).await?;
            created += batch_len;
        }
    }
    let executed = engines.recorded_now()? - first;
    let measurement = Measurement::default().rate(executed, began.elapsed());
    let mut measurement = costs.finish(Some(&engines), executed, measurement).await?;
    let window: Vec<_> = engines.curve().iter().filter(|(at_us, _)| *at_us > from_us).collect();
    let window: Vec<_> = window.into_iter().map(|(at_us, count)| (*at_us, count - first)).collect();
    measurement.rate_over_time = rate_over_time(&window, from_us);

    // The rest is executed, but not measured.
    engines.recorded(created).await?;
    engines.stop().await?;
    drop(store);
    let dead = database.dead_rows().await?;
    let dead =
        dead_before.zip(dead).map(|(before, after)| (after - before) as f64 / created as f64);
    Ok(measurement.with(Metric::DeadRowsPerTask, dead))
}
