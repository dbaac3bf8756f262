//! Text about the end of an attempt.

use super::span;
use crate::attempt::NextState;
use crate::recovery::ReclaimedAttempt;
use crate::task::{ExecutionRow, ExecutionStatus, TaskStatus};

/// Returns how an attempt ended, and what that meant for its task.
#[must_use]
pub fn outcome_text(execution: &ExecutionRow) -> String {
    if execution.status == ExecutionStatus::Cancelled {
        return "cancelled while waiting".to_owned();
    }
    let word = execution.status.as_str();
    let consequence = match execution.ends_task {
        Some(TaskStatus::Failed) => "; the task failed",
        Some(TaskStatus::Cancelled) => "; the task was cancelled",
        _ => "",
    };
    if execution.retry_number > 0 {
        format!("{word} (retry {}){consequence}", execution.retry_number)
    } else {
        format!("{word}{consequence}")
    }
}

/// Returns what happens next to a task that was reclaimed from a dead engine.
#[must_use]
pub fn next_state_text(task: &ReclaimedAttempt) -> String {
    match task.next {
        NextState::Wait { after, .. } if after.is_zero() => "waits again and is due now".to_owned(),
        NextState::Wait { after, retry_number } => {
            format!("will be retried in {} (retry {retry_number})", span(after))
        }
        NextState::End(TaskStatus::Cancelled) => "is cancelled, as requested".to_owned(),
        NextState::End(_) => "has failed: no retries are left".to_owned(),
    }
}
