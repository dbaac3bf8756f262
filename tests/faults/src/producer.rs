//! The producer of `fault-engine`: creates tasks, and writes the ids of those
//! whose creation was confirmed to a file outside the database.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use task_engine::{Client, NewTask, Store, TaskId};

use crate::engine::open;
use crate::orders::ProducerOrder;
use crate::witness::testify;

/// Creates tasks until enough are confirmed. What fails is tried again: the
/// first try may have been committed all the same, which is nobody's loss.
pub async fn run(order: ProducerOrder) -> Result<(), String> {
    let pause = Duration::from_millis(order.pause_ms);
    let store: Arc<dyn Store> = loop {
        match open(&order.database).await {
            Ok(store) => break store,
            Err(error) => eprintln!("not opened: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let client = Client::new(store);
    let mut confirmed = 0;
    while confirmed < order.count {
        let batch = order.batch.min(order.count - confirmed);
        let task = || order.keys.map_or_else(|| order.duty.task(), |n| order.duty.task_with_key(n));
        let tasks: Vec<NewTask> = std::iter::repeat_with(task).take(batch).collect();
        match client.create_many(&tasks).await {
            Ok(ids) => {
                confirmed += ids.len();
                confirm(&order.acks, &ids).map_err(|e| e.to_string())?;
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

/// Keeps the ids of tasks that were created for certain.
pub fn confirm(acks: &Path, ids: &[TaskId]) -> std::io::Result<()> {
    let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
    testify(acks, &lines)
}
