//! Execution of tasks with limits that were created before. The tasks are empty, as those
//! of `drain`, so the difference between the two is the cost of the limits.

use task_engine::Store;
use task_engine_core::limit::{Limit, LimitOptions};

use super::drain;
use crate::database::BenchDatabase;
use crate::engine::{KEY, LIMITED};
use crate::error::BenchError;
use crate::metric::Measurement;
use crate::options::BenchSettings;
use crate::tasks;

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let store = database.store().await?;
    set_limit(&*store, LIMITED, LimitOptions::max(settings.max).key(KEY)).await?;
    let keys: Vec<String> = (1..=settings.keys).map(|key| format!("customer-{key}")).collect();
    tasks::create_keyed(&*store, LIMITED, &keys, settings.tasks).await?;
    drop(store);
    drain::execute(database, settings).await
}

/// Sets the limit of a class.
pub(crate) async fn set_limit(
    store: &dyn Store,
    class: &str,
    options: LimitOptions,
) -> Result<(), BenchError> {
    let limit = Limit::of_class("bench", class, options);
    let limit = limit.map_err(|error| BenchError::Failure(error.to_string()))?;
    store.set_limit(&limit).await?;
    Ok(())
}
