//! What is recorded about a task, as its attempt meets it again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use task_engine_core::step::{
    STEPS_BYTES_MAX, STEPS_MAX, SignalRow, StepKind, StepRow, TaskSteps, check_step_name, numbered,
};

use crate::failure::Failure;

/// The recorded steps and signals of a task, and how far its current attempt has come.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    steps: HashMap<String, StepRow>,
    signals: HashMap<String, SignalRow>,
    /// How often each name was used in this attempt.
    uses: HashMap<String, u32>,
    /// The highest number of a recorded step.
    last_number: u32,
    /// The highest number of a step that another attempt has recorded.
    last_earlier: u32,
    bytes: usize,
    /// The highest number of a step that this attempt has met.
    reached: u32,
    order_reported: bool,
    /// How many steps this attempt has recorded.
    recorded: u32,
    /// The database's time at a moment of this machine's monotonic clock.
    clock: Option<(Timestamp, Instant)>,
}

impl Replay {
    /// Takes what is stored in addition to what is known to this attempt.
    pub(crate) fn load(&mut self, stored: TaskSteps, attempt: i32) {
        self.clock = Some((stored.now, Instant::now()));
        for step in stored.steps {
            if step.attempt != attempt {
                self.last_earlier = self.last_earlier.max(step.number);
            }
            self.insert(step);
        }
        self.signals.extend(stored.signals.into_iter().map(|row| (row.name.clone(), row)));
    }

    fn insert(&mut self, step: StepRow) {
        self.last_number = self.last_number.max(step.number);
        let bytes = step.result.as_ref().map_or(0, |result| result.as_str().len());
        if self.steps.insert(step.name.clone(), step).is_none() {
            self.bytes += bytes;
        }
    }

    /// The full name of the next step with this name, with the number of a repetition.
    pub(crate) fn next_name(&mut self, name: &str) -> Result<String, Failure> {
        let full = self.peek_name(name)?;
        *self.uses.entry(name.to_owned()).or_default() += 1;
        Ok(full)
    }

    /// The same without using it.
    pub(crate) fn peek_name(&self, name: &str) -> Result<String, Failure> {
        check_step_name(name).map_err(|error| {
            Failure::no_retry(Failure::named("InvalidStepName", error.to_string()))
        })?;
        Ok(numbered(name, self.uses.get(name).copied().unwrap_or(0) + 1))
    }

    /// The recorded step of this name.
    pub(crate) fn find(&mut self, name: &str, kind: StepKind) -> Result<Option<StepRow>, Failure> {
        let Some(step) = self.steps.get(name) else {
            return Ok(None);
        };
        if step.kind != kind {
            let message = format!(
                "{name:?} was recorded as a {} and is a {kind} now; give it another name",
                step.kind
            );
            return Err(Failure::no_retry(Failure::named("StepChanged", message)));
        }
        Ok(Some(step.clone()))
    }

    /// A warning, once, if this step was recorded before one that the attempt has met
    /// already: the order of the code has changed.
    pub(crate) fn order_warning(&mut self, step: &StepRow) -> Option<String> {
        let came_later = step.number < self.reached;
        self.reached = self.reached.max(step.number);
        if !came_later || std::mem::replace(&mut self.order_reported, true) {
            return None;
        }
        Some(format!(
            "step {:?} was recorded as number {}, before steps that this attempt has met already: the order of the steps has changed",
            step.name, step.number
        ))
    }

    /// The number of a step that is about to be recorded.
    pub(crate) fn next_number(&mut self, name: &str, bytes: usize) -> Result<u32, Failure> {
        let failure = |message: String| Failure::no_retry(Failure::named("TooManySteps", message));
        if self.steps.len() >= STEPS_MAX {
            return Err(failure(format!(
                "step {name:?}: the task has {STEPS_MAX} recorded steps, which is the limit; continue in a new task"
            )));
        }
        if self.bytes + bytes > STEPS_BYTES_MAX {
            return Err(failure(format!(
                "step {name:?}: the results of the task's steps would have {} bytes (at most {STEPS_BYTES_MAX}); keep the data elsewhere and record a reference",
                self.bytes + bytes
            )));
        }
        self.last_number += 1;
        self.reached = self.last_number;
        Ok(self.last_number)
    }

    /// A step that this attempt has recorded.
    pub(crate) fn recorded(&mut self, step: StepRow, signal: Option<SignalRow>) {
        self.clock = Some((step.recorded_at, Instant::now()));
        self.recorded += 1;
        self.insert(step);
        self.signals.extend(signal.map(|row| (row.name.clone(), row)));
    }

    pub(crate) fn has_recorded(&self) -> bool {
        self.recorded > 0
    }

    pub(crate) fn signal(&self, name: &str) -> Option<SignalRow> {
        self.signals.get(name).cloned()
    }

    pub(crate) fn decided(&mut self, signal: SignalRow) {
        self.signals.insert(signal.name.clone(), signal);
    }

    /// How long a sleep or wait still lasts, by the database's clock; zero if it is over.
    pub(crate) fn remaining(&self, until: Timestamp) -> Duration {
        let Some((now, read)) = self.clock else {
            return Duration::ZERO;
        };
        let passed = SignedDuration::try_from(read.elapsed()).unwrap_or(SignedDuration::MAX);
        let left = until.duration_since(now).saturating_sub(passed);
        Duration::try_from(left).unwrap_or(Duration::ZERO)
    }

    /// Whether an earlier attempt went on after this sleep: then it is over, even if the
    /// clock of the database was set back since.
    pub(crate) fn went_on_after(&self, step: &StepRow) -> bool {
        self.last_earlier > step.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use task_engine_core::json::Json;

    fn step(name: &str, number: u32, kind: StepKind) -> StepRow {
        let now = Timestamp::UNIX_EPOCH;
        let result = Some(Json::parse("1").unwrap());
        let name = name.to_owned();
        StepRow {
            name,
            number,
            kind,
            attempt: 1,
            result,
            until: None,
            started_at: now,
            recorded_at: now,
        }
    }

    fn replay(steps: Vec<StepRow>) -> Replay {
        let mut replay = Replay::default();
        replay.load(TaskSteps { now: Timestamp::UNIX_EPOCH, steps, signals: Vec::new() }, 2);
        replay
    }

    #[test]
    fn repeated_names_are_counted() {
        let mut replay = Replay::default();
        assert_eq!(replay.next_name("a").unwrap(), "a");
        assert_eq!(replay.next_name("b").unwrap(), "b");
        assert_eq!(replay.next_name("a").unwrap(), "a#2");
        assert_eq!(replay.next_name("").unwrap_err().exception(), "InvalidStepName");
    }

    #[test]
    fn changed_order_is_reported_once() {
        let (a, b) = (step("a", 1, StepKind::Step), step("b", 2, StepKind::Step));
        let mut replay = replay(vec![a.clone(), b.clone(), step("c", 3, StepKind::Step)]);
        assert_eq!(replay.order_warning(&b), None);
        let warning = replay.order_warning(&a).unwrap();
        assert!(warning.contains("step \"a\" was recorded as number 1"), "{warning}");
        assert_eq!(replay.order_warning(&a), None);
    }

    #[test]
    fn changed_kind_is_refused() {
        let mut replay = replay(vec![step("a", 1, StepKind::Sleep)]);
        let failure = replay.find("a", StepKind::Step).unwrap_err();
        assert_eq!(failure.exception(), "StepChanged");
        assert!(failure.message().contains("\"a\" was recorded as a sleep"), "{failure}");
        assert!(replay.find("b", StepKind::Step).unwrap().is_none());
    }

    #[test]
    fn steps_are_limited() {
        let count = u32::try_from(STEPS_MAX).unwrap();
        let all = (1..=count).map(|n| step(&format!("s{n}"), n, StepKind::Step)).collect();
        let failure = replay(all).next_number("one more", 0).unwrap_err();
        assert!(failure.message().contains("\"one more\""), "{failure}");
        let failure = Replay::default().next_number("big", STEPS_BYTES_MAX + 1).unwrap_err();
        assert!(failure.message().contains("keep the data elsewhere"), "{failure}");
        assert_eq!(replay(vec![step("a", 7, StepKind::Step)]).next_number("b", 0).unwrap(), 8);
    }

    #[test]
    fn sleep_is_over_when_task_went_on() {
        let first = step("a", 1, StepKind::Sleep);
        assert!(!replay(vec![first.clone()]).went_on_after(&first));
        assert!(replay(vec![first.clone(), step("b", 2, StepKind::Step)]).went_on_after(&first));
    }
}
