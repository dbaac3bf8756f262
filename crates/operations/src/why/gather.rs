//! Where the facts come from.

use std::time::Duration;

use jiff::Timestamp;

use super::{RATE_OVER, Reason, TaskFacts, queue_position_query, reasons};
use task_engine_core::task::{TaskDetails, TaskId, TaskStatus};
use task_engine_store::activity::ActivityQuery;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

/// A task, and why it is where it is.
#[derive(Debug, Clone)]
pub struct Why {
    /// The task.
    pub task: TaskDetails,
    /// The time that this was so, by the database's clock.
    pub at: Timestamp,
    /// The reasons, the one to look at first in front. Never empty.
    pub reasons: Vec<Reason>,
}

/// A task that goes on while it is asked about is asked about again.
const ASKED_MAX: usize = 3;

/// Asks a store for the facts, one bounded question each, and tells what follows
/// from them. `None` if there is no such task.
pub async fn why(store: &dyn Store, id: TaskId) -> Result<Option<Why>, StoreError> {
    let mut asked = 0;
    loop {
        let Some(task) = store.task(id).await? else {
            return Ok(None);
        };
        let engines = store.instances(None).await?;
        let paused = store.paused_queues().await?;
        let moving = store.activity(ActivityQuery { per_lane: 1, soon: Duration::ZERO }).await?;
        let mut table_locks = Vec::new();
        if matches!(task.row.status, TaskStatus::Waiting | TaskStatus::Running) {
            table_locks = store.blocking_sessions().await?;
            table_locks.retain(|session| !session.locks.is_empty());
        }
        let (mut ahead, mut endings) = (None, Vec::new());
        if task.row.status == TaskStatus::Waiting {
            ahead = store.queue_position(&queue_position_query(&task, &engines)).await?;
            asked += 1;
            if ahead.is_none() && asked < ASKED_MAX {
                continue;
            }
            let mut look = moving.endings_query();
            look.age_max = RATE_OVER;
            endings = store.endings(&look).await?;
        }
        let facts = TaskFacts {
            task: &task,
            moving: &moving,
            engines: &engines,
            paused: paused.iter().find(|paused| paused.queue == task.row.queue),
            ahead: ahead.as_ref(),
            endings: &endings,
            table_locks: &table_locks,
        };
        let reasons = reasons(&facts);
        return Ok(Some(Why { task, at: moving.now, reasons }));
    }
}
