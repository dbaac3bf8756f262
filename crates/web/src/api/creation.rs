//! `POST /api/v1/tasks`: one task, or many, all or none.

use std::time::Duration;

use axum::Json as JsonResponse;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use serde::Serialize;
use serde_json::value::RawValue;
use task_engine_core::json::Json;
use task_engine_core::retry::RetryOverride;
use task_engine_core::secret::Redactor;
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::unique::{OnConflict, Scope, Unique};
use task_engine_operations::OperationOutcome;
use task_engine_operations::schedules::creation_outcome;

use super::body::{Body, Object, canonical_with, kind, list};
use super::times::{duration, time};
use crate::access::Actor;
use crate::app::App;
use crate::error::ApiError;
use crate::operation::{NewTasks, mark_all, mark_of};

/// Tasks per request.
const TASKS_MAX: usize = 1_000;
const FIELDS: [&str; 12] = [
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
];

#[derive(Serialize)]
struct CreationReport {
    tasks: Vec<CreationOutcome>,
}

#[derive(Serialize)]
struct CreationOutcome {
    id: TaskId,
    new: bool,
    outcome: OperationOutcome,
}

pub(super) async fn create(
    State(app): State<App>,
    actor: Actor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let key = idempotency_key(&headers)?;
    let requested = read(&body)?;
    let pointers = requested.iter().map(|it| (&it.task, format!("{}/parameters", it.pointer)));
    app.check_placeholders(pointers).await?;
    let new = match key {
        None => NewTasks { tasks: requested.into_iter().map(|it| it.task).collect(), marks: None },
        Some(key) => {
            let marks = marks(&app, &requested).await?;
            let mut tasks: Vec<_> = requested.into_iter().map(|it| it.task).collect();
            mark_all(&mut tasks, key, &marks)?;
            NewTasks { tasks, marks: Some(marks) }
        }
    };
    let creations = new.create_for(&app, &actor).await?;
    let tasks: Vec<_> = creations
        .iter()
        .map(|creation| CreationOutcome {
            id: creation.id(),
            new: creation.is_new(),
            outcome: creation_outcome(creation),
        })
        .collect();
    let any_new = tasks.iter().any(|task| task.new);
    let status = if any_new { StatusCode::CREATED } else { StatusCode::OK };
    let location = match &tasks[..] {
        [one] => Some((header::LOCATION, app.path(&format!("/api/v1/tasks/{}", one.id)))),
        _ => None,
    };
    let answer = JsonResponse(CreationReport { tasks });
    Ok((status, location.map(|location| AppendHeaders([location])), answer).into_response())
}

/// A task, its JSON, and the pointer to it.
struct RequestedTask<'a> {
    task: NewTask,
    sent: &'a RawValue,
    pointer: String,
}

/// The marks of the whole request, without its secrets, one for each task.
async fn marks(app: &App, requested: &[RequestedTask<'_>]) -> Result<Vec<String>, ApiError> {
    let secrets = app.secrets().await?;
    let (mut request, mut hidden) = (String::new(), Vec::new());
    for RequestedTask { task, sent, pointer } in requested {
        let paths = secrets.of_class(&task.class);
        let redactor = Redactor::of(&task.parameters, &Json::empty_object(), &paths);
        let redacted = redactor.parameters().unwrap_or(&task.parameters);
        request.push_str(pointer);
        request.push_str(&canonical_with(sent, "parameters", redacted.as_str()));
        request.push('\0');
        hidden.push(paths.join("\n"));
    }
    let keys = app.keys.get(&*app.store).await?;
    Ok(hidden.iter().map(|paths| mark_of(keys, paths, request.as_bytes())).collect())
}

/// An object is a task; a list, or a list in an object, is many.
fn read(body: &Body) -> Result<Vec<RequestedTask<'_>>, ApiError> {
    let value = body.value()?;
    if let Some(tasks) = list(value) {
        return many(&tasks, "");
    }
    if is_task_list(value) {
        let all = Object::read(value, String::new(), &["tasks"])?;
        let found = all.raw("tasks").ok_or_else(|| all.invalid("tasks", "the field is missing"))?;
        let tasks = list(found).ok_or_else(|| {
            all.invalid("tasks", format!("expected a list, found {}", kind(found)))
        })?;
        return many(&tasks, "/tasks");
    }
    let one = Object::read(value, String::new(), &FIELDS)?;
    Ok(vec![RequestedTask { task: task(&one)?, sent: value, pointer: String::new() }])
}

fn is_task_list(value: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    struct Many<'a> {
        #[serde(borrow)]
        tasks: Option<&'a RawValue>,
    }
    serde_json::from_str::<Many<'_>>(value.get()).is_ok_and(|many| many.tasks.is_some())
}

fn many<'a>(values: &[&'a RawValue], pointer: &str) -> Result<Vec<RequestedTask<'a>>, ApiError> {
    if values.is_empty() || values.len() > TASKS_MAX {
        let why = format!("Send 1 to {TASKS_MAX} tasks, not {}.", values.len());
        return Err(ApiError::field(pointer, why));
    }
    let read = |(at, sent): (usize, &&'a RawValue)| {
        let pointer = format!("{pointer}/{at}");
        let task = task(&Object::read(sent, pointer.clone(), &FIELDS)?)?;
        Ok(RequestedTask { task, sent, pointer })
    };
    values.iter().enumerate().map(read).collect()
}

/// The task of an object.
pub(super) fn task(object: &Object<'_>) -> Result<NewTask, ApiError> {
    let parameters = object.json_object("parameters")?.unwrap_or_else(Json::empty_object);
    let class = object.required_text("class")?;
    let mut task = NewTask::new(class, parameters).map_err(|bad| object.invalid("class", bad))?;
    if let Some(queue) = object.text("queue")? {
        task = task.queue(queue).map_err(|bad| object.invalid("queue", bad))?;
    }
    if let Some(priority) = object.whole("priority", "a whole number of 32 bits")? {
        task = task.priority(priority);
    }
    task = due(object, task)?;
    if let Some(rule) = retry(object)? {
        task = task.retry(rule);
    }
    if let Some(id) = object.text("correlation_id")? {
        task = task.correlation(id).map_err(|bad| object.invalid("correlation_id", bad))?;
    }
    if let Some(text) = object.text("traceparent")? {
        task = task.traceparent(text).map_err(|bad| object.invalid("traceparent", bad))?;
    }
    match unique(object)? {
        Some(unique) => task.unique(unique).map_err(|bad| object.invalid("key", bad)),
        None => Ok(task),
    }
}

fn due(object: &Object<'_>, task: NewTask) -> Result<NewTask, ApiError> {
    match (object.parsed("scheduled_at", time)?, object.parsed("after", duration)?) {
        (Some(_), Some(_)) => {
            Err(object.invalid("after", "give `scheduled_at` or `after`, not both"))
        }
        (Some(at), None) => Ok(task.at(at)),
        (None, Some(after)) => Ok(task.after(after)),
        (None, None) => Ok(task),
    }
}

fn unique(object: &Object<'_>) -> Result<Option<Unique>, ApiError> {
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

fn retry(object: &Object<'_>) -> Result<Option<RetryOverride>, ApiError> {
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

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const IDEMPOTENCY_KEY_MAX: usize = 255;

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut all = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = all.next() else { return Ok(None) };
    let key = key.to_str().ok().map(str::trim).filter(|_| all.next().is_none());
    match key {
        Some(key) if (1..=IDEMPOTENCY_KEY_MAX).contains(&key.len()) => Ok(Some(key)),
        _ => Err(ApiError::bad_request(format!(
            "Idempotency-Key must be one value of 1 to {IDEMPOTENCY_KEY_MAX} ASCII characters, like a UUID."
        ))),
    }
}
