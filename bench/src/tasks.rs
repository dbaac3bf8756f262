//! The tasks of the benchmark.

use serde::Serialize;
use task_engine::{Json, NewTask, Store};

use crate::engine::{BenchParameters, KeyedParameters, QUEUE};
use crate::error::BenchError;

/// Tasks per call while tasks are prepared.
const BATCH: u64 = 5000;

pub(crate) fn task(class: &str) -> Result<NewTask, BenchError> {
    task_with(class, &BenchParameters::sample())
}

pub(crate) fn task_with(class: &str, parameters: &impl Serialize) -> Result<NewTask, BenchError> {
    let wrong = |error: String| BenchError::Failure(format!("invalid benchmark task: {error}"));
    let parameters = Json::encode_object(parameters).map_err(|e| wrong(e.to_string()))?;
    let task = NewTask::new(class, parameters).map_err(|e| wrong(e.to_string()))?;
    task.queue(QUEUE).map_err(|e| wrong(e.to_string()))
}

/// Creates tasks before a measurement.
pub(crate) async fn create(store: &dyn Store, class: &str, count: u64) -> Result<(), BenchError> {
    let task = task(class)?;
    let mut missing = count;
    while missing > 0 {
        let batch = missing.min(BATCH);
        store.create(&vec![task.clone(); batch as usize]).await?;
        missing -= batch;
    }
    Ok(())
}

/// Creates tasks with limits: the first one of the first key, the next one of the next key,
/// and so on.
pub(crate) async fn create_keyed(
    store: &dyn Store,
    class: &str,
    keys: &[String],
    count: u64,
) -> Result<(), BenchError> {
    let tasks: Result<Vec<NewTask>, BenchError> =
        keys.iter().map(|key| task_with(class, &KeyedParameters::sample(key))).collect();
    let tasks = tasks?;
    let mut next = tasks.iter().cycle();
    let mut missing = count;
    while missing > 0 {
        let batch = missing.min(BATCH);
        let some: Vec<NewTask> = next.by_ref().take(batch as usize).cloned().collect();
        store.create(&some).await?;
        missing -= batch;
    }
    Ok(())
}
