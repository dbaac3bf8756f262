//! `POST /api/v1/tasks`: one task, or many, all or none.

use std::time::Duration;

use axum::Json as Answer;
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
use crate::action::{NewTasks, mark_all, mark_of};
use crate::app::App;
use crate::problem::Problem;

/// So many are created by one request at the most.
const TASKS_MAX: usize = 1_000;
const FIELDS: [&str; 12] = [
    "class",
    "parameters",
    "queue",
    "priority",
    "at",
    "after",
    "key",
    "scope",
    "on_conflict",
    "correlation",
    "traceparent",
    "retry",
];

#[derive(Serialize)]
struct Created {
    tasks: Vec<CreatedTask>,
}

#[derive(Serialize)]
struct CreatedTask {
    id: TaskId,
    new: bool,
    outcome: OperationOutcome,
}

pub(super) async fn create(
    State(app): State<App>,
    actor: Actor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers)?;
    let asked = read(&body)?;
    let places = asked.iter().map(|it| (&it.task, format!("{}/parameters", it.place)));
    app.check_placeholders(places).await?;
    let new = match key {
        None => NewTasks { tasks: asked.into_iter().map(|it| it.task).collect(), marks: None },
        Some(key) => {
            let marks = marks(&app, &asked).await?;
            let mut tasks: Vec<_> = asked.into_iter().map(|it| it.task).collect();
            mark_all(&mut tasks, key, &marks)?;
            NewTasks { tasks, marks: Some(marks) }
        }
    };
    let creations = new.create_for(&app, &actor).await?;
    let tasks: Vec<_> = creations
        .iter()
        .map(|creation| CreatedTask {
            id: creation.id(),
            new: creation.is_new(),
            outcome: creation_outcome(creation),
        })
        .collect();
    let any_new = tasks.iter().any(|task| task.new);
    let status = if any_new { StatusCode::CREATED } else { StatusCode::OK };
    let place = match &tasks[..] {
        [one] => Some((header::LOCATION, app.path(&format!("/api/v1/tasks/{}", one.id)))),
        _ => None,
    };
    let answer = Answer(Created { tasks });
    Ok((status, place.map(|place| AppendHeaders([place])), answer).into_response())
}

/// A task, what was sent, and where in the body.
struct Asked<'a> {
    task: NewTask,
    sent: &'a RawValue,
    place: String,
}

/// The marks of the whole request, without its secrets, one for each task.
async fn marks(app: &App, asked: &[Asked<'_>]) -> Result<Vec<String>, Problem> {
    let secrets = app.secrets().await?;
    let (mut request, mut hidden) = (String::new(), Vec::new());
    for Asked { task, sent, place } in asked {
        let paths = secrets.of_class(&task.class);
        let redactor = Redactor::of(&task.parameters, &Json::empty_object(), &paths);
        let shown = redactor.parameters().unwrap_or(&task.parameters);
        // What was read is not deep.
        request.push_str(place);
        request.push_str(&canonical_with(sent, "parameters", shown.as_str()));
        request.push('\0');
        hidden.push(paths.join("\n"));
    }
    let keys = app.keys.get(&*app.store).await?;
    Ok(hidden.iter().map(|paths| mark_of(keys, paths, request.as_bytes())).collect())
}

/// An object is a task; a list, or a list in an object, is many.
fn read(body: &Body) -> Result<Vec<Asked<'_>>, Problem> {
    let value = body.value()?;
    if let Some(tasks) = list(value) {
        return many(&tasks, "");
    }
    if is_of_many(value) {
        let all = Object::read(value, String::new(), &["tasks"])?;
        let found = all.raw("tasks").ok_or_else(|| all.wrong("tasks", "it is missing"))?;
        let tasks = list(found).ok_or_else(|| {
            all.wrong("tasks", format!("a list is needed, this is {}", kind(found)))
        })?;
        return many(&tasks, "/tasks");
    }
    let one = Object::read(value, String::new(), &FIELDS)?;
    Ok(vec![Asked { task: task(&one)?, sent: value, place: String::new() }])
}

fn is_of_many(value: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    struct Many<'a> {
        #[serde(borrow)]
        tasks: Option<&'a RawValue>,
    }
    serde_json::from_str::<Many<'_>>(value.get()).is_ok_and(|many| many.tasks.is_some())
}

fn many<'a>(values: &[&'a RawValue], place: &str) -> Result<Vec<Asked<'a>>, Problem> {
    if values.is_empty() || values.len() > TASKS_MAX {
        let why = format!("1 to {TASKS_MAX} tasks at once, not {}.", values.len());
        return Err(Problem::field(place, why));
    }
    let read = |(at, sent): (usize, &&'a RawValue)| {
        let place = format!("{place}/{at}");
        let task = task(&Object::read(sent, place.clone(), &FIELDS)?)?;
        Ok(Asked { task, sent, place })
    };
    values.iter().enumerate().map(read).collect()
}

/// A task as it is to be created.
pub(super) fn task(object: &Object<'_>) -> Result<NewTask, Problem> {
    let parameters = object.json_object("parameters")?.unwrap_or_else(Json::empty_object);
    let class = object.need_text("class")?;
    let mut task = NewTask::new(class, parameters).map_err(|bad| object.wrong("class", bad))?;
    if let Some(queue) = object.text("queue")? {
        task = task.queue(queue).map_err(|bad| object.wrong("queue", bad))?;
    }
    if let Some(priority) = object.whole("priority", "a whole number of 32 bits")? {
        task = task.priority(priority);
    }
    task = due(object, task)?;
    if let Some(rule) = retry(object)? {
        task = task.retry(rule);
    }
    if let Some(id) = object.text("correlation")? {
        task = task.correlation(id).map_err(|bad| object.wrong("correlation", bad))?;
    }
    if let Some(text) = object.text("traceparent")? {
        task = task.traceparent(text).map_err(|bad| object.wrong("traceparent", bad))?;
    }
    match unique(object)? {
        Some(unique) => task.unique(unique).map_err(|bad| object.wrong("key", bad)),
        None => Ok(task),
    }
}

fn due(object: &Object<'_>, task: NewTask) -> Result<NewTask, Problem> {
    match (object.parsed("at", time)?, object.parsed("after", duration)?) {
        (Some(_), Some(_)) => {
            Err(object.wrong("after", "there is `at` as well; a task has one time"))
        }
        (Some(at), None) => Ok(task.at(at)),
        (None, Some(after)) => Ok(task.after(after)),
        (None, None) => Ok(task),
    }
}

fn unique(object: &Object<'_>) -> Result<Option<Unique>, Problem> {
    let Some(key) = object.text("key")? else {
        for needs_key in ["scope", "on_conflict"] {
            if object.raw(needs_key).is_some() {
                return Err(object.wrong(needs_key, "it says nothing without a `key`"));
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
    unique.check().map_err(|bad| object.wrong("key", bad))?;
    Ok(Some(unique))
}

fn scope(text: &str) -> Result<Scope, String> {
    match text {
        "waiting" => Ok(Scope::Waiting),
        "active" => Ok(Scope::Active),
        period => match duration(period) {
            Ok(period) if period >= Duration::from_millis(1) => Ok(Scope::Within(period)),
            _ => Err(format!("{text:?} is none of waiting, active, or a duration like 10m")),
        },
    }
}

fn retry(object: &Object<'_>) -> Result<Option<RetryOverride>, Problem> {
    let known = ["maximum", "first_delay_ms", "factor", "cap_ms", "jitter"];
    let Some(rule) = object.object("retry", &known)? else { return Ok(None) };
    let whole = "a whole number from 0 up";
    let mut own = RetryOverride::default();
    own.maximum = rule.whole("maximum", whole)?;
    own.first_delay = rule.whole("first_delay_ms", whole)?.map(Duration::from_millis);
    own.factor = rule.number("factor", 0.0, 1_000_000.0)?;
    own.cap = rule.whole("cap_ms", whole)?.map(Duration::from_millis);
    own.jitter = rule.number("jitter", 0.0, 1.0)?;
    Ok(Some(own))
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const IDEMPOTENCY_KEY_MAX: usize = 255;

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut all = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = all.next() else { return Ok(None) };
    let key = key.to_str().ok().map(str::trim).filter(|_| all.next().is_none());
    match key {
        Some(key) if (1..=IDEMPOTENCY_KEY_MAX).contains(&key.len()) => Ok(Some(key)),
        _ => Err(Problem::bad(format!(
            "Idempotency-Key is one text of 1 to {IDEMPOTENCY_KEY_MAX} characters of ASCII, like a UUID."
        ))),
    }
}
