//! `POST /api/v1/tasks`: one task, or many, all or none.

use axum::Json as JsonResponse;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use serde::Serialize;
use serde_json::value::RawValue;
use task_engine_core::json::Json;
use task_engine_core::secret::Redactor;
use task_engine_core::task::{NewTask, TaskId};
use task_engine_operations::OperationOutcome;
use task_engine_operations::definition::{TASK_FIELDS, task};
use task_engine_operations::schedules::creation_outcome;

use super::body::{Body, Object, canonical_with, kind, list};
use super::query::Query;
use crate::access::Actor;
use crate::app::App;
use crate::error::ApiError;
use crate::operation::{NewTasks, mark_all, mark_of};

/// Tasks per request.
const TASKS_MAX: usize = 1_000;

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
    query: Query,
    body: Body,
) -> Result<Response, ApiError> {
    let key = idempotency_key(&headers)?;
    let check = query.checks_parameters()?;
    let requested = read(&body)?;
    let pointers = requested.iter().map(|it| (&it.task, format!("{}/parameters", it.pointer)));
    app.check_placeholders(pointers).await?;
    if check {
        app.check_parameters(requested.iter().map(|it| (&it.task, it.pointer.as_str()))).await?;
    }
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
    let one = Object::read(value, String::new(), &TASK_FIELDS)?;
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
        let task = task(&Object::read(sent, pointer.clone(), &TASK_FIELDS)?)?;
        Ok(RequestedTask { task, sent, pointer })
    };
    values.iter().enumerate().map(read).collect()
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const IDEMPOTENCY_KEY_MAX: usize = 255;

pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
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
