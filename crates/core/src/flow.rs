//! Flows: tasks that belong together, and which task created which.
//!
//! All tasks of a flow share a correlation id. A task that starts a flow stores none: its
//! correlation id is its own id, as text. Other tasks have it in their context: it was
//! given, or comes from the trace or the task that created them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::attempt::TaskError;
use crate::json::Json;
use crate::task::{ExecutionStatus, NewTask, TaskId, TaskRow};
use crate::traceparent::Traceparent;

const CORRELATION_ID: &str = "correlation_id";
const PARENT_ID: &str = "parent_id";
const TRACEPARENT: &str = "traceparent";

/// The place of a task in its flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Origin {
    /// Shared by all tasks of its flow.
    pub correlation_id: String,
    /// The task that created it, if one did.
    pub parent_id: Option<TaskId>,
    /// The span that it was created under.
    pub traceparent: Option<Traceparent>,
}

impl Origin {
    /// Reads it from the context of a task.
    ///
    /// Invalid values, which SQL of an application may have written, are ignored: the task runs
    /// anyway.
    #[must_use]
    pub fn of(id: TaskId, context: &Json) -> Self {
        // The common case needs no parsing.
        let stored = if context.as_str() == "{}" {
            OriginFields::default()
        } else {
            context.decode().unwrap_or_default()
        };
        let text = |raw: &Option<Box<RawValue>>| {
            raw.as_ref().and_then(|raw| serde_json::from_str::<String>(raw.get()).ok())
        };
        Self {
            correlation_id: text(&stored.correlation_id).unwrap_or_else(|| id.to_string()),
            parent_id: stored
                .parent_id
                .and_then(|raw| serde_json::from_str(raw.get()).ok())
                .filter(|parent: &TaskId| parent.0 > 0),
            traceparent: text(&stored.traceparent).and_then(|text| text.parse().ok()),
        }
    }

    /// Returns the origin of tasks that the task `id` creates; this is the origin of that task.
    #[must_use]
    pub fn for_children_of(&self, id: TaskId) -> Self {
        Self { parent_id: Some(id), ..self.clone() }
    }

    /// Adds it to the context of a new task.
    ///
    /// Fields that the task has are kept.
    #[must_use]
    pub fn stamp(&self, mut task: NewTask) -> NewTask {
        let fields = [
            (CORRELATION_ID, Some(raw(&self.correlation_id))),
            (PARENT_ID, self.parent_id.map(|id| raw(&id))),
            (TRACEPARENT, self.traceparent.map(|traceparent| raw(&traceparent))),
        ];
        let fields = fields.into_iter().filter_map(|(key, value)| Some((key, value?)));
        task.context = with_fields(&task.context, fields, FieldMode::Keep);
        task
    }
}

#[derive(Default, Deserialize)]
struct OriginFields {
    correlation_id: Option<Box<RawValue>>,
    parent_id: Option<Box<RawValue>>,
    traceparent: Option<Box<RawValue>>,
}

/// Returns the name of a task in its flow, by its context.
#[must_use]
pub fn name_in_flow(context: &Json) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        flow_task: Option<String>,
    }
    if context.as_str() == "{}" {
        return None;
    }
    context.decode::<Named>().ok()?.flow_task
}

/// Returns the context with the correlation id, as task code sees it.
#[must_use]
pub fn with_correlation(context: &Json, correlation_id: &str) -> Json {
    with_fields(context, [(CORRELATION_ID, raw(&correlation_id))], FieldMode::Keep)
}

pub fn set_correlation(task: &mut NewTask, id: &str) {
    task.context = with_fields(&task.context, [(CORRELATION_ID, raw(&id))], FieldMode::Replace);
}

pub fn set_traceparent(task: &mut NewTask, traceparent: Traceparent) {
    task.context =
        with_fields(&task.context, [(TRACEPARENT, raw(&traceparent))], FieldMode::Replace);
}

pub fn fill_traceparent(task: &mut NewTask, traceparent: Traceparent) {
    task.context = with_fields(&task.context, [(TRACEPARENT, raw(&traceparent))], FieldMode::Keep);
}

/// Puts a task without a correlation id into the flow of its trace.
pub fn fill_correlation(task: &mut NewTask, traceparent: Traceparent) {
    let id = correlation_of_trace(traceparent);
    task.context = with_fields(&task.context, [(CORRELATION_ID, raw(&id))], FieldMode::Keep);
}

/// Returns the correlation id of tasks that are created in a trace.
#[must_use]
pub fn correlation_of_trace(traceparent: Traceparent) -> String {
    format!("{:032x}", traceparent.trace_id())
}

/// What happens to a field that exists.
#[derive(Clone, Copy, PartialEq)]
enum FieldMode {
    Keep,
    Replace,
}

/// Raw values keep all other fields unchanged, to the last digit.
fn with_fields<'a>(
    context: &Json,
    new: impl IntoIterator<Item = (&'a str, Box<RawValue>)>,
    mode: FieldMode,
) -> Json {
    let mut fields: BTreeMap<String, Box<RawValue>> = context.decode().unwrap_or_default();
    for (key, value) in new {
        let exists = fields.get(key).is_some_and(|raw| raw.get() != "null");
        if mode == FieldMode::Replace || !exists {
            fields.insert(key.to_owned(), value);
        }
    }
    Json::from_store(serde_json::to_string(&fields).expect("text under text keys is JSON"))
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("a text or a number is JSON")
}

/// A page of a flow, oldest task first, so that parents come before their children.
#[derive(Debug, Clone)]
pub struct FlowPage {
    /// The flow.
    pub correlation_id: String,
    /// Only tasks newer than this one: the last row of the previous page.
    pub after: Option<TaskId>,
    /// The most to return.
    pub limit: u32,
}

impl FlowPage {
    /// Returns the task that starts the flow, if the correlation id is a task id.
    ///
    /// That task may have another correlation id.
    #[must_use]
    pub fn own_task(&self) -> Option<TaskId> {
        let id: TaskId = self.correlation_id.parse().ok()?;
        // `+7` and `007` parse as numbers but are not ids.
        (id.to_string() == self.correlation_id).then_some(id)
    }
}

/// A task of a flow, with its attempts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowTask {
    /// The task.
    #[serde(flatten)]
    pub row: TaskRow,
    /// The task that created it, if one did.
    pub parent_id: Option<TaskId>,
    /// Its name, if it was created with one in a flow.
    pub name: Option<String>,
    /// The earliest time of its first attempt.
    pub due_at: Timestamp,
    /// Its attempts, oldest first.
    pub executions: Vec<FlowAttempt>,
}

/// An attempt in a flow: when it ran, and how it ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowAttempt {
    /// Its number.
    pub attempt: i32,
    /// `running`, `success` or `failure`.
    pub status: ExecutionStatus,
    /// The engine.
    pub instance: Option<String>,
    /// When it began; `None` if it never began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub stopped_at: Option<Timestamp>,
    /// The earliest time of the next attempt.
    pub retry_at: Option<Timestamp>,
    /// The error of a failure, without its backtrace.
    pub error: Option<TaskError>,
}

impl FlowTask {
    /// Returns how long each attempt waited between being due and starting.
    ///
    /// `None` for an attempt that never started, that an operator retried, or that an operator
    /// started early.
    #[must_use]
    pub fn waits(&self) -> Vec<Option<Duration>> {
        let mut due_at = Some(self.due_at);
        let mut waits = Vec::with_capacity(self.executions.len());
        for execution in &self.executions {
            let wait = due_at.zip(execution.started_at).and_then(|(due_at, started_at)| {
                Duration::try_from(started_at.duration_since(due_at)).ok()
            });
            waits.push(wait);
            due_at = execution.retry_at;
        }
        waits
    }
}

impl FlowAttempt {
    /// Returns how long it ran, if it began and has ended.
    #[must_use]
    pub fn run_time(&self) -> Option<Duration> {
        Some(self.stopped_at?.duration_since(self.started_at?).unsigned_abs())
    }
}

#[cfg(test)]
mod tests;
