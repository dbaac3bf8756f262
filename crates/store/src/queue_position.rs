//! The number of tasks that are claimed before a waiting task.

use task_engine_core::queue::BoundedCount;
use task_engine_core::task::TaskId;

use crate::lock::BlockingSession;

/// A query for the tasks that count as being before another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePositionQuery {
    /// The task.
    pub id: TaskId,
    /// The tasks of these queues.
    pub queues: Vec<String>,
    /// The tasks of these classes.
    pub classes: Vec<String>,
}

/// The tasks before a waiting task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePosition {
    /// Due tasks that are claimed before it, those of paused queues left out.
    pub tasks: BoundedCount,
    /// The session that has locked it, if known.
    pub locked_by: Option<BlockingSession>,
}
