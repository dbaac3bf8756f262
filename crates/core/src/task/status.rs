//! The status of a task and of one attempt.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::attempt::TaskError;
use crate::parse_error::ParseError;

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskStatus {
    /// The task runs as soon as it is due and a worker is free.
    Waiting,
    /// An engine holds the task.
    Running,
    /// The task ended successfully; filters accept the word `succeeded`, too.
    #[serde(alias = "succeeded")]
    Stopped,
    /// The task failed and is not retried any more.
    Failed,
    /// It was cancelled.
    Cancelled,
}

enum_tokens!(TaskStatus {
    Waiting = "waiting", Running = "running", Stopped = "stopped", Failed = "failed",
    Cancelled = "cancelled",
});

impl TaskStatus {
    /// An alias of `stopped` in input: the word of other systems.
    pub const SUCCEEDED: &'static str = "succeeded";

    /// Returns the word for readers who are new to it: `stopped (succeeded)`.
    #[must_use]
    pub fn explained(self) -> &'static str {
        match self {
            Self::Stopped => "stopped (succeeded)",
            other => other.as_str(),
        }
    }
}

impl FromStr for TaskStatus {
    type Err = ParseError;

    /// Also reads [`SUCCEEDED`](Self::SUCCEEDED).
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text == Self::SUCCEEDED {
            return Ok(Self::Stopped);
        }
        Self::from_token(text).ok_or_else(|| {
            ParseError(format!(
                "unknown status {text:?}; use waiting, running, stopped (or succeeded), failed or cancelled"
            ))
        })
    }
}

/// The status of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionStatus {
    /// It has not ended.
    Running,
    /// It succeeded.
    Success,
    /// It failed.
    Failure,
    /// It postponed its task.
    ///
    /// Neither a success nor a failure: no retry is used.
    Snoozed,
    /// The task was cancelled while it waited for this attempt, which never began.
    Cancelled,
}

enum_tokens!(ExecutionStatus {
    Running = "running", Success = "success", Failure = "failure", Snoozed = "snoozed",
    Cancelled = "cancelled",
});

impl ExecutionStatus {
    /// Returns the status of an attempt that has ended.
    ///
    /// If a task is cancelled while it snoozes, the attempt counts as any cancelled one.
    /// `was_held`: an engine had claimed it.
    #[must_use]
    pub fn of_ended(
        error: Option<&TaskError>,
        ends_task: Option<TaskStatus>,
        was_held: bool,
    ) -> Self {
        match error {
            None => Self::Success,
            Some(_) if !was_held && ends_task == Some(TaskStatus::Cancelled) => Self::Cancelled,
            Some(error) if ends_task.is_none() && error.exception == TaskError::SNOOZED => {
                Self::Snoozed
            }
            Some(_) => Self::Failure,
        }
    }
}
