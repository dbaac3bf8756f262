//! What an operator may change about a task: edit it while it waits, remove it
//! when it has ended, or have it done once more.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::json::Json;
use crate::secret::request;
use crate::task::{Due, InvalidTask, NewTask, TaskDetails, TaskStatus};

/// What is to be different about a task that waits. What is `None` stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Edit {
    /// Its parameters, all of them.
    pub parameters: Option<Json>,
    /// Its time.
    pub due: Option<Due>,
    /// Its priority.
    pub priority: Option<i32>,
    /// Its queue.
    pub queue: Option<String>,
}

/// What became of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditReport {
    /// It waited, and is changed. Its attempts and retries stay counted.
    Changed,
    /// It does not wait: it is in this status, and is as it was.
    NotWaiting(TaskStatus),
    /// There is no such task.
    NotFound,
}

/// The outcome of a request to delete a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteReport {
    /// It had ended, and is deleted with everything recorded about it.
    Deleted,
    /// It has not ended, and stays.
    Open(TaskStatus),
    /// It has ended, but is still in use: by an engine whose batch it
    /// belongs to, or by the creation of a task with its key. Try again later.
    Busy,
    /// There is no such task.
    NotFound,
}

impl Edit {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The field of the context that says which task this one does once more.
const RERUN_OF: &str = "rerun_of";

/// What belongs to the old task alone: who created it, by which request, under
/// which span, what made it unique, and what the engine has counted.
const NOT_AGAIN: [&str; 6] = [
    "parent_id",
    "traceparent",
    "unique_key",
    "retry_number",
    request::CONTEXT_MARK,
    request::CONTEXT_CREATOR,
];

impl NewTask {
    /// A new task that does once more what this one was to do: due at once, in
    /// the same flow, with all retries, and with the old one's id in its context.
    pub fn rerun_of(old: &TaskDetails) -> Result<Self, InvalidTask> {
        let mut task = Self::new(old.row.class.clone(), old.parameters.clone())?
            .priority(old.row.priority)
            .queue(old.row.queue.clone())?;
        let mut context: BTreeMap<String, Box<RawValue>> = old.context.decode().unwrap_or_default();
        context.retain(|name, _| !NOT_AGAIN.contains(&name.as_str()));
        let wrong = |why| InvalidTask::Context { class: old.row.class.clone(), why };
        task.context = Json::encode(&context).map_err(wrong)?;
        task.add_context(RERUN_OF, &old.row.id)?;
        task.correlation(&old.correlation_id)
    }
}
