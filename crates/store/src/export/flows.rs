//! What a file contains about flows: the flows, what tasks depend on, and which tasks were
//! retried although others depend on them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use task_engine_core::dependency::DependencyCondition;

use super::{SuspendedRecord, TaskRecord};

/// A flow that was created as such.
///
/// After an import into a store that knows its correlation id, the row of that store stays as it
/// is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // As in [`task_engine_core::dependency::FlowRow`].
pub struct FlowRecord {
    pub correlation_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub created_at: Timestamp,
}

/// A task that another one depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DependencyRecord {
    /// Its id.
    ///
    /// If the task is not in the file, it counts as removed.
    pub on: i64,
    /// When the dependent task may start.
    pub condition: DependencyCondition,
}

impl FlowRecord {
    /// Checks what a store does not check.
    pub(super) fn check(&self) -> Result<(), String> {
        if (1..=200).contains(&self.correlation_id.len()) {
            return Ok(());
        }
        Err(format!(
            "a flow has a correlation id of 1 to 200 bytes, not {}",
            self.correlation_id.len()
        ))
    }
}

impl TaskRecord {
    /// Checks what it depends on.
    pub(super) fn check_dependencies(&self) -> Result<(), String> {
        if let Some(two) = self.dependencies.windows(2).find(|two| two[0].on >= two[1].on) {
            return Err(format!("it depends on task {} after task {}", two[1].on, two[0].on));
        }
        let twice = |one: &&DependencyRecord| self.depends_on.binary_search(&one.on).is_ok();
        if let Some(one) = self.dependencies.iter().find(twice) {
            return Err(format!("it depends on task {} and has called it, too", one.on));
        }
        match self.reopened.iter().find(|attempt| !self.has_ended(**attempt)) {
            Some(attempt) => {
                Err(format!("it was retried after attempt {attempt}, which never was"))
            }
            None => Ok(()),
        }
    }

    /// Checks a task that waits for others before it starts.
    pub(super) fn check_blocked(&self, suspended: &SuspendedRecord) -> Result<(), String> {
        match suspended.watching {
            _ if self.waiting.is_none() => Err("it is blocked, but does not wait".to_owned()),
            Some(task) if self.dependencies.iter().any(|one| one.on == task) => Ok(()),
            Some(task) => Err(format!("it waits for task {task}, on which it does not depend")),
            None => Err("it is blocked, but waits for no task".to_owned()),
        }
    }
}
