//! What a file contains about durable tasks: their steps, signals, children, and what they
//! are suspended for.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use task_engine_core::json::Json;
use task_engine_core::step::{SignalRow, StepKind, StepRow, call_of_ended, check_signal_name};

use super::{IdShift, TaskRecord, compact, is_false, maybe_json};

/// The longest name of a step, with the number of a repetition.
const STEP_NAME_BYTES_MAX: usize = 220;

/// A recorded step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // As in [`task_engine_core::step::StepRow`].
pub struct StepRecord {
    pub name: String,
    pub number: i32,
    /// 0: it was copied from another task.
    pub attempt: i32,
    pub kind: StepKind,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "maybe_json")]
    pub result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    pub started_at: Timestamp,
    pub recorded_at: Timestamp,
}

/// A signal, or the timeout of the wait for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // As in [`task_engine_core::step::SignalRow`].
pub struct SignalRecord {
    pub name: String,
    #[serde(deserialize_with = "json")]
    pub payload: Json,
    pub sent_at: Timestamp,
    #[serde(default, skip_serializing_if = "is_false")]
    pub timed_out: bool,
}

/// The event that wakes a task that waits.
///
/// The attempt before the one that it waits for has suspended it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuspendedRecord {
    /// The signals that wake it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    /// The child, or the task that it depends on, whose end is looked at next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watching: Option<i64>,
    /// Whether it waits for tasks that it depends on: it has not started.
    #[serde(default, skip_serializing_if = "is_false")]
    pub blocked: bool,
}

impl From<StepRow> for StepRecord {
    fn from(row: StepRow) -> Self {
        Self {
            name: row.name,
            number: i32::try_from(row.number).unwrap_or(i32::MAX),
            attempt: row.attempt,
            kind: row.kind,
            result: row.result.map(|result| compact(result.as_str())),
            until: row.until,
            started_at: row.started_at,
            recorded_at: row.recorded_at,
        }
    }
}

impl From<SignalRow> for SignalRecord {
    fn from(row: SignalRow) -> Self {
        Self {
            name: row.name,
            payload: compact(row.payload.as_str()),
            sent_at: row.sent_at,
            timed_out: row.timed_out,
        }
    }
}

impl StepRecord {
    /// The children of a call; `None` if this is another step.
    fn children(&self) -> Option<Result<Vec<i64>, String>> {
        if self.kind != StepKind::Call || call_of_ended(&self.name).is_some() {
            return None;
        }
        let ids = self.result.as_ref().and_then(|ids| ids.decode().ok());
        Some(ids.ok_or_else(|| "the result of a call is the list of its tasks".to_owned()))
    }

    fn check(&self) -> Result<(), String> {
        let (name, kind) = (&self.name, self.kind);
        if !(1..=STEP_NAME_BYTES_MAX).contains(&name.len()) || name.chars().any(char::is_control) {
            return Err(format!(
                "a name of 1 to {STEP_NAME_BYTES_MAX} bytes without control characters is needed"
            ));
        }
        if self.number < 1 {
            return Err("steps are numbered from 1".to_owned());
        }
        let has_result = matches!(kind, StepKind::Step | StepKind::Call);
        if self.result.is_some() != has_result || self.until.is_some() == has_result {
            let (needed, other) =
                if has_result { ("result", "until") } else { ("until", "result") };
            return Err(format!("a {kind} has the field `{needed}`, and no `{other}`"));
        }
        self.children().transpose().map(drop)
    }
}

impl TaskRecord {
    /// Checks what is recorded about a durable task.
    pub(super) fn check_durable(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for step in &self.steps {
            let wrong = |why: String| Err(format!("step {:?}: {why}", step.name));
            if let Err(why) = step.check() {
                return wrong(why);
            }
            if !names.insert(&step.name) {
                return wrong("it is there twice".to_owned());
            }
            let attempt = step.attempt;
            if attempt != 0 && !self.has_ended(attempt) && !self.runs(attempt) {
                return wrong(format!("attempt {attempt} has recorded it, but never was"));
            }
        }
        names.clear();
        for signal in &self.signals {
            check_signal_name(&signal.name).map_err(|why| why.to_string())?;
            if !names.insert(&signal.name) {
                return Err(format!("signal {:?}: it is there twice", signal.name));
            }
        }
        if let Some(two) = self.depends_on.windows(2).find(|two| two[0] >= two[1]) {
            return Err(format!("it depends on task {} after task {}", two[1], two[0]));
        }
        self.check_suspended()
    }

    fn check_suspended(&self) -> Result<(), String> {
        let Some(suspended) = &self.suspended else {
            return Ok(());
        };
        if suspended.blocked {
            return self.check_blocked(suspended);
        }
        if self.waiting.is_none_or(|waiting| waiting.attempt <= 1) {
            return Err("it is suspended, but does not wait for another attempt".to_owned());
        }
        for name in &suspended.signals {
            check_signal_name(name).map_err(|why| why.to_string())?;
        }
        match suspended.watching {
            Some(child) if !self.depends_on.contains(&child) => {
                Err(format!("it watches task {child}, on which it does not depend"))
            }
            _ => Ok(()),
        }
    }

    /// The tasks that its steps and dependencies name.
    pub(super) fn named_tasks(&self) -> impl Iterator<Item = i64> {
        let called = self.steps.iter().filter_map(|step| step.children()?.ok()).flatten();
        called
            .chain(self.depends_on.iter().copied())
            .chain(self.dependencies.iter().map(|one| one.on))
    }

    /// Sets what wakes the task, if it waits for the attempt after this one.
    ///
    /// A row of an earlier suspension does not count, and is not exported.
    pub fn set_suspended(&mut self, attempt: i32, suspended: SuspendedRecord) {
        let next = attempt.checked_add(1);
        if self.waiting.is_some_and(|waiting| Some(waiting.attempt) == next) {
            self.suspended = Some(suspended);
        }
    }

    /// Shifts the ids of the tasks that it names.
    pub(super) fn shift_named(&mut self, shift: &IdShift) {
        for step in &mut self.steps {
            let Some(Ok(mut ids)) = step.children() else { continue };
            ids.iter_mut().for_each(|id| *id += shift.tasks);
            step.result = Json::encode(&ids).ok();
        }
        for id in &mut self.depends_on {
            *id += shift.tasks;
        }
        for one in &mut self.dependencies {
            one.on += shift.tasks;
        }
        if let Some(child) = self.suspended.as_mut().and_then(|one| one.watching.as_mut()) {
            *child += shift.tasks;
        }
    }
}

fn json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
    maybe_json(deserializer).map(|json| json.unwrap_or_else(Json::null))
}
