//! The producer of `fault-engine`: creates tasks, and writes the ids of those
//! whose creation was confirmed to a file outside the database.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use task_engine::{NewTask, Store, TaskEngine, TaskId};

use crate::commands::ProducerConfig;
use crate::engine::open;
use crate::limits::limited_task;
use crate::witness::append_line;

/// Creates tasks until enough are confirmed. Failed calls are repeated. The first call
/// may have committed, which is no loss.
pub async fn run(config: ProducerConfig) -> Result<(), String> {
    let pause = Duration::from_millis(config.pause_ms);
    let store: Arc<dyn Store> = loop {
        match open(&config.database).await {
            Ok(store) => break store,
            Err(error) => eprintln!("not opened: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let client = TaskEngine::new(store);
    let mut confirmed = 0;
    while confirmed < config.count {
        let batch = config.batch.min(config.count - confirmed);
        let task = |number| match config.keys {
            _ if config.limited => limited_task(number, &config.spec),
            Some(keys) => config.spec.task_with_key(keys),
            None => config.spec.task(),
        };
        let tasks: Vec<NewTask> = (confirmed..confirmed + batch).map(task).collect();
        match client.create_many(&tasks).await {
            Ok(ids) => {
                confirmed += ids.len();
                confirm(&config.acks, &ids).map_err(|e| e.to_string())?;
                tokio::time::sleep(pause).await;
            }
            Err(error) => {
                eprintln!("not created: {error}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
    Ok(())
}

/// Writes the ids of confirmed tasks.
pub fn confirm(acks: &Path, ids: &[TaskId]) -> std::io::Result<()> {
    let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
    append_line(acks, &lines)
}
