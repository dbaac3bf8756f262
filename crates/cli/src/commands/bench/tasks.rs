//! The tasks that a bench creates.

use task_engine::{Json, NewTask, Store};

use super::engine::{Parameters, QUEUE};
use crate::error::CliError;

/// As many as one call creates at the most while tasks are prepared.
const PORTION: u64 = 5000;

pub(super) fn task(class: &str) -> Result<NewTask, CliError> {
    let wrong = |why: String| CliError::Failure(format!("a task of the bench is wrong: {why}"));
    let parameters =
        Json::encode_object(&Parameters::sample()).map_err(|e| wrong(e.to_string()))?;
    let task = NewTask::new(class, parameters).map_err(|e| wrong(e.to_string()))?;
    task.queue(QUEUE).map_err(|e| wrong(e.to_string()))
}

/// Creates many before a measurement begins.
pub(super) async fn create(store: &dyn Store, class: &str, count: u64) -> Result<(), CliError> {
    let task = task(class)?;
    let mut missing = count;
    while missing > 0 {
        let portion = missing.min(PORTION);
        store.create(&vec![task.clone(); portion as usize]).await?;
        missing -= portion;
    }
    Ok(())
}
