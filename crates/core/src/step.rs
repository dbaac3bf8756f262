//! Durable tasks: recorded steps, sleeps, waits for signals, and awaited child tasks.
//!
//! A step is recorded once, under the key (task, name), and never changes. See "Durable
//! tasks" in ARCHITECTURE.md for the protocols.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::attempt::{AttemptId, AttemptRecord, TaskError};
use crate::claim::ClaimId;
use crate::dependency::DEPENDENT;
use crate::json::Json;
use crate::retry::RetryRule;
use crate::task::{NAME_BYTES_MAX, NewTask, TaskId, TaskStatus};

/// The most steps that a task may record.
pub const STEPS_MAX: usize = 1000;
/// The most bytes of the results of all steps of a task, because an attempt loads them all.
pub const STEPS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most children that one call may create.
pub const CHILDREN_MAX: usize = 10_000;

/// The field in the context of a task whose parent waits for its end.
pub const AWAITED: &str = "awaited";
/// The field in the context of a task that was created with the steps of another one.
pub const KEPT_STEPS: &str = "kept_steps";

/// The kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepKind {
    /// Code of the task that ran, with its result.
    Step,
    /// A sleep.
    ///
    /// It is recorded when it begins.
    Sleep,
    /// A wait for a signal.
    ///
    /// It is recorded when it begins.
    Wait,
    /// Child tasks that the task waits for.
    ///
    /// It is recorded when they are created.
    Call,
}

enum_tokens!(StepKind { Step = "step", Sleep = "sleep", Wait = "wait", Call = "call" });

/// The error of a name of a step or a signal that is too long, empty, or has control characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid name of a {what}: {name:?}; a name has 1 to 200 bytes, no control characters{rule}"
)]
pub struct InvalidStepName {
    what: &'static str,
    name: String,
    rule: &'static str,
}

/// Checks the name of a step.
///
/// `#` is reserved: the second step of the same name is `name#2`.
pub fn check_step_name(name: &str) -> Result<(), InvalidStepName> {
    if is_plain(name) && !name.contains('#') {
        return Ok(());
    }
    Err(invalid("step", name, ", and no `#`"))
}

/// Checks the name of a signal: the name of a step that waits for it, for example
/// `approved`, or `approved#2` for the second wait of that name.
pub fn check_signal_name(name: &str) -> Result<(), InvalidStepName> {
    let base = match name.split_once('#') {
        None => Some(name),
        Some((base, number)) => is_repetition(number).then_some(base),
    };
    if base.is_some_and(is_plain) {
        return Ok(());
    }
    Err(invalid(
        "signal",
        name,
        ", and `#` only before the number of a repeated wait, as in `approved#2`",
    ))
}

/// The number of a repeated name: from 2 on, as it is printed.
fn is_repetition(number: &str) -> bool {
    number.parse().is_ok_and(|n: u32| (2..1_000_000_000).contains(&n) && n.to_string() == number)
}

fn is_plain(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

fn invalid(what: &'static str, name: &str, rule: &'static str) -> InvalidStepName {
    InvalidStepName { what, name: name.chars().take(NAME_BYTES_MAX).collect(), rule }
}

/// Returns the name of the step that records the end of the children of a call.
#[must_use]
pub fn ended_name(call: &str) -> String {
    format!("{call}{ENDED}")
}

/// Returns the call whose end a step of this name records, if it does.
#[must_use]
pub fn call_of_ended(name: &str) -> Option<&str> {
    name.strip_suffix(ENDED)
}

const ENDED: &str = "#ended";

/// Returns the name of the `nth` step with this name in an attempt; the first has no number.
#[must_use]
pub fn numbered(name: &str, nth: u32) -> String {
    if nth <= 1 { name.to_owned() } else { format!("{name}#{nth}") }
}

/// A step that an attempt records.
#[derive(Debug, Clone, PartialEq)]
pub struct NewStep {
    /// The attempt.
    ///
    /// The step is refused if it has ended.
    pub id: AttemptId,
    /// The claim that the attempt belongs to.
    pub claim_id: ClaimId,
    /// Its name, with the number of a repetition.
    pub name: String,
    /// Its position among the steps of the task, from 1.
    pub number: u32,
    /// What it records.
    pub content: StepContent,
    /// How long it took, or zero.
    pub lasted: Duration,
}

/// The content that a step records.
#[derive(Debug, Clone, PartialEq)]
pub enum StepContent {
    /// The result of code.
    Value(Json),
    /// A sleep of this time, from the moment of the record.
    SleepFor(Duration),
    /// A sleep until a time.
    SleepUntil(Timestamp),
    /// A wait for the signal with the name of the step, at most for this time.
    Wait(Duration),
    /// The attempts that ended the children of a call, in the order of the children.
    ///
    /// The outcomes of the children are read from these attempts.
    ///
    /// Recorded as `name#ended`.
    ChildrenEnded(Vec<i32>),
}

impl StepContent {
    /// Returns its kind.
    #[must_use]
    pub fn kind(&self) -> StepKind {
        match self {
            Self::Value(_) => StepKind::Step,
            Self::SleepFor(_) | Self::SleepUntil(_) => StepKind::Sleep,
            Self::Wait(_) => StepKind::Wait,
            Self::ChildrenEnded(_) => StepKind::Call,
        }
    }

    /// Returns what is stored as its result.
    #[must_use]
    pub fn result(&self) -> Option<Cow<'_, Json>> {
        match self {
            Self::Value(result) => Some(Cow::Borrowed(result)),
            Self::ChildrenEnded(attempts) => Json::encode(attempts).ok().map(Cow::Owned),
            _ => None,
        }
    }
}

/// A step that creates child tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCall {
    /// The attempt.
    pub id: AttemptId,
    /// The claim that the attempt belongs to.
    pub claim_id: ClaimId,
    /// Its name, with the number of a repetition.
    pub name: String,
    /// Its position among the steps of the task, from 1.
    pub number: u32,
    /// The children, prepared for creation.
    pub children: Vec<NewTask>,
}

/// The outcome of a record of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutcome {
    /// It is recorded.
    Recorded {
        /// The time of the record, by the database's clock.
        now: Timestamp,
        /// The end of a sleep, or the deadline of a wait.
        until: Option<Timestamp>,
        /// The signal that a wait is for, if it has arrived before.
        signal: Option<SignalRow>,
        /// The children that were created.
        children: Vec<TaskId>,
    },
    /// A step with this name is recorded already: load the steps and use it.
    Exists,
    /// The attempt has ended, or its claim was reclaimed: nothing is recorded.
    AttemptOver,
}

/// A recorded step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRow {
    /// Its name.
    pub name: String,
    /// Its position among the steps of the task, from 1.
    pub number: u32,
    /// What it is.
    pub kind: StepKind,
    /// The attempt that recorded it.
    pub attempt: i32,
    /// The result of code; the ids of the children of a call.
    pub result: Option<Json>,
    /// The end of a sleep, the deadline of a wait.
    pub until: Option<Timestamp>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was recorded.
    pub recorded_at: Timestamp,
}

impl StepRow {
    /// Returns the children of a call.
    #[must_use]
    pub fn children(&self) -> Vec<TaskId> {
        match (&self.result, self.kind) {
            (Some(ids), StepKind::Call) => ids.decode().unwrap_or_default(),
            _ => Vec::new(),
        }
    }
}

/// A signal that was sent to a task, or the timeout of the wait for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SignalRow {
    /// Its name.
    pub name: String,
    /// Its payload; null for a timeout.
    pub payload: Json,
    /// When it was sent, or when the wait timed out.
    pub sent_at: Timestamp,
    /// Whether the wait for it timed out: it was not sent before that.
    pub timed_out: bool,
}

/// Everything that is recorded about a durable task.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TaskSteps {
    /// The time of the database.
    pub now: Timestamp,
    /// The steps, in the order of their numbers.
    pub steps: Vec<StepRow>,
    /// The signals, in the order of their times.
    pub signals: Vec<SignalRow>,
}

/// An attempt that ends because its task waits for a signal or for children.
#[derive(Debug, Clone, PartialEq)]
pub struct Suspension {
    /// The end of the attempt.
    ///
    /// Its task waits for at most the time in it.
    pub record: AttemptRecord,
    /// When the task is due if nothing wakes it; `None`: after the time in the record.
    pub until: Option<Timestamp>,
    /// The signals that wake the task.
    pub signals: Vec<String>,
    /// The first of the children whose ends wake the task, if it waits for children: those
    /// from this id on.
    pub children_from: Option<TaskId>,
}

/// The outcome of a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspendOutcome {
    /// The task waits.
    ///
    /// If it waits for children, this is the one that is watched.
    Suspended(Option<TaskId>),
    /// The attempt had been ended before.
    Late,
    /// Another transaction holds the task, for example one that sends a signal: ask again.
    Open,
}

/// The outcome of a wait whose deadline has passed.
#[derive(Debug, Clone, PartialEq)]
pub enum WaitOutcome {
    /// A signal, or the timeout, is recorded.
    Decided(SignalRow),
    /// The attempt has ended.
    AttemptOver,
    /// Another transaction holds the task, for example one that sends the signal: suspend.
    Open,
}

/// The task that receives a signal.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// # use task_engine::step::SignalTarget;
/// let by_key = SignalTarget::UniqueKey { class: "order".into(), key: "order 7".into() };
/// let by_id = SignalTarget::from(task_engine::TaskId(7));
/// # assert_eq!(by_id.to_string(), "task 7");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignalTarget {
    /// The task with this id.
    Id(TaskId),
    /// The last task of a class that was created with this unique key.
    UniqueKey {
        /// The class.
        class: String,
        /// The key.
        key: String,
    },
}

impl From<TaskId> for SignalTarget {
    fn from(id: TaskId) -> Self {
        Self::Id(id)
    }
}

impl fmt::Display for SignalTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "task {id}"),
            Self::UniqueKey { class, key } => {
                write!(f, "the task of class {class} with the key {key:?}")
            }
        }
    }
}

/// The outcome of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalStatus {
    /// The task was waiting for it, and continues.
    Delivered,
    /// The signal is kept until the task waits for it.
    Kept,
    /// Refused: a signal of this name was sent before.
    ///
    /// The first one counts.
    Duplicate,
    /// Refused: the wait for it has timed out.
    TimedOut,
    /// Refused: the task has ended.
    TaskEnded,
    /// Refused: there is no such task.
    NotFound,
}

enum_tokens!(SignalStatus {
    Delivered = "delivered", Kept = "kept", Duplicate = "duplicate", TimedOut = "timed_out",
    TaskEnded = "task_ended", NotFound = "not_found",
});

impl SignalStatus {
    /// Returns whether the signal is stored.
    #[must_use]
    pub fn is_accepted(self) -> bool {
        matches!(self, Self::Delivered | Self::Kept)
    }
}

/// The answer to a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalReport {
    /// The task; `None` if there is none.
    pub task_id: Option<TaskId>,
    /// What happened.
    pub status: SignalStatus,
}

/// The end of a child task.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildOutcome {
    /// The child.
    pub id: TaskId,
    /// The attempt that ended it; 0 if it has been removed.
    pub attempt: i32,
    /// Its status; `None` if it has been removed.
    pub status: Option<TaskStatus>,
    /// Its result, if it succeeded.
    pub result: Option<Json>,
    /// Its error, if it did not.
    pub error: Option<TaskError>,
}

/// Returns the retry number that decides about a failed attempt: retries begin anew after an
/// attempt that recorded a step.
#[must_use]
pub fn retry_number_after(progress: bool, retry_number: u32, rule: &RetryRule) -> u32 {
    if progress && rule.restart_after_progress { 0 } else { retry_number }
}

/// Returns whether the parent of a task with this context waits for its end.
///
/// Most contexts are `{}`, so this costs next to nothing.
#[must_use]
pub fn is_awaited(context: &Json) -> bool {
    has_field(context, AWAITED)
}

/// Returns whether a task with this context was created with recorded steps.
#[must_use]
pub fn has_kept_steps(context: &Json) -> bool {
    has_field(context, KEPT_STEPS)
}

/// Returns whether a task with this context depends on others.
#[must_use]
pub fn is_dependent(context: &Json) -> bool {
    has_field(context, DEPENDENT)
}

fn has_field(context: &Json, name: &str) -> bool {
    let text = context.as_str();
    text.len() > name.len()
        && text.contains(name)
        && context
            .decode::<serde_json::Map<String, serde_json::Value>>()
            .is_ok_and(|fields| fields.get(name).is_some_and(|value| !value.is_null()))
}

#[cfg(test)]
mod tests;
