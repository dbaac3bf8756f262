//! Tasks and attempts as stores return them.

use jiff::Timestamp;
use serde::Serialize;

use super::{ExecutionStatus, TaskId, TaskStatus};
use crate::attempt::TaskError;
use crate::cancel::CancelRow;
use crate::json::Json;
use crate::progress::ProgressRow;

/// A query for a page of tasks, newest first.
#[derive(Debug, Clone, Default)]
pub struct TaskListQuery {
    /// Only tasks in this status.
    pub status: Option<TaskStatus>,
    /// Only tasks of this class.
    pub class: Option<String>,
    /// Only tasks older than this one: the last row of the previous page.
    pub before: Option<TaskId>,
    /// The most to return.
    pub limit: u32,
}

/// The current state of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskRow {
    /// The task.
    pub id: TaskId,
    /// Its status.
    pub status: TaskStatus,
    /// Its class.
    pub class: String,
    /// Its queue.
    pub queue: String,
    /// Its priority.
    pub priority: i32,
    /// When it was created.
    pub created_at: Timestamp,
    /// The earliest time of its next attempt.
    pub scheduled_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// How many attempts have begun or been claimed.
    pub attempts: i32,
    /// How many retries have been used.
    pub retry_number: i32,
    /// The engine that holds it, or that ended it.
    pub instance: Option<String>,
    /// The last error, if its last attempt failed.
    ///
    /// It is `None` after a snooze.
    pub error: Option<TaskError>,
    /// Whether it waits for tasks that it depends on.
    pub is_blocked: bool,
}

/// A task with everything that is recorded about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskDetails {
    /// The task.
    #[serde(flatten)]
    pub row: TaskRow,
    /// Its parameters.
    pub parameters: Json,
    /// Its context.
    pub context: Json,
    /// Its attempts, oldest first.
    pub executions: Vec<ExecutionRow>,
    /// Whether a cancel request for the running attempt is pending.
    pub cancel_requested: bool,
    /// Results that arrived after their attempt had ended.
    ///
    /// They change nothing.
    pub late_results: Vec<LateResult>,
    /// Shared by all tasks of its flow.
    pub correlation_id: String,
    /// The task that created it, if one did.
    pub parent_id: Option<TaskId>,
}

/// One attempt, ended or running.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExecutionRow {
    /// Its number.
    pub attempt: i32,
    /// Its retry number.
    pub retry_number: i32,
    /// `running`, `success`, `failure`, `snoozed` or `cancelled`.
    pub status: ExecutionStatus,
    /// The engine.
    pub instance: Option<String>,
    /// The worker.
    pub worker: Option<i32>,
    /// When it began; `None` if it never began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub stopped_at: Option<Timestamp>,
    /// The result of a success.
    pub result: Option<Json>,
    /// The error of a failure, or the reason of a snooze.
    pub error: Option<TaskError>,
    /// The status that it ended the task with.
    pub ends_task: Option<TaskStatus>,
    /// The earliest time of the next attempt.
    pub retry_at: Option<Timestamp>,
    /// The progress it last reported.
    pub progress: Option<ProgressRow>,
    /// How many lines it logged, dropped ones included.
    pub log_lines: i32,
    /// The cancel request, and how the attempt responded.
    pub cancel: Option<CancelRow>,
}

/// A result that arrived after its attempt had ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LateResult {
    /// Which attempt.
    pub attempt: i32,
    /// When the result arrived.
    pub arrived_at: Timestamp,
    /// When the attempt ended.
    pub ended_at: Timestamp,
    /// The result that was discarded.
    pub result: Option<Json>,
    /// The error that was discarded.
    pub error: Option<TaskError>,
}

/// A task as it was created: for tests.
#[derive(Debug, Clone, PartialEq)]
pub struct CreatedTask {
    /// Its id.
    pub id: TaskId,
    /// Its class.
    pub class: String,
    /// Its parameters.
    pub parameters: Json,
    /// Its context.
    pub context: Json,
    /// Its queue.
    pub queue: String,
    /// Its priority.
    pub priority: i32,
    /// The earliest time it may run.
    pub due_at: Timestamp,
    /// When it was created.
    pub created_at: Timestamp,
}
