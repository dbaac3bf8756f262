//! The content of a store as lines of JSON, for backups, for other programs, and to move
//! it to another store.
//!
//! A file has an [`ExportHeader`], then instances, paused queues, limits, flows, tasks in the order
//! of their ids, and schedules. The [`ExportCounts`] at the end make a truncated file recognizable.
//! The format does not depend on the store: PostgreSQL imports files of SQLite, and the other way
//! round.
//!
//! Tokens, rollups and the audit log belong to one database and are not exported.
//!
//! Ids are kept if the store has no tasks yet. Otherwise all ids are shifted by the same
//! distance ([`IdShift`]), so no table of old and new ids is needed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use task_engine_core::cancel::CancelReaction;
use task_engine_core::json::Json;
use task_engine_core::progress::LogLevel;
use task_engine_core::queue::Pool;
use task_engine_core::schedule::Overlap;
use task_engine_core::schedule::history::ScheduleEventKind;
use task_engine_core::task::{TaskOptions, TaskStatus};

mod durable;
mod file;
mod flows;
mod import;
mod limits;

pub use durable::{SignalRecord, StepRecord, SuspendedRecord};
pub use file::{ExportFile, InvalidLine};
pub use flows::{DependencyRecord, FlowRecord};
pub use import::{IdShift, ImportIds, ImportOutcome};
pub use limits::{ClosedKeyRecord, LimitRecord};

/// The version of the form that lines have.
pub const FORMAT: u32 = 1;

/// One line of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportLine {
    /// The first.
    Header(ExportHeader),
    /// An engine session.
    Instance(Box<InstanceRecord>),
    /// A paused queue.
    PausedQueue(PausedQueueRecord),
    /// A limit that an operator has set, or that has closed keys.
    Limit(Box<LimitRecord>),
    /// A flow.
    Flow(FlowRecord),
    /// A task with its history.
    Task(Box<TaskRecord>),
    /// A task that is not in the file, because it cannot be read.
    SkippedTask(SkippedTaskRecord),
    /// A schedule.
    Schedule(Box<ScheduleRecord>),
    /// The last.
    End(ExportCounts),
}

/// The first line of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportHeader {
    /// [`FORMAT`].
    pub task_engine_export: u32,
    /// The version of the program that wrote it.
    pub version: String,
    /// When, by the clock of the store.
    pub exported_at: Timestamp,
    /// The store, without secrets.
    pub from: String,
    /// The statuses that were selected; empty: all.
    pub statuses: Vec<TaskStatus>,
    /// The highest id that the store has given to a task.
    pub last_task_id: i64,
    /// The same of engine sessions.
    pub last_instance_id: i64,
    /// The same of schedules.
    pub last_schedule_id: i64,
}

/// The number of lines of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // The names say it.
pub struct ExportCounts {
    pub instances: u64,
    pub paused_queues: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub limits: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flows: u64,
    pub tasks: u64,
    pub schedules: u64,
}

impl ExportCounts {
    /// Counts one more.
    pub fn count(&mut self, line: &ExportLine) {
        match line {
            ExportLine::Instance(_) => self.instances += 1,
            ExportLine::PausedQueue(_) => self.paused_queues += 1,
            ExportLine::Limit(_) => self.limits += 1,
            ExportLine::Flow(_) => self.flows += 1,
            ExportLine::Task(_) => self.tasks += 1,
            ExportLine::Schedule(_) => self.schedules += 1,
            ExportLine::SkippedTask(_) | ExportLine::Header(_) | ExportLine::End(_) => {}
        }
    }
}

/// A task that was left out, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // The names say it.
pub struct SkippedTaskRecord {
    pub id: i64,
    pub reason: String,
}

/// An engine session.
///
/// After an import it has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // As in [`task_engine_core::instance::InstanceRow`].
pub struct InstanceRecord {
    pub id: i64,
    pub name: String,
    pub host: String,
    pub pid: i32,
    pub version: String,
    pub workers: i32,
    pub lease_ms: i64,
    pub queues: Vec<String>,
    pub pools: Vec<Pool>,
    pub classes: BTreeMap<String, TaskOptions>,
    pub started_at: Timestamp,
    pub heartbeat_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_at: Option<Timestamp>,
}

/// A queue that is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // As in [`task_engine_core::queue::PausedQueue`].
pub struct PausedQueueRecord {
    pub queue: String,
    pub reason: Option<String>,
    pub paused_at: Timestamp,
}

/// A task with its history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // As in [`task_engine_core::task::TaskDetails`].
pub struct TaskRecord {
    pub id: i64,
    pub status: TaskStatus,
    pub class: String,
    pub queue: String,
    pub priority: i32,
    pub created_at: Timestamp,
    pub scheduled_at: Timestamp,
    #[serde(deserialize_with = "object")]
    pub parameters: Json,
    #[serde(deserialize_with = "object")]
    pub context: Json,
    /// Whether the unique key in its context belongs to it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_unique_key: bool,
    /// Set while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingRecord>,
    /// Set while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningRecord>,
    /// The attempts that have ended, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executions: Vec<ExecutionRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_results: Vec<LateRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<ProgressRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<LogRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancellations: Vec<CancellationRecord>,
    /// In the order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<SignalRecord>,
    /// The children that it waits for, in order.
    ///
    /// A filter may have left them out of the file; then they count as removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<i64>,
    /// The tasks that it depends on, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyRecord>,
    /// The attempts that had ended it when it was retried, if others depend on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reopened: Vec<i32>,
    /// Set while it waits for a signal, for children, or for tasks that it depends on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<SuspendedRecord>,
}

/// The next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct WaitingRecord {
    pub attempt: i32,
    pub retry_number: i32,
    pub due_at: Timestamp,
}

/// The attempt that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct RunningRecord {
    pub attempt: i32,
    pub retry_number: i32,
    pub instance_id: i64,
    pub claimed_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested_at: Option<Timestamp>,
}

/// An attempt that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // As in [`task_engine_core::task::ExecutionRow`].
pub struct ExecutionRecord {
    pub attempt: i32,
    pub retry_number: i32,
    /// `None`: it was cancelled while it waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub stopped_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_task: Option<TaskStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "maybe_json")]
    pub result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "maybe_json")]
    pub error: Option<Json>,
}

/// A result that arrived after the end of its attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct LateRecord {
    pub attempt: i32,
    pub arrived_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "maybe_json")]
    pub result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "maybe_json")]
    pub error: Option<Json>,
}

/// The progress of an attempt, and how many lines it has logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ProgressRecord {
    pub attempt: i32,
    pub version: i64,
    pub lines: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<Timestamp>,
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct LogRecord {
    pub attempt: i32,
    pub line: i32,
    pub logged_at: Timestamp,
    pub level: String,
    pub message: String,
}

/// A cancel request for an attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct CancellationRecord {
    pub attempt: i32,
    pub requested_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// A schedule, with the slots that it has fired last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // As in [`task_engine_core::schedule::row::ScheduleRow`].
pub struct ScheduleRecord {
    pub id: i64,
    pub version: i64,
    pub name: String,
    #[serde(deserialize_with = "object")]
    pub definition: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<String>,
    pub overlap: Overlap,
    pub anchor: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_slot: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_task_id: Option<i64>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fired_slots: Vec<FiredRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<ScheduleEventRecord>,
}

/// A slot that has fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct FiredRecord {
    pub slot: Timestamp,
    pub task_id: i64,
    pub fired_at: Timestamp,
}

/// An event of a schedule that is not a firing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ScheduleEventRecord {
    pub kind: ScheduleEventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_slot: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_slot: Option<Timestamp>,
    pub slots: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    pub recorded_at: Timestamp,
}

/// Returns JSON as a line can hold it: without a line break, and without the blanks of PostgreSQL.
///
/// Numbers and the order of names stay as they are.
#[must_use]
pub fn compact(text: &str) -> Json {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if c == '"' {
            in_string = true;
        } else if c.is_ascii_whitespace() {
            continue;
        }
        out.push(c);
    }
    Json::from_store(out)
}

impl TaskRecord {
    /// Returns the status that follows from the fields of the record.
    #[must_use]
    pub fn place(&self) -> Option<TaskStatus> {
        match (&self.waiting, &self.running, self.executions.last()) {
            (Some(_), None, _) => Some(TaskStatus::Waiting),
            (None, Some(_), _) => Some(TaskStatus::Running),
            (None, None, Some(last)) => last.ends_task,
            _ => None,
        }
    }

    /// Returns the error for a task that cannot be exported, because it is lost.
    #[must_use]
    pub fn nowhere(&self) -> crate::error::StoreError {
        crate::error::StoreError::Refused(format!(
            "task {} is lost: it does not wait, no engine holds it, and it has not ended; see `task-engine verify`",
            self.id
        ))
    }

    /// Returns the line of this task.
    ///
    /// If its parameters or its context are beyond the limits of [`Json`], no store would accept
    /// them: the task is left out and the line has the reason. Such results, errors and payloads
    /// are abbreviated.
    #[must_use]
    pub fn into_line(mut self) -> ExportLine {
        let asked = [("parameters", &self.parameters), ("context", &self.context)];
        let unreadable = asked.into_iter().find_map(|(what, json)| {
            let why = Json::parse_object(json.as_str()).err()?;
            Some(format!("its {what} cannot be read: {why}"))
        });
        if let Some(reason) = unreadable {
            return ExportLine::SkippedTask(SkippedTaskRecord { id: self.id, reason });
        }
        let ended = self.executions.iter_mut().flat_map(|e| [&mut e.result, &mut e.error]);
        let late = self.late_results.iter_mut().flat_map(|l| [&mut l.result, &mut l.error]);
        let steps = self.steps.iter_mut().map(|step| &mut step.result);
        let signals = self.signals.iter_mut().map(|signal| &mut signal.payload);
        for json in ended.chain(late).chain(steps).flatten().chain(signals) {
            if let Err(why) = Json::parse(json.as_str()) {
                *json = Json::unreadable(&why.to_string());
            }
        }
        ExportLine::Task(Box::new(self))
    }

    /// Checks the invariants of the ledger that a store does not check.
    fn check(&self) -> Result<(), String> {
        let wrong = |why: String| Err(format!("task {}: {why}", self.id));
        if !(1..i64::MAX).contains(&self.id) {
            return wrong("an id is a number from 1 up, and not the last one there is".to_owned());
        }
        for (what, name) in [("class", &self.class), ("queue", &self.queue)] {
            task_engine_core::task::check_name(what, name.clone())
                .map_err(|why| format!("task {}: {why}", self.id))?;
        }
        match self.place() {
            None => return wrong("it neither waits nor runs, nor has it ended".to_owned()),
            Some(place) if place != self.status => {
                return wrong(format!("it is said to be {}, but is {place}", self.status));
            }
            Some(_) => {}
        }
        let mut last = 0;
        for execution in &self.executions {
            if execution.attempt <= last {
                return wrong(format!("attempt {} comes after attempt {last}", execution.attempt));
            }
            last = execution.attempt;
            if execution.ends_task.is_some() == execution.retry_at.is_some() {
                return wrong(format!(
                    "attempt {last} must either end the task or have a time for the next one"
                ));
            }
        }
        let next = self.waiting.map(|w| w.attempt).or(self.running.map(|r| r.attempt));
        if next.is_some_and(|next| next <= last) {
            return wrong(format!("its next attempt is not after attempt {last}"));
        }
        let reporting =
            self.progress.iter().map(|p| p.attempt).chain(self.logs.iter().map(|l| l.attempt));
        let never_was = |attempt: &i32| !self.has_ended(*attempt) && !self.runs(*attempt);
        if let Some(attempt) = reporting.into_iter().find(never_was) {
            return wrong(format!("attempt {attempt} has said something, but never was"));
        }
        let late = self.late_results.iter().map(|l| l.attempt);
        let cancelled = self.cancellations.iter().map(|c| c.attempt);
        if let Some(attempt) = late.chain(cancelled).find(|attempt| !self.has_ended(*attempt)) {
            return wrong(format!("attempt {attempt} has not ended"));
        }
        if let Some(log) = self.logs.iter().find(|log| log.level.parse::<LogLevel>().is_err()) {
            return wrong(format!("no level of a log: {:?}", log.level));
        }
        let answers = self.cancellations.iter().filter_map(|c| c.answer.as_deref());
        if let Some(Err(why)) = answers.map(str::parse::<CancelReaction>).find(Result::is_err) {
            return wrong(why.to_string());
        }
        if self.has_unique_key && self.unique_key().is_none() {
            return wrong("it has a unique key that its context does not name".to_owned());
        }
        self.check_dependencies().and_then(|()| self.check_durable()).or_else(wrong)
    }

    fn has_ended(&self, attempt: i32) -> bool {
        self.executions.iter().any(|e| e.attempt == attempt)
    }

    fn runs(&self, attempt: i32) -> bool {
        self.running.is_some_and(|r| r.attempt == attempt)
    }

    /// Returns the key in its context.
    #[must_use]
    pub fn unique_key(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Key {
            unique_key: Option<String>,
        }
        self.context.decode::<Key>().ok()?.unique_key
    }
}

/// A query for the tasks to export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportFilter {
    /// Those in one of these; empty: all.
    pub statuses: Vec<TaskStatus>,
}

impl ExportFilter {
    /// Returns whether the filter includes tasks of this status.
    #[must_use]
    pub fn wants(&self, status: TaskStatus) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&status)
    }
}

/// Receives lines; returns false to stop.
pub type ExportSink = Box<dyn FnMut(ExportLine) -> bool + Send>;

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// An existing field is a value, even if it is `null`.
fn maybe_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    Json::parse(raw.get()).map(Some).map_err(D::Error::custom)
}

fn object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    Json::parse_object(raw.get()).map_err(D::Error::custom)
}
