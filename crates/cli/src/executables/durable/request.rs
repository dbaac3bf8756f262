//! Requests of a process for durable calls.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;
use task_engine_core::display;
use task_engine_core::step::StepContent;
use task_engine_core::suggest::did_you_mean;

use crate::executables::once;
use crate::executables::protocol::{LineFields, brief, value};

/// The fields that make a line a request.
pub(in crate::executables) const KINDS: [&str; 4] = ["step", "sleep", "wait", "call"];

/// What a process asks for.
#[derive(Debug)]
pub(in crate::executables) enum DurableRequest {
    /// Whether to run a step.
    BeginStep(String),
    /// To record the result of a step.
    EndStep(String, Box<RawValue>),
    Sleep(String, StepContent),
    /// To wait for a signal, at most for this time.
    Wait(String, Duration),
    Call(String, Vec<ChildTask>),
}

/// A child task, as a process asks for it.
#[derive(Debug)]
pub(in crate::executables) struct ChildTask {
    pub(super) class: String,
    pub(super) parameters: Option<Box<RawValue>>,
    pub(super) queue: Option<String>,
    pub(super) priority: Option<i32>,
}

/// Reads a request. The error completes "its process sent …".
pub(in crate::executables) fn parse(fields: &LineFields) -> Result<DurableRequest, String> {
    let kinds: Vec<&str> = KINDS.into_iter().filter(|kind| fields.contains_key(*kind)).collect();
    let [kind] = kinds[..] else {
        return Err(format!("a line with {}; send one request a line", kinds.join(" and ")));
    };
    let known: &[&str] = match kind {
        "step" => &["id", "step", "result"],
        "sleep" => &["id", "sleep", "for", "until"],
        "wait" => &["id", "wait", "timeout"],
        _ => &["id", "call", "tasks"],
    };
    if kind == "step" && fields.contains_key("error") {
        return Err("the error of a step, which is not recorded; handle it in the process, or send it without `step` to fail the task".to_owned());
    }
    if let Some(key) = fields.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(unknown_field(&format!("a {kind}"), key, known));
    }
    let name = match value(fields, kind) {
        Some(Value::String(name)) => name,
        other => {
            let other = brief(&other.unwrap_or_default());
            return Err(format!("the {kind} {other}; the name of a {kind} is a text"));
        }
    };
    let quoted = quoted(&name);
    match kind {
        "step" => Ok(match fields.get("result") {
            Some(result) => DurableRequest::EndStep(name, result.clone()),
            None => DurableRequest::BeginStep(name),
        }),
        "sleep" => Ok(DurableRequest::Sleep(name, sleep_time(&quoted, fields)?)),
        "wait" => Ok(DurableRequest::Wait(name, timeout(&quoted, fields)?)),
        _ => Ok(DurableRequest::Call(name, children(&quoted, fields)?)),
    }
}

fn sleep_time(name: &str, fields: &LineFields) -> Result<StepContent, String> {
    match (value(fields, "for"), value(fields, "until")) {
        (Some(time), None) => once::wait(&time).map(StepContent::SleepFor).ok_or_else(|| {
            format!("the sleep {name} for {}, which is not a time like \"3d\"", brief(&time))
        }),
        (None, Some(until)) => {
            let time = until.as_str().and_then(|text| text.parse::<Timestamp>().ok());
            time.map(StepContent::SleepUntil).ok_or_else(|| {
                format!(
                    "the sleep {name} until {}, which is not a time like \"2027-01-31T08:00:00Z\"",
                    brief(&until)
                )
            })
        }
        (None, None) => Err(format!(
            "the sleep {name} without a time; add `for`, like \"3d\", or `until`, like \"2027-01-31T08:00:00Z\""
        )),
        _ => Err(format!("the sleep {name} with both `for` and `until`; send one of them")),
    }
}

fn timeout(name: &str, fields: &LineFields) -> Result<Duration, String> {
    match value(fields, "timeout") {
        None => Err(format!("the wait {name} without a timeout; add `timeout`, like \"7d\"")),
        Some(time) => once::wait(&time).ok_or_else(|| {
            format!(
                "the wait {name} with the timeout {}, which is not a time like \"7d\"",
                brief(&time)
            )
        }),
    }
}

fn children(name: &str, fields: &LineFields) -> Result<Vec<ChildTask>, String> {
    let Some(tasks) = fields.get("tasks") else {
        return Err(format!("the call {name} without tasks; add `tasks`, a list"));
    };
    let Ok(tasks) = serde_json::from_str::<Vec<Box<RawValue>>>(tasks.get()) else {
        return Err(format!("the call {name} whose tasks are not a list"));
    };
    let number = |(nth, task)| {
        child(task).map_err(|why: String| format!("the call {name} whose task {} {why}", nth + 1))
    };
    tasks.iter().map(AsRef::as_ref).enumerate().map(number).collect()
}

/// The error says what is wrong with the task.
fn child(task: &RawValue) -> Result<ChildTask, String> {
    const FIELDS: [&str; 4] = ["class", "parameters", "queue", "priority"];
    let Ok(fields) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(task.get()) else {
        return Err("is not a JSON object".to_owned());
    };
    if let Some(key) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(format!("is {}", unknown_field("a task", key, &FIELDS)));
    }
    let Some(Value::String(class)) = value(&fields, "class") else {
        return Err("has no class; a class is a text".to_owned());
    };
    let queue = match value(&fields, "queue") {
        None | Some(Value::Null) => None,
        Some(Value::String(queue)) => Some(queue),
        Some(other) => return Err(format!("has the queue {}; a queue is a text", brief(&other))),
    };
    let priority = match value(&fields, "priority") {
        None | Some(Value::Null) => None,
        Some(number) => {
            let whole = number.as_i64().and_then(|number| i32::try_from(number).ok());
            let wrong =
                || format!("has the priority {}; a priority is a whole number", brief(&number));
            Some(whole.ok_or_else(wrong)?)
        }
    };
    Ok(ChildTask { class, parameters: fields.get("parameters").cloned(), queue, priority })
}

/// The name as messages quote it.
fn quoted(name: &str) -> String {
    format!("{:?}", display::brief(name, 40))
}

fn unknown_field(what: &str, key: &str, known: &[&str]) -> String {
    let hint = did_you_mean(key, known.iter().copied());
    format!("{what} with an unknown field {:?}{hint}", display::brief(key, 40))
}

#[cfg(test)]
mod tests;
