//! Reads the facts about a task.

use std::time::Duration;

use jiff::Timestamp;

use super::{RATE_PERIOD, Reason, TaskFacts, queue_position_query, reasons};
use task_engine_core::task::{TaskDetails, TaskId, TaskStatus};
use task_engine_store::activity::ActivityQuery;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

/// A task, and the reasons for its status.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// The task.
    pub task: TaskDetails,
    /// The time of the facts, by the database's clock.
    pub at: Timestamp,
    /// The reasons, the most important first. Never empty.
    pub reasons: Vec<Reason>,
}

/// How often the facts are read if the task changes meanwhile.
const READS_MAX: usize = 3;

/// Reads the facts in bounded queries and returns the reasons. `None` if there is no such
/// task.
pub async fn why(store: &dyn Store, id: TaskId) -> Result<Option<Explanation>, StoreError> {
    let mut reads = 0;
    loop {
        let Some(task) = store.task(id).await? else {
            return Ok(None);
        };
        let engines = store.instances(None).await?;
        let paused = store.paused_queues().await?;
        let activity = store.activity(ActivityQuery { per_lane: 1, soon: Duration::ZERO }).await?;
        let mut table_locks = Vec::new();
        if matches!(task.row.status, TaskStatus::Waiting | TaskStatus::Running) {
            table_locks = store.blocking_sessions().await?;
            table_locks.retain(|session| !session.locks.is_empty());
        }
        let (mut position, mut endings) = (None, Vec::new());
        if task.row.status == TaskStatus::Waiting {
            position = store.queue_position(&queue_position_query(&task, &engines)).await?;
            reads += 1;
            if position.is_none() && reads < READS_MAX {
                continue;
            }
            let mut query = activity.endings_query();
            query.age_max = RATE_PERIOD;
            endings = store.endings(&query).await?;
        }
        let facts = TaskFacts {
            task: &task,
            activity: &activity,
            engines: &engines,
            paused: paused.iter().find(|paused| paused.queue == task.row.queue),
            position: position.as_ref(),
            endings: &endings,
            table_locks: &table_locks,
        };
        let reasons = reasons(&facts);
        return Ok(Some(Explanation { task, at: activity.now, reasons }));
    }
}
