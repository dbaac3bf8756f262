//! One task that creates children in one call, and awaits them. The rate counts the
//! children, from the commit of their creation to the end of their parent: as `drain`,
//! with the reading of their results. A second rate counts from the start of the parent.

use std::time::Duration;

use task_engine_core::step::CHILDREN_MAX;

use crate::costs::Costs;
use crate::database::BenchDatabase;
use crate::durable_tasks::{PARENT, ParentParameters};
use crate::engines::{EngineOptions, Engines};
use crate::error::BenchError;
use crate::metric::{Measurement, Metric};
use crate::options::BenchSettings;
use crate::tasks;

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let children = settings.tasks.min(CHILDREN_MAX as u64);
    let store = database.store().await?;
    store.create(&[tasks::task_with(PARENT, &ParentParameters { children })?]).await?;
    drop(store);

    let options = EngineOptions::new(settings.engines, settings.workers);
    let mut engines = Engines::start(database, options)?;
    engines.wait_registered().await?;
    let costs = Costs::start(database, Some(&engines)).await?;
    let from_us = engines.release().await?;
    // The suspension of the parent is not counted as recorded.
    let until_us = engines.recorded(children + 1).await?;
    let since =
        |from_us: i64| Duration::from_micros(u64::try_from(until_us - from_us).unwrap_or(0));
    let called_us = engines.called_us().unwrap_or(from_us);
    let with_creation = children as f64 / since(from_us).as_secs_f64();
    let measurement = Measurement::default()
        .rate(children, since(called_us))
        .with(Metric::WithCreationPerSec, Some(with_creation));
    let measurement = costs.finish(Some(&engines), children, measurement).await?;
    engines.stop().await?;
    Ok(measurement)
}
