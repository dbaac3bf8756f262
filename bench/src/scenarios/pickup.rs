//! Time from the commit of a task to its start, on an idle engine.
//!
//! The commit is between the creating call and its return. The latency is measured
//! from the return (zero if the task started earlier), and also from the call: the
//! true value is between the two.

use std::time::Duration;

use task_engine::{NewTask, Store};

use crate::database::BenchDatabase;
use crate::engine::STAMP;
use crate::engines::{EngineOptions, Engines};
use crate::error::BenchError;
use crate::event::now_us;
use crate::metric::{Measurement, Metric, percentile};
use crate::options::BenchSettings;
use crate::tasks;

/// As many as in a usual application.
pub(crate) const WORKERS: u16 = 10;
/// Tasks before the first sample: they open connections and prepare statements.
const WARM_UP: u16 = 5;

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let store = database.store().await?;
    let mut engines = idle_engine(database, &*store).await?;
    let stamp = [tasks::task(STAMP)?];
    let (mut from_return, mut from_call) = (Vec::new(), Vec::new());
    for sample in 0..settings.samples {
        tokio::time::sleep(pause(sample)).await;
        let (called_us, returned_us, began_us) = create_one(&*store, &mut engines, &stamp).await?;
        from_return.push((began_us - returned_us).max(0) as f64 / 1000.0);
        from_call.push((began_us - called_us) as f64 / 1000.0);
    }
    engines.stop().await?;
    Ok(Measurement::default()
        .latencies(from_return)
        .with(Metric::CallLatencyMsP50, percentile(&from_call, 0.50))
        .with(Metric::CallLatencyMsP99, percentile(&from_call, 0.99)))
}

/// An engine that has executed tasks and is idle again.
pub(crate) async fn idle_engine(
    database: &BenchDatabase,
    store: &dyn Store,
) -> Result<Engines, BenchError> {
    let mut engines = Engines::start_claiming(database, EngineOptions::new(1, WORKERS)).await?;
    let stamp = [tasks::task(STAMP)?];
    for _ in 0..WARM_UP {
        create_one(store, &mut engines, &stamp).await?;
    }
    Ok(engines)
}

/// Times of the call, of its return, and of the start of the task.
async fn create_one(
    store: &dyn Store,
    engines: &mut Engines,
    stamp: &[NewTask; 1],
) -> Result<(i64, i64, i64), BenchError> {
    let called_us = now_us();
    store.create(stamp).await?;
    let returned_us = now_us();
    let (_, began_us) = engines.began().await?;
    Ok((called_us, returned_us, began_us))
}

/// Long enough for the engine to record the last task and become idle; varies, to
/// avoid synchrony with periodic work.
pub(crate) fn pause(sample: u16) -> Duration {
    Duration::from_micros(20_000 + u64::from(sample) * 7919 % 30_000)
}
