//! Changes of an operator: edit a waiting task, delete an ended one, run a task again.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::dependency::{DEPENDENT, FLOW_TASK};
use crate::json::Json;
use crate::secret::request;
use crate::step::{AWAITED, KEPT_STEPS, is_dependent};
use crate::task::{Due, InvalidTask, NewTask, TaskDetails, TaskStatus};

/// Changes of a waiting task.
///
/// A field that is `None` is left unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Edit {
    /// New parameters; they replace all of the old ones.
    pub parameters: Option<Json>,
    /// A new time.
    pub due: Option<Due>,
    /// A new priority.
    pub priority: Option<i32>,
    /// A new queue.
    pub queue: Option<String>,
}

/// The outcome of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditReport {
    /// The task was changed.
    ///
    /// Its attempts and retries stay counted.
    Changed,
    /// The task is in this status, not waiting, and was left unchanged.
    NotWaiting(TaskStatus),
    /// There is no such task.
    NotFound,
}

/// The outcome of a request to delete a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteReport {
    /// The ended task and its attempts were deleted.
    Deleted,
    /// The task has not ended and was not deleted.
    Open(TaskStatus),
    /// The task has ended but is locked: by an engine that records its batch, or by a creation with
    /// its unique key.
    ///
    /// Try again later.
    Busy,
    /// A task that has not succeeded depends on it, and may need its result.
    Needed,
    /// There is no such task.
    NotFound,
}

impl Edit {
    /// Returns whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The field of the context with the id of the task that this one runs again.
const RERUN_OF: &str = "rerun_of";

/// Fields of the context that belong to the old task only.
///
/// They are its creator, request, span, unique key and retries, the parent that waits for it, and
/// the task whose steps it kept.
const NOT_COPIED: [&str; 10] = [
    "parent_id",
    "traceparent",
    "unique_key",
    "retry_number",
    AWAITED,
    FLOW_TASK,
    DEPENDENT,
    KEPT_STEPS,
    request::CONTEXT_MARK,
    request::CONTEXT_CREATOR,
];

impl NewTask {
    /// Creates a new task with the class and parameters of an old one.
    ///
    /// It is due at once, in the same flow, has all retries, and has the old id in its context.
    pub fn rerun_of(old: &TaskDetails) -> Result<Self, InvalidTask> {
        let mut task = Self::new(old.row.class.clone(), old.parameters.clone())?
            .priority(old.row.priority)
            .queue(old.row.queue.clone())?;
        let mut context: BTreeMap<String, Box<RawValue>> = old.context.decode().unwrap_or_default();
        context.retain(|name, _| !NOT_COPIED.contains(&name.as_str()));
        let invalid = |why| InvalidTask::Context { class: old.row.class.clone(), why };
        task.context = Json::encode(&context).map_err(invalid)?;
        task.add_context(RERUN_OF, &old.row.id)?;
        task.correlation(&old.correlation_id)
    }

    /// Creates a new task like an old one, which keeps steps of the old one.
    ///
    /// Its first attempt loads them.
    ///
    /// It reads the results of the tasks that the old one depended on.
    pub fn rerun_with_steps_of(old: &TaskDetails) -> Result<Self, InvalidTask> {
        let mut task = Self::rerun_of(old)?;
        if is_dependent(&old.context) {
            task.add_context(DEPENDENT, &true)?;
        }
        task.add_context(KEPT_STEPS, &old.row.id)?;
        Ok(task)
    }
}
