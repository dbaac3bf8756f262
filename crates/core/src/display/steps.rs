//! The steps of a durable task as a timeline.

use jiff::Timestamp;
use serde::Serialize;

use crate::json::Json;
use crate::step::{SignalRow, StepKind, StepRow, TaskSteps, call_of_ended, ended_name};
use crate::task::{TaskId, TaskStatus};

/// The state of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepState {
    /// The result of code is recorded.
    Recorded,
    /// A sleep that is not over.
    Sleeping,
    /// A sleep that is over.
    Slept,
    /// A wait whose signal has not arrived.
    Waiting,
    /// A wait that has its signal.
    Received,
    /// A wait whose deadline came first.
    TimedOut,
    /// A call whose children have not all ended.
    Running,
    /// A call whose children have ended.
    Ended,
    /// A sleep, wait or call that was open when its task ended.
    Unfinished,
}

enum_tokens!(StepState {
    Recorded = "recorded", Sleeping = "sleeping", Slept = "slept", Waiting = "waiting",
    Received = "received", TimedOut = "timed_out", Running = "running", Ended = "ended",
    Unfinished = "unfinished",
});

impl StepState {
    /// Returns whether the task waits for its end.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Sleeping | Self::Waiting | Self::Running)
    }
}

/// One step of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepEntry {
    /// Its position among the recorded steps.
    ///
    /// The end of a call has a number of its own, so one may be missing.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: StepKind,
    /// Its state.
    pub state: StepState,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; `None` if it has not.
    pub ended_at: Option<Timestamp>,
    /// The end of a sleep, the deadline of a wait.
    pub until: Option<Timestamp>,
    /// The attempt that recorded it; 0 if it was kept from another task.
    pub attempt: i32,
    /// The result of code, or the payload of the signal.
    pub result: Option<Json>,
    /// The children of a call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<TaskId>,
}

/// Returns one entry for each step, in the order of their numbers.
///
/// `status` is that of the task.
#[must_use]
pub fn step_timeline(steps: &TaskSteps, status: TaskStatus) -> Vec<StepEntry> {
    let last_number = steps.steps.iter().map(|step| step.number).max().unwrap_or(0);
    let shown = steps.steps.iter().filter(|step| !is_end_of_call(step));
    shown.map(|step| entry(steps, step, last_number, status)).collect()
}

/// Signals that were sent before the task waits for them.
pub fn kept_signals(steps: &TaskSteps) -> impl Iterator<Item = &SignalRow> {
    let is_awaited = |signal: &SignalRow| {
        steps.steps.iter().any(|step| step.kind == StepKind::Wait && step.name == signal.name)
    };
    steps.signals.iter().filter(move |signal| !is_awaited(signal))
}

fn is_end_of_call(step: &StepRow) -> bool {
    step.kind == StepKind::Call && call_of_ended(&step.name).is_some()
}

fn entry(steps: &TaskSteps, step: &StepRow, last_number: u32, status: TaskStatus) -> StepEntry {
    let signal = || steps.signals.iter().find(|signal| signal.name == step.name);
    let (state, ended_at, result) = match step.kind {
        StepKind::Step => (StepState::Recorded, Some(step.recorded_at), step.result.clone()),
        // As for an attempt: a sleep is over if the task went on after it.
        StepKind::Sleep => match step.until {
            Some(until) if until > steps.now && step.number >= last_number => {
                (StepState::Sleeping, None, None)
            }
            until => (StepState::Slept, until.or(Some(step.recorded_at)), None),
        },
        StepKind::Wait => match signal() {
            None => (StepState::Waiting, None, None),
            Some(signal) if signal.timed_out => (StepState::TimedOut, Some(signal.sent_at), None),
            // The signal may have been sent before the wait began.
            Some(signal) => {
                let at = signal.sent_at.max(step.recorded_at);
                (StepState::Received, Some(at), Some(signal.payload.clone()))
            }
        },
        StepKind::Call => {
            let name = ended_name(&step.name);
            let end = steps.steps.iter().find(|one| one.name == name && is_end_of_call(one));
            match end {
                Some(end) => (StepState::Ended, Some(end.recorded_at), None),
                None => (StepState::Running, None, None),
            }
        }
    };
    let task_ended = !matches!(status, TaskStatus::Waiting | TaskStatus::Running);
    StepEntry {
        number: step.number,
        name: step.name.clone(),
        kind: step.kind,
        state: if state.is_open() && task_ended { StepState::Unfinished } else { state },
        started_at: step.started_at,
        ended_at,
        until: step.until,
        attempt: step.attempt,
        result,
        children: step.children(),
    }
}

#[cfg(test)]
mod tests;
