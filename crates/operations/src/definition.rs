//! Definitions in JSON: of a task, and of a flow.
//!
//! The HTTP API and the command line read the same, with the same errors.

mod flow;

use std::time::Duration;

use jiff::Timestamp;
use task_engine_core::json::Json;
use task_engine_core::parse::duration_with_unit as duration;
use task_engine_core::retry::RetryOverride;
use task_engine_core::task::NewTask;
use task_engine_core::unique::{OnConflict, Scope, Unique};

use crate::fields::{InvalidField, Object};

pub use flow::{FlowDefinition, TaskDefinition};

/// The fields of a task.
pub const TASK_FIELDS: [&str; 13] = [
    "class",
    "parameters",
    "queue",
    "priority",
    "scheduled_at",
    "after",
    "key",
    "scope",
    "on_conflict",
    "correlation_id",
    "traceparent",
    "retry",
    "limits",
];

/// Returns the task of an object with these fields.
///
/// Those that it does not have count as missing.
pub fn task(object: &Object<'_>) -> Result<NewTask, InvalidField> {
    task_with_wait(object, "after")
}

/// The same; `wait` is the field with the duration after which it may start.
fn task_with_wait(object: &Object<'_>, wait: &str) -> Result<NewTask, InvalidField> {
    let parameters = object.json_object("parameters")?.unwrap_or_else(Json::empty_object);
    let class = object.required_text("class")?;
    let mut task = NewTask::new(class, parameters).map_err(|bad| object.invalid("class", bad))?;
    if let Some(queue) = object.text("queue")? {
        task = task.queue(queue).map_err(|bad| object.invalid("queue", bad))?;
    }
    if let Some(priority) = object.whole("priority", "a whole number of 32 bits")? {
        task = task.priority(priority);
    }
    task = due(object, wait, task)?;
    if let Some(rule) = retry(object)? {
        task = task.retry(rule);
    }
    if let Some(id) = object.text("correlation_id")? {
        task = task.correlation(id).map_err(|bad| object.invalid("correlation_id", bad))?;
    }
    if let Some(text) = object.text("traceparent")? {
        task = task.traceparent(text).map_err(|bad| object.invalid("traceparent", bad))?;
    }
    task = limits(object, task)?;
    match unique(object)? {
        Some(unique) => task.unique(unique).map_err(|bad| object.invalid("key", bad)),
        None => Ok(task),
    }
}

fn due(object: &Object<'_>, wait: &str, task: NewTask) -> Result<NewTask, InvalidField> {
    match (object.parsed("scheduled_at", time)?, object.parsed(wait, duration)?) {
        (Some(_), Some(_)) => {
            Err(object.invalid(wait, format!("give `scheduled_at` or `{wait}`, not both")))
        }
        (Some(at), None) => Ok(task.at(at)),
        (None, Some(after)) => Ok(task.after(after)),
        (None, None) => Ok(task),
    }
}

/// Named limits, each with its key, or `null` for the parameter that the limit names.
fn limits(object: &Object<'_>, mut task: NewTask) -> Result<NewTask, InvalidField> {
    let Some(value) = object.raw("limits") else { return Ok(task) };
    let named: std::collections::BTreeMap<String, Option<String>> =
        serde_json::from_str(value.get()).map_err(|_| {
            object.invalid(
                "limits",
                "expected names of limits with their keys, like {\"api\": \"acme\"}",
            )
        })?;
    for (name, key) in named {
        let limited = match key {
            Some(key) => task.limit(name, key),
            None => task.limit_named(name),
        };
        task = limited.map_err(|bad| object.invalid("limits", bad))?;
    }
    Ok(task)
}

fn unique(object: &Object<'_>) -> Result<Option<Unique>, InvalidField> {
    let Some(key) = object.text("key")? else {
        for needs_key in ["scope", "on_conflict"] {
            if object.raw(needs_key).is_some() {
                return Err(object.invalid(needs_key, "needs a `key`"));
            }
        }
        return Ok(None);
    };
    let mut unique = Unique::by(key);
    if let Some(scope) = object.parsed("scope", scope)? {
        unique = unique.scope(scope);
    }
    if let Some(answer) = object.parsed("on_conflict", str::parse::<OnConflict>)? {
        unique = unique.on_conflict(answer);
    }
    unique.check().map_err(|bad| object.invalid("key", bad))?;
    Ok(Some(unique))
}

fn scope(text: &str) -> Result<Scope, String> {
    match text {
        "waiting" => Ok(Scope::Waiting),
        "active" => Ok(Scope::Active),
        period => match duration(period) {
            Ok(period) if period >= Duration::from_millis(1) => Ok(Scope::Within(period)),
            _ => Err(format!("{text:?} is not waiting, active or a duration like 10m")),
        },
    }
}

fn retry(object: &Object<'_>) -> Result<Option<RetryOverride>, InvalidField> {
    const RESTART: &str = "restart_after_progress";
    let known = ["maximum", "first_delay_ms", "factor", "cap_ms", "jitter", RESTART];
    let Some(rule) = object.object("retry", &known)? else { return Ok(None) };
    let whole = "a whole number from 0 up";
    let mut own = RetryOverride::default();
    own.maximum = rule.whole("maximum", whole)?;
    own.first_delay = rule.whole("first_delay_ms", whole)?.map(Duration::from_millis);
    own.factor = rule.number("factor", 0.0, 1_000_000.0)?;
    own.cap = rule.whole("cap_ms", whole)?.map(Duration::from_millis);
    own.jitter = rule.number("jitter", 0.0, 1.0)?;
    own.restart_after_progress = rule.raw(RESTART).map(|_| rule.boolean(RESTART)).transpose()?;
    Ok(Some(own))
}

/// Parses a time like `2026-12-24T18:00:00Z`, also with another offset.
pub fn time(text: &str) -> Result<Timestamp, String> {
    let time: Timestamp = text
        .trim()
        .parse()
        .map_err(|_| format!("{text:?} is not a time; write 2026-12-24T18:00:00Z"))?;
    if time < Timestamp::UNIX_EPOCH {
        return Err("this is before 1970".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests;
