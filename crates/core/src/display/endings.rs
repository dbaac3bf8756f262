//! How attempts end, in words.

use super::span;
use crate::attempt::NextState;
use crate::recovery::ReclaimedAttempt;
use crate::task::{ExecutionRow, ExecutionStatus, TaskStatus};

/// What an attempt came to, and what that meant for its task.
#[must_use]
pub fn outcome_text(execution: &ExecutionRow) -> String {
    if execution.status == ExecutionStatus::Cancelled {
        return "cancelled while it waited".to_owned();
    }
    let word = execution.status.as_str();
    let consequence = match execution.ends_task {
        Some(TaskStatus::Failed) => ", the last: the task was given up",
        Some(TaskStatus::Cancelled) => ", the task was cancelled",
        _ => "",
    };
    if execution.retry_number > 0 {
        format!("{word} (retry {}){consequence}", execution.retry_number)
    } else {
        format!("{word}{consequence}")
    }
}

/// What becomes of a task that was taken back from an engine that is gone.
#[must_use]
pub fn next_state_text(task: &ReclaimedAttempt) -> String {
    match task.next {
        NextState::Wait { after, .. } if after.is_zero() => {
            "waits again, and is due now".to_owned()
        }
        NextState::Wait { after, retry_number } => {
            format!("will be retried in {} (retry {retry_number})", span(after))
        }
        NextState::End(TaskStatus::Cancelled) => "was to be cancelled, and is".to_owned(),
        NextState::End(_) => "has failed: its rule allows no further retry".to_owned(),
    }
}
