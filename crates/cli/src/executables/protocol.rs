//! The lines that engine and process exchange: one JSON object each.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use task_engine::{Context, Failure};
use task_engine_core::display;
use task_engine_core::suggest::did_you_mean;

use super::announcement::{self, Announcement};
use super::durable::{self, DurableRequest};
use super::once::wait;

/// How much of a line is repeated in a message.
const FIRST_CHARS: usize = 100;
const CONCURRENCY_MAX: usize = 10_000;
const KEYS: [&str; 14] = [
    "id",
    "result",
    "error",
    "snooze",
    "rate_limited",
    "retry",
    "log",
    "progress",
    "message",
    "concurrency",
    "step",
    "sleep",
    "wait",
    "call",
];

/// A task, as a process reads it.
#[derive(Serialize)]
struct TaskRequest<'a> {
    id: &'a str,
    task_id: i64,
    attempt: i32,
    retry_number: u32,
    class: &'a str,
    correlation_id: &'a str,
    parameters: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    dependencies: Option<&'a RawValue>,
}

/// The line of a task.
pub(super) fn request(
    id: &str,
    parameters: &RawValue,
    dependencies: Option<&RawValue>,
    cx: &Context<()>,
) -> Result<Vec<u8>, Failure> {
    let request = TaskRequest {
        id,
        task_id: cx.task_id().0,
        attempt: cx.attempt(),
        retry_number: cx.retry_number(),
        class: cx.class(),
        correlation_id: cx.correlation_id(),
        parameters,
        dependencies,
    };
    line(&request)
}

/// A value as one line.
pub(super) fn line(value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut line = serde_json::to_vec(value)?;
    // Between the values of a JSON text, a line break is a space.
    for byte in &mut line {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.push(b'\n');
    Ok(line)
}

/// The line that cancels a task.
pub(super) fn cancel(id: &str) -> Vec<u8> {
    format!("{}\n", serde_json::json!({ "cancel": id })).into_bytes()
}

/// A parsed line of a process.
#[derive(Debug)]
pub(super) enum WorkerLine {
    /// Its classes, and how many tasks it takes at a time.
    Announcement(Box<Announcement>),
    /// How many tasks it takes at a time.
    Concurrency(usize),
    /// It takes no more tasks.
    Stopping,
    Task(Box<TaskUpdate>),
    /// A durable call of a task; an error says what is wrong with it.
    Request(String, Result<DurableRequest, String>),
}

/// A message of a process about one of its tasks.
#[derive(Debug, Default)]
pub(super) struct TaskUpdate {
    pub(super) id: String,
    pub(super) log: Vec<String>,
    pub(super) progress: Option<(f64, String)>,
    /// Errors in the line that can be ignored.
    pub(super) warnings: Vec<String>,
    pub(super) answer: Option<TaskAnswer>,
}

#[derive(Debug)]
pub(super) enum TaskAnswer {
    Result(Box<RawValue>),
    Failed(Failure),
    /// Postponed, for this reason.
    Snooze(Duration, String),
    /// The same, and the keys of its limits are closed for this time.
    RateLimited(Duration, String),
}

/// A line that cannot be parsed, and its task, if known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MalformedLine {
    pub(super) id: Option<String>,
    pub(super) why: String,
}

pub(super) type LineFields = BTreeMap<String, Box<RawValue>>;

/// Reads a line.
pub(super) fn parse(line: &[u8]) -> Result<WorkerLine, MalformedLine> {
    let text = String::from_utf8_lossy(line.trim_ascii());
    let unassigned = |why: String| MalformedLine { id: None, why };
    let Ok(fields) = serde_json::from_str::<LineFields>(&text) else {
        let first: String = text.chars().take(FIRST_CHARS).collect();
        return Err(unassigned(format!(
            "it printed a line that is not a JSON object: {first:?}; print other text to the standard error"
        )));
    };
    let id = match value(&fields, "id") {
        Some(Value::String(id)) => id,
        None => return without_id(&fields).map_err(unassigned),
        Some(other) => {
            let other = brief(&other);
            return Err(unassigned(format!(
                "it answered for the id {other}; an id is the text that came with the task"
            )));
        }
    };
    if durable::KINDS.iter().any(|kind| fields.contains_key(*kind)) {
        return Ok(WorkerLine::Request(id, durable::parse(&fields)));
    }
    update(&id, &fields).map(|update| WorkerLine::Task(Box::new(update))).map_err(|why| {
        let id = Some(id);
        MalformedLine { id, why }
    })
}

fn without_id(fields: &LineFields) -> Result<WorkerLine, String> {
    if fields.contains_key("protocol") || fields.contains_key("classes") {
        let announcement = announcement::parse(fields);
        return announcement
            .map(|announcement| WorkerLine::Announcement(Box::new(announcement)))
            .map_err(|why| format!("its announcement {why}"));
    }
    if value(fields, "stopping") == Some(Value::Bool(true)) {
        return Ok(WorkerLine::Stopping);
    }
    match concurrency(fields).map_err(|why| format!("it sent {why}"))? {
        Some(number) => Ok(WorkerLine::Concurrency(number)),
        None => Err("it printed a line without an id".to_owned()),
    }
}

/// The concurrency of a line, if it has one. The error completes "it sent …".
pub(super) fn concurrency(fields: &LineFields) -> Result<Option<usize>, String> {
    let Some(number) = value(fields, "concurrency") else {
        return Ok(None);
    };
    let whole = number.as_u64().and_then(|number| usize::try_from(number).ok());
    match whole.filter(|number| (1..=CONCURRENCY_MAX).contains(number)) {
        Some(whole) => Ok(Some(whole)),
        None => {
            let number = brief(&number);
            Err(format!(
                "the concurrency {number}, which is not a number from 1 to {CONCURRENCY_MAX}"
            ))
        }
    }
}

fn update(id: &str, fields: &LineFields) -> Result<TaskUpdate, String> {
    let mut update = TaskUpdate { id: id.to_owned(), ..TaskUpdate::default() };
    for key in fields.keys().filter(|key| !KEYS.contains(&key.as_str())) {
        let hint = did_you_mean(key, KEYS);
        let key = display::brief(key, 40);
        update.warnings.push(format!("its answer has an unknown field {key:?}{hint}"));
    }
    let message = value(fields, "message").map(|message| text(&message)).unwrap_or_default();
    if let Some(log) = value(fields, "log") {
        update.log = lines_of(&log);
    }
    if let Some(progress) = value(fields, "progress") {
        match progress.as_f64() {
            Some(percent) => update.progress = Some((percent, message.clone())),
            None => {
                update.warnings.push(format!("its progress {} is not a number", brief(&progress)));
            }
        }
    }
    let result = fields.get("result");
    let postponed: Vec<(&str, Value)> = ["snooze", "rate_limited"]
        .into_iter()
        .filter_map(|key| Some((key, value(fields, key)?)))
        .collect();
    let has_other = result.is_some() || !postponed.is_empty();
    let error = value(fields, "error").filter(|error| !(error.is_null() && has_other));
    update.answer = match (result, error, &postponed[..]) {
        (Some(result), None, []) => Some(TaskAnswer::Result(result.clone())),
        (None, Some(error), []) => {
            let (failure, warning) = failure(&error, value(fields, "retry").as_ref());
            update.warnings.extend(warning);
            Some(TaskAnswer::Failed(failure))
        }
        (None, None, [(key, time)]) => {
            let Some(wait) = wait(time) else {
                return Err(format!("its {key} {} is not a time like \"30s\"", brief(time)));
            };
            let is_snooze = *key == "snooze";
            let reason = match message.is_empty() {
                false => message,
                true if is_snooze => "its process postponed it".to_owned(),
                true => "its process was rate limited".to_owned(),
            };
            Some(if is_snooze {
                TaskAnswer::Snooze(wait, reason)
            } else {
                TaskAnswer::RateLimited(wait, reason)
            })
        }
        (None, None, []) if !update.log.is_empty() || fields.contains_key("log") => None,
        (None, None, []) if fields.contains_key("progress") => None,
        (None, None, []) => {
            let warning =
                update.warnings.first().map_or_else(String::new, |why| format!(": {why}"));
            return Err(format!("it has neither a result nor an error{warning}"));
        }
        _ => {
            return Err("it has more than one of result, error, snooze and rate_limited".to_owned());
        }
    };
    Ok(update)
}

/// The failure, and a warning if its `retry` is invalid.
fn failure(error: &Value, retry: Option<&Value>) -> (Failure, Option<String>) {
    let failure = match error {
        Value::Object(fields) => {
            let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
            let exception = field("exception").map_or_else(|| "Failure".to_owned(), text);
            let message = field("message").map(text).unwrap_or_default();
            let trace = field("backtrace").map(lines_of).unwrap_or_default();
            Failure::named(exception, message).with_trace(trace)
        }
        other => Failure::named("Failure", text(other)).with_trace(Vec::new()),
    };
    match retry {
        None | Some(Value::Null | Value::Bool(true)) => (failure, None),
        Some(Value::Bool(false)) => (Failure::no_retry(failure), None),
        Some(later) => match wait(later) {
            Some(wait) => (Failure::retry_after(failure, wait), None),
            None => {
                let why = format!(
                    "its retry {} is neither true, false nor a time like \"30s\"; the rule decides",
                    brief(later)
                );
                (failure, Some(why))
            }
        },
    }
}

pub(super) fn value(fields: &LineFields, key: &str) -> Option<Value> {
    serde_json::from_str(fields.get(key)?.get()).ok()
}

/// A text as it is; anything else as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// One text of several lines, or a list of texts. Indentation is kept.
fn lines_of(value: &Value) -> Vec<String> {
    let all = match value {
        Value::Array(list) => list.iter().map(text).collect(),
        other => vec![text(other)],
    };
    all.iter().flat_map(|text| text.lines().map(|line| line.trim_end().to_owned())).collect()
}

pub(super) fn brief(value: &Value) -> String {
    value.to_string().chars().take(FIRST_CHARS).collect()
}

#[cfg(test)]
mod tests;
