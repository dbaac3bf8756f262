//! Decides how an attempt can end ([`AttemptEnd`]) and what follows ([`decide_end`]).

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cancel::{CancelReaction, CancelResponse};
use crate::claim::ClaimId;
use crate::instance::InstanceId;
use crate::json::Json;
use crate::retry::{DELAY_MAX, RetryRule};
use crate::task::{TaskId, TaskStatus};

/// One attempt at a task.
///
/// It ends exactly once: this pair is the primary key of the record of its end, so a late result
/// cannot replace it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The task.
    pub task_id: TaskId,
    /// 1 for the first attempt.
    ///
    /// Every claim consumes a number, so it only grows.
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
    /// The engine stopped, or was declared lost, before the attempt ended, and released the
    /// task.
    pub const ENGINE_STOPPED: &'static str = "EngineStopped";
    /// The task was claimed, but its attempt never began.
    pub const NEVER_STARTED: &'static str = "NeverStarted";
    /// A user cancelled the task.
    pub const CANCELLED: &'static str = "Cancelled";
    /// The code called `complete_in` and returned without a commit.
    pub const NOT_COMMITTED: &'static str = "NotCommitted";
    /// The stored task cannot be read, so its code was never called.
    pub const UNREADABLE_TASK: &'static str = "UnreadableTask";
    /// The code exceeded the time limit of its class.
    pub const TIMEOUT: &'static str = "Timeout";
    /// The code panicked.
    pub const PANIC: &'static str = "Panic";
    /// The result cannot be encoded, or the store refuses it.
    pub const RESULT_NOT_STORABLE: &'static str = "ResultNotStorable";
    /// The attempt postponed its task.
    ///
    /// This is no failure, although it is stored in the place of one: see
    /// [`ExecutionStatus::Snoozed`](crate::task::ExecutionStatus::Snoozed).
    pub const SNOOZED: &'static str = "Snoozed";
    /// A task that this one depends on did not succeed, so this one was cancelled.
    pub const DEPENDENCY_FAILED: &'static str = "DependencyFailed";
    /// The task runs only after a failure of others, and they succeeded.
    pub const NOT_NEEDED: &'static str = "NotNeeded";

    /// Creates an error without a backtrace.
    #[must_use]
    pub fn new(exception: impl Into<String>, message: impl Into<String>) -> Self {
        Self { exception: exception.into(), message: message.into(), backtrace: Vec::new() }
    }

    /// Replaces the backtrace with these lines.
    #[must_use]
    pub fn with_backtrace(mut self, lines: Vec<String>) -> Self {
        self.backtrace = lines;
        self
    }

    /// Returns the error as a store can keep it: without NUL, and with a limited length.
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

/// The end of an attempt.
///
/// The list is closed: whatever happens to an attempt is one of these, and [`decide_end`] alone
/// says what follows.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptEnd {
    /// The code returned a result.
    Success(Json),
    /// The code returned a result that cannot be encoded, or that the store refuses.
    ///
    /// The work was done: another attempt would repeat its effects, so the task fails without a
    /// retry.
    ResultNotStorable(TaskError),
    /// The code returned an error, or the parameters do not decode.
    Failure(TaskError, RetryAdvice),
    /// The code panicked.
    Panic(TaskError),
    /// The code exceeded the time limit of its class.
    Timeout(TaskError),
    /// The code called `complete_in`, and its transaction was not committed.
    NotCommitted(TaskError),
    /// The code postponed the task by this time.
    ///
    /// No retry is used.
    Snoozed(TaskError, Duration),
    /// A user requested the cancellation of the task, and the attempt obeyed or
    /// was dropped.
    Cancelled(TaskError),
    /// The engine stopped first.
    ///
    /// The task waits again, and no retry is used.
    Released(TaskError),
    /// The task was claimed, but the attempt never started.
    ///
    /// No retry is used.
    NeverStarted(TaskError),
    /// The stored task cannot be read.
    ///
    /// Another attempt would read the same, so the task fails without a retry.
    Unreadable(TaskError),
    /// The engine died.
    ///
    /// Counts as a failure, so that a task that kills its engine ends after its last retry.
    Lost(TaskError),
}

impl AttemptEnd {
    /// Creates the end of an attempt that took longer than the time limit of its class.
    #[must_use]
    pub fn timeout(limit: Duration) -> Self {
        Self::Timeout(TaskError::new(TaskError::TIMEOUT, format!("not finished after {limit:?}")))
    }

    /// Creates the end of an attempt whose result cannot be encoded, or is refused by the store.
    #[must_use]
    pub fn result_not_storable(why: impl fmt::Display) -> Self {
        let message = format!("the result cannot be stored: {why}");
        Self::ResultNotStorable(TaskError::new(TaskError::RESULT_NOT_STORABLE, message))
    }

    /// Creates the end of an attempt that called `complete_in` and committed nothing.
    #[must_use]
    pub fn not_committed() -> Self {
        let message = "complete_in was called, but its transaction was not committed, \
            so the attempt has failed; call complete_in last, return its error, and commit";
        Self::NotCommitted(TaskError::new(TaskError::NOT_COMMITTED, message))
    }

    /// Creates the end of an attempt whose engine stopped before the code had finished.
    #[must_use]
    pub fn released() -> Self {
        let message = "the engine stopped before the task had finished";
        Self::Released(TaskError::new(TaskError::ENGINE_STOPPED, message))
    }

    /// The engine was declared lost before the code had finished.
    fn released_when_lost() -> Self {
        let message = "the engine was declared lost before the task had finished";
        Self::Released(TaskError::new(TaskError::ENGINE_STOPPED, message))
    }

    /// Creates the end of an attempt that never started.
    #[must_use]
    pub fn never_started(why: impl Into<String>) -> Self {
        Self::NeverStarted(TaskError::new(TaskError::NEVER_STARTED, why))
    }

    /// Creates the end of an attempt whose stored task cannot be read.
    #[must_use]
    pub fn unreadable(id: TaskId, why: impl fmt::Display) -> Self {
        let message = format!("task {id} cannot be read: {why}");
        Self::Unreadable(TaskError::new(TaskError::UNREADABLE_TASK, message))
    }

    fn cancelled(message: impl fmt::Display) -> Self {
        let message = format!("cancelled while it ran; {message}");
        Self::Cancelled(TaskError::new(TaskError::CANCELLED, message))
    }

    /// Returns how an attempt ends whose code returned `code`, or was dropped (`None`).
    ///
    /// The second value is how the code reacted to a cancel request, if it got one.
    ///
    /// - A result counts, whatever else happened meanwhile.
    /// - Then the time limit counts, unless the whole process is forced to stop.
    /// - An error after a cancel request means that the code obeyed it.
    /// - An error after the engine was stopped or declared lost means that the
    ///   code gave up because of that. A snooze and a panic stay what they are.
    #[must_use]
    pub fn of_code(code: Option<Self>, during: &Interruption) -> (Self, Option<CancelReaction>) {
        use InterruptCause::{CancelRequested, EngineStopped, InstanceLost};
        let did_its_work = matches!(code, Some(Self::Success(_) | Self::ResultNotStorable(_)));
        let reaction = (during.cause == Some(CancelRequested)).then_some(match code {
            Some(_) if did_its_work => CancelReaction::Ignored,
            Some(_) => CancelReaction::Acknowledged,
            None => CancelReaction::Killed,
        });
        let time_limit = during.timed_out_after.filter(|_| !during.forced_stop);
        let end = match (code, time_limit, during.cause) {
            (Some(code), _, _) if did_its_work => code,
            (_, Some(limit), _) => Self::timeout(limit),
            (Some(Self::Failure(error, _)), _, Some(CancelRequested)) => {
                match Self::cancelled(format_args!("its code returned {error}")) {
                    Self::Cancelled(end) => Self::Cancelled(end.with_backtrace(error.backtrace)),
                    end => end,
                }
            }
            (Some(Self::Snoozed(error, _)), _, Some(CancelRequested)) => {
                Self::cancelled(format_args!("its code returned {error}"))
            }
            (Some(Self::Failure(..)) | None, _, Some(InstanceLost)) => Self::released_when_lost(),
            (Some(Self::Failure(..)), _, Some(EngineStopped)) => Self::released(),
            (Some(code), _, _) => code,
            (None, _, Some(CancelRequested)) if during.forced_stop => {
                Self::cancelled("its engine stopped before its code had ended")
            }
            (None, _, Some(CancelRequested)) => Self::cancelled(format_args!(
                "its code did not end within {:?}, and was dropped",
                during.grace
            )),
            (None, _, _) => Self::released(),
        };
        (end, reaction)
    }

    /// Returns whether the code of the attempt may have run.
    #[must_use]
    pub fn has_started(&self) -> bool {
        !matches!(self, Self::NeverStarted(_))
    }

    /// Returns the error that is recorded; `None` for a success.
    #[must_use]
    pub fn error(&self) -> Option<&TaskError> {
        match self {
            Self::Success(_) => None,
            Self::ResultNotStorable(error)
            | Self::Failure(error, _)
            | Self::Panic(error)
            | Self::Timeout(error)
            | Self::NotCommitted(error)
            | Self::Snoozed(error, _)
            | Self::Cancelled(error)
            | Self::Released(error)
            | Self::NeverStarted(error)
            | Self::Unreadable(error)
            | Self::Lost(error) => Some(error),
        }
    }

    /// Returns the recorded error, so that it can be changed.
    pub fn error_mut(&mut self) -> Option<&mut TaskError> {
        match self {
            Self::Success(_) => None,
            Self::ResultNotStorable(error)
            | Self::Failure(error, _)
            | Self::Panic(error)
            | Self::Timeout(error)
            | Self::NotCommitted(error)
            | Self::Snoozed(error, _)
            | Self::Cancelled(error)
            | Self::Released(error)
            | Self::NeverStarted(error)
            | Self::Unreadable(error)
            | Self::Lost(error) => Some(error),
        }
    }

    /// Returns the result and the error that are recorded: one of them.
    #[must_use]
    pub fn into_parts(mut self) -> (Option<Json>, Option<TaskError>) {
        if let Some(error) = self.error_mut() {
            let error = std::mem::replace(error, TaskError::new("", ""));
            return (None, Some(error.storable()));
        }
        match self {
            Self::Success(result) => (Some(result), None),
            _ => (None, None),
        }
    }
}

/// The events that happened while the code of an attempt ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interruption {
    /// Why the engine asked the code to end, if it did.
    pub cause: Option<InterruptCause>,
    /// The time limit of the class, if it was exceeded.
    pub timed_out_after: Option<Duration>,
    /// How long the code had to end by itself before it was dropped.
    pub grace: Duration,
    /// Whether the whole engine is forced to end now.
    pub forced_stop: bool,
}

/// The reason why an engine asks the code of an attempt to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptCause {
    /// A user requested the cancellation of the task.
    CancelRequested,
    /// The engine is forced to stop.
    EngineStopped,
    /// The engine was declared lost, so the result no longer counts.
    InstanceLost,
}

/// The advice of an error about a retry.
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

/// The state of a task after the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextState {
    /// The task has ended, in this status.
    End(TaskStatus),
    /// The task waits for its next attempt.
    Wait {
        /// How long, by the database's clock.
        after: Duration,
        /// The retry number of the next attempt.
        retry_number: u32,
    },
}

impl NextState {
    /// Returns what follows if a cancel request for the attempt is stored when its end is recorded.
    ///
    /// A task that would wait is cancelled instead.
    ///
    /// This is the only part of the decision that a store executes by itself,
    /// because only its transaction sees the request. `record.sql` of PostgreSQL
    /// states the same rule in SQL.
    #[must_use]
    pub fn with_cancel_request(self) -> Self {
        match self {
            Self::Wait { .. } => Self::End(TaskStatus::Cancelled),
            end @ Self::End(_) => end,
        }
    }
}

/// A function of an application that says after which wait an error is retried.
pub type RetryDelayFn<'a> = &'a dyn Fn(&TaskError) -> Option<Duration>;

/// The rule, and the function of the application, that decide about the retry of one attempt.
#[derive(Clone, Copy)]
pub struct RetryPolicy<'a> {
    /// The rule of the class, with what the task overrides.
    pub rule: RetryRule,
    /// Replaces the rule for errors without advice: the delay before the next
    /// attempt, or `None` for no retry.
    pub function: Option<RetryDelayFn<'a>>,
    /// A random number from 0 to 1, for the jitter of the rule.
    pub chance: f64,
}

impl fmt::Debug for RetryPolicy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, function, chance } = self;
        let has_function = function.is_some();
        write!(f, "RetryPolicy {{ {rule:?}, function: {has_function}, chance: {chance} }}")
    }
}

impl RetryPolicy<'_> {
    /// Creates a rule alone, without jitter.
    #[must_use]
    pub fn of(rule: RetryRule) -> Self {
        Self { rule, function: None, chance: 0.0 }
    }
}

/// Decides what follows the end of an attempt.
///
/// Engines and recovery call it; stores execute the decision, with the one exception of
/// [`NextState::with_cancel_request`].
#[must_use]
pub fn decide_end(
    end: &AttemptEnd,
    attempt: i32,
    retry_number: u32,
    policy: &RetryPolicy<'_>,
) -> NextState {
    let rule = policy.rule;
    let failed = NextState::End(TaskStatus::Failed);
    let retry = |delay: Option<Duration>| match delay {
        Some(delay) => NextState::Wait {
            after: delay.min(DELAY_MAX),
            retry_number: retry_number.saturating_add(1),
        },
        None => failed,
    };
    let next = match end {
        AttemptEnd::Success(_) => NextState::End(TaskStatus::Stopped),
        AttemptEnd::Cancelled(_) => NextState::End(TaskStatus::Cancelled),
        AttemptEnd::ResultNotStorable(_)
        | AttemptEnd::Unreadable(_)
        | AttemptEnd::Failure(_, RetryAdvice::NoRetry) => failed,
        AttemptEnd::Released(_) | AttemptEnd::NeverStarted(_) => {
            NextState::Wait { after: Duration::ZERO, retry_number }
        }
        AttemptEnd::Snoozed(_, time) => {
            NextState::Wait { after: (*time).min(DELAY_MAX), retry_number }
        }
        AttemptEnd::Failure(_, RetryAdvice::RetryAfter(delay)) => {
            retry((retry_number < rule.maximum).then_some(*delay))
        }
        AttemptEnd::Failure(error, RetryAdvice::ByRule)
        | AttemptEnd::Panic(error)
        | AttemptEnd::Timeout(error)
        | AttemptEnd::NotCommitted(error) => retry(match policy.function {
            Some(function) => function(error),
            None => rule.delay(retry_number, policy.chance),
        }),
        AttemptEnd::Lost(_) => retry(rule.delay(retry_number, policy.chance)),
    };
    match next {
        // There is no number for another attempt.
        NextState::Wait { .. } if attempt == i32::MAX => failed,
        next => next,
    }
}

/// The end of an attempt, decided, ready to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptRecord {
    /// Which attempt.
    pub id: AttemptId,
    /// Its retry number.
    pub retry_number: u32,
    /// The claim that it belongs to.
    pub claim_id: ClaimId,
    /// The engine that held it.
    pub instance_id: InstanceId,
    /// When it ran; `None` if it never started.
    pub ran: Option<RunSpan>,
    /// The result of a success.
    pub result: Option<Json>,
    /// The error of everything else.
    pub error: Option<TaskError>,
    /// What follows.
    pub next: NextState,
    /// How its code reacted to a cancel request, if it got one.
    pub cancel_response: Option<CancelResponse>,
}

/// The time span in which an attempt ran, on the engine's monotonic clock.
///
/// Stores convert it to the database's clock: only durations are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunSpan {
    /// The worker that ran it; unknown to recovery.
    pub worker: Option<i32>,
    /// How long it took.
    pub lasted: Duration,
    /// When it ended.
    pub ended: Instant,
}

impl AttemptRecord {
    /// Replaces a result that the store refuses.
    pub fn refuse_result(&mut self, why: impl fmt::Display) {
        let end = AttemptEnd::result_not_storable(why);
        let policy = RetryPolicy::of(RetryRule::never());
        self.next = decide_end(&end, self.id.attempt, self.retry_number, &policy);
        (self.result, self.error) = end.into_parts();
    }
}

/// Cuts at a character boundary, and replaces NUL, which `jsonb` cannot hold.
pub fn clean(text: &str, bytes_max: usize) -> String {
    let text = text.replace('\0', "\u{2400}");
    if text.len() <= bytes_max {
        return text;
    }
    let cut = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}… ({} bytes in all)", &text[..cut], text.len())
}

#[cfg(test)]
mod tests;
