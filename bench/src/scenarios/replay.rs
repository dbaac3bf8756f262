//! How long an attempt takes to get the results of all recorded steps of its task,
//! from the start of the handler.

use super::pickup::WORKERS;
use crate::database::BenchDatabase;
use crate::durable_tasks::{REPLAY, ReplayParameters};
use crate::engines::{EngineOptions, Engines};
use crate::error::BenchError;
use crate::metric::Measurement;
use crate::options::BenchSettings;
use crate::tasks;

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let store = database.store().await?;
    let replays = settings.samples;
    store.create(&[tasks::task_with(REPLAY, &ReplayParameters { replays })?]).await?;
    let mut engines = Engines::start_claiming(database, EngineOptions::new(1, WORKERS)).await?;
    let mut samples_ms = Vec::new();
    for _ in 0..replays {
        samples_ms.push(engines.replayed().await? as f64 / 1000.0);
    }
    engines.recorded(u64::from(replays) + 1).await?;
    engines.stop().await?;
    Ok(Measurement::default().latencies(samples_ms))
}
