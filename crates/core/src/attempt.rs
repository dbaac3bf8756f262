//! What can happen to an attempt, and what comes next: the one place where the
//! fate of a task is decided.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cancel::CancelResponse;
use crate::claim::ClaimId;
use crate::instance::InstanceId;
use crate::json::Json;
use crate::retry::{DELAY_MAX, RetryRule};
use crate::task::{TaskId, TaskStatus};

/// One attempt at a task. It ends exactly once: this pair is the primary key
/// of the record of its end, and so the fence against everything that is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The task.
    pub task_id: TaskId,
    /// 1 for the first attempt. Every claim consumes a number, so it only grows.
    pub attempt: i32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}, attempt {}", self.task_id, self.attempt)
    }
}

/// The error of an attempt, with the fields that the book gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskError {
    /// What kind of error: a Rust type, `Panic`, `Timeout`, or a name below.
    pub exception: String,
    /// The message, with its causes.
    pub message: String,
    /// Where it happened, innermost first; may be empty.
    #[serde(default)]
    pub backtrace: Vec<String>,
}

impl TaskError {
    /// The engine of the attempt died, or was declared dead.
    pub const INSTANCE_LOST: &'static str = "InstanceLost";
    /// The engine stopped before the attempt ended, and gave the task back.
    pub const ENGINE_STOPPED: &'static str = "EngineStopped";
    /// The task was claimed, but its attempt never began.
    pub const NEVER_STARTED: &'static str = "NeverStarted";
    /// Somebody cancelled the task.
    pub const CANCELLED: &'static str = "Cancelled";
    /// The attempt was to complete its task inside a transaction, and returned
    /// without a commit.
    pub const NOT_COMMITTED: &'static str = "NotCommitted";
    /// The stored task cannot be read, so its code was never called.
    pub const UNREADABLE_TASK: &'static str = "UnreadableTask";
    /// The attempt postponed its task. Not a failure, although it is stored in
    /// the place of one: see [`ExecutionStatus::Snoozed`](crate::task::ExecutionStatus::Snoozed).
    pub const SNOOZED: &'static str = "Snoozed";

    /// An error without a backtrace.
    #[must_use]
    pub fn new(exception: impl Into<String>, message: impl Into<String>) -> Self {
        Self { exception: exception.into(), message: message.into(), backtrace: Vec::new() }
    }

    /// The same with these lines as its backtrace.
    #[must_use]
    pub fn with_backtrace(mut self, lines: Vec<String>) -> Self {
        self.backtrace = lines;
        self
    }

    /// What a store can keep: no NUL, and not longer than a page of text.
    #[must_use]
    pub fn storable(mut self) -> Self {
        const MESSAGE_BYTES_MAX: usize = 16 * 1024;
        const FRAMES_MAX: usize = 100;
        self.exception = clean(&self.exception, 1024);
        self.message = clean(&self.message, MESSAGE_BYTES_MAX);
        self.backtrace.truncate(FRAMES_MAX);
        for frame in &mut self.backtrace {
            *frame = clean(frame, 1024);
        }
        self
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.exception, self.message)
    }
}

impl std::error::Error for TaskError {}

/// Everything that may happen to an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The task did its work.
    Success(Json),
    /// The task failed: an error, a panic, a timeout, parameters that do not
    /// decode. The rule decides about a retry, unless the error has its own idea.
    Failure(TaskError, RetryAdvice),
    /// Somebody asked for the task to be cancelled, and it was.
    Cancelled(TaskError),
    /// Not the task's doing: given back, at no cost.
    Released(TaskError),
    /// The attempt postponed its task by this time. No retry is used.
    Snoozed(TaskError, Duration),
    /// The engine died. A failure like any other, so that a task that kills
    /// its engine comes to an end.
    Lost(TaskError),
}

/// What an error says about a retry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RetryAdvice {
    /// Nothing: the rule decides.
    #[default]
    ByRule,
    /// This error must not be retried.
    NoRetry,
    /// Retry after this wait, if the rule still allows a retry.
    RetryAfter(Duration),
}

/// What comes after the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextState {
    /// The task has come to its end, in this status.
    End(TaskStatus),
    /// The task waits for its next attempt.
    Wait {
        /// How long, by the database's clock.
        after: Duration,
        /// The retry number of the next attempt.
        retry_number: u32,
    },
}

/// The fate of a task after an attempt. `chance` is for the rule's jitter.
#[must_use]
pub fn transition(
    outcome: &Outcome,
    rule: &RetryRule,
    retry_number: u32,
    chance: f64,
) -> NextState {
    let wait = |after| NextState::Wait { after, retry_number: retry_number.saturating_add(1) };
    let failed = NextState::End(TaskStatus::Failed);
    match outcome {
        Outcome::Success(_) => NextState::End(TaskStatus::Stopped),
        Outcome::Cancelled(_) => NextState::End(TaskStatus::Cancelled),
        Outcome::Released(_) => NextState::Wait { after: Duration::ZERO, retry_number },
        Outcome::Snoozed(_, time) => {
            NextState::Wait { after: (*time).min(DELAY_MAX), retry_number }
        }
        Outcome::Failure(_, RetryAdvice::NoRetry) => failed,
        Outcome::Failure(_, RetryAdvice::RetryAfter(delay)) if retry_number < rule.maximum => {
            wait((*delay).min(DELAY_MAX))
        }
        Outcome::Failure(_, RetryAdvice::RetryAfter(_)) => failed,
        Outcome::Failure(_, RetryAdvice::ByRule) | Outcome::Lost(_) => {
            rule.delay(retry_number, chance).map_or(failed, wait)
        }
    }
}

/// The end of an attempt, decided, ready to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// Which attempt.
    pub id: AttemptId,
    /// Its retry number.
    pub retry_number: u32,
    /// The claim that it came with.
    pub claim_id: ClaimId,
    /// The engine that held it.
    pub instance_id: InstanceId,
    /// When it ran; `None` if it never began.
    pub ran: Option<Ran>,
    /// The result of a success.
    pub result: Option<Json>,
    /// The error of everything else.
    pub error: Option<TaskError>,
    /// What comes next.
    pub next: NextState,
    /// How its code took it, if it was told that somebody wants it cancelled.
    pub told: Option<CancelResponse>,
}

/// When an attempt ran, on the engine's own steady clock. Stores turn it into
/// times of the database's clock: only durations cross the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// The worker that ran it, if the writer of its end knows.
    pub worker: Option<i32>,
    /// How long it took.
    pub lasted: Duration,
    /// When it ended.
    pub ended: Instant,
}

impl Ending {
    /// Splits an outcome into what is written about it.
    #[must_use]
    pub fn parts(outcome: Outcome) -> (Option<Json>, Option<TaskError>) {
        match outcome {
            Outcome::Success(result) => (Some(result), None),
            Outcome::Failure(error, _)
            | Outcome::Cancelled(error)
            | Outcome::Released(error)
            | Outcome::Snoozed(error, _)
            | Outcome::Lost(error) => (None, Some(error.storable())),
        }
    }
}

/// Cuts at a character boundary, and shows NUL, which no `jsonb` can hold.
pub fn clean(text: &str, bytes_max: usize) -> String {
    let text = text.replace('\0', "\u{2400}");
    if text.len() <= bytes_max {
        return text;
    }
    let cut = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}… ({} bytes in all)", &text[..cut], text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> TaskError {
        TaskError::new("E", "m")
    }

    fn wait(secs: u64, retry_number: u32) -> NextState {
        NextState::Wait { after: Duration::from_secs(secs), retry_number }
    }

    #[test]
    fn the_transition_table() {
        use Outcome::*;
        use RetryAdvice::*;
        let rule = RetryRule::times(3);
        let in_5s = RetryAfter(Duration::from_secs(5));
        let stopped = NextState::End(TaskStatus::Stopped);
        let failed = NextState::End(TaskStatus::Failed);
        let cancelled = NextState::End(TaskStatus::Cancelled);
        for (outcome, retry_number, next) in [
            (Success(Json::null()), 0, stopped),
            (Success(Json::null()), 99, stopped),
            (Failure(error(), ByRule), 0, wait(60, 1)),
            (Failure(error(), ByRule), 2, wait(240, 3)),
            (Failure(error(), ByRule), 3, failed),
            (Failure(error(), NoRetry), 0, failed),
            (Failure(error(), in_5s), 2, wait(5, 3)),
            (Failure(error(), in_5s), 3, failed),
            (Failure(error(), RetryAfter(Duration::MAX)), 0, wait(366 * 86_400, 1)),
            (Lost(error()), 0, wait(60, 1)),
            (Lost(error()), 3, failed),
            (Cancelled(error()), 0, cancelled),
            (Released(error()), 0, wait(0, 0)),
            (Released(error()), 3, wait(0, 3)),
            (Snoozed(error(), Duration::from_secs(5)), 0, wait(5, 0)),
            (Snoozed(error(), Duration::from_secs(5)), 99, wait(5, 99)),
            (Snoozed(error(), Duration::MAX), 1, wait(366 * 86_400, 1)),
        ] {
            assert_eq!(transition(&outcome, &rule, retry_number, 0.0), next, "{outcome:?}");
        }
    }

    #[test]
    fn a_crash_of_a_class_that_must_not_be_retried_ends_it() {
        let next = transition(&Outcome::Lost(error()), &RetryRule::never(), 0, 0.0);
        assert_eq!(next, NextState::End(TaskStatus::Failed));
    }

    #[test]
    fn an_error_is_made_storable() {
        let error = TaskError::new("E", format!("a\0b{}", "é".repeat(20_000))).storable();
        assert!(error.message.starts_with("a\u{2400}bé"));
        assert!(error.message.len() < 17_000);
        assert!(error.message.ends_with("bytes in all)"), "{}", error.message);
    }
}
