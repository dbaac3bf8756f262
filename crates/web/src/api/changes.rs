//! Operations on tasks, queues and engines for programs. All of them are audited.

use axum::Json as Answer;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use task_engine_core::change::Edit;
use task_engine_core::filter::Filter;
use task_engine_core::queue::{QueuePause, check_queue_name};
use task_engine_core::task::Due;
use task_engine_core::task::TaskId;
use task_engine_operations::tasks::{FindOptions, Selection, TaskOperation};
use task_engine_operations::{Actor, OperationReport};

use super::body::{Body, Object};
use super::query::{PathName, PathTask, Query};
use super::tasks::Listed;
use super::times::{duration, time};
use crate::action::perform;
use crate::app::App;
use crate::error::ApiError;

/// The reason, from a body that has no other field.
pub(super) fn reason_of(body: &Body) -> Result<Option<String>, ApiError> {
    body.object(&["reason"])?.reason()
}

async fn change_one(
    app: &App,
    actor: &Actor,
    id: TaskId,
    reason: Option<&str>,
    operation: TaskOperation,
) -> Result<Answer<OperationReport>, ApiError> {
    let selection = Selection::Ids(vec![id]);
    perform(app, actor, reason, |operator| async move {
        operator.change_tasks(operation, &selection).await
    })
    .await
    .map(Answer)
}

pub(super) async fn retry(
    State(app): State<App>,
    actor: Actor,
    PathTask(id): PathTask,
    body: Body,
) -> Result<Answer<OperationReport>, ApiError> {
    change_one(&app, &actor, id, reason_of(&body)?.as_deref(), TaskOperation::Retry).await
}

pub(super) async fn cancel(
    State(app): State<App>,
    actor: Actor,
    PathTask(id): PathTask,
    body: Body,
) -> Result<Answer<OperationReport>, ApiError> {
    change_one(&app, &actor, id, reason_of(&body)?.as_deref(), TaskOperation::Cancel).await
}

pub(super) async fn rerun(
    State(app): State<App>,
    actor: Actor,
    PathTask(id): PathTask,
    body: Body,
) -> Result<Answer<OperationReport>, ApiError> {
    change_one(&app, &actor, id, reason_of(&body)?.as_deref(), TaskOperation::Rerun).await
}

pub(super) async fn delete(
    State(app): State<App>,
    actor: Actor,
    PathTask(id): PathTask,
    query: Query,
) -> Result<Answer<OperationReport>, ApiError> {
    let query = query.with(&["reason"])?;
    change_one(&app, &actor, id, query.text("reason"), TaskOperation::Delete).await
}

pub(super) async fn edit(
    State(app): State<App>,
    actor: Actor,
    PathTask(id): PathTask,
    body: Body,
) -> Result<Answer<OperationReport>, ApiError> {
    let known = ["parameters", "queue", "priority", "scheduled_at", "after", "reason"];
    let object = body.object(&known)?;
    let queue = object.text("queue")?;
    if let Some(queue) = &queue {
        check_queue_name(queue).map_err(|bad| object.invalid("queue", bad))?;
    }
    let due = match (object.parsed("scheduled_at", time)?, object.parsed("after", duration)?) {
        (Some(_), Some(_)) => {
            return Err(object.invalid("after", "give `scheduled_at` or `after`, not both"));
        }
        (at, after) => at.map(Due::At).or(after.map(Due::After)),
    };
    let edit = Edit {
        parameters: object.json_object("parameters")?,
        due,
        priority: object.whole("priority", "a whole number of 32 bits")?,
        queue,
    };
    if edit.is_empty() {
        return Err(ApiError::field(
            "",
            "Nothing to change. Give parameters, queue, priority, scheduled_at or after.",
        ));
    }
    let reason = object.reason()?;
    perform(
        &app,
        &actor,
        reason.as_deref(),
        |operator| async move { operator.edit(id, edit).await },
    )
    .await
    .map(Answer)
}

/// The tasks that a bulk operation would change.
#[derive(Serialize)]
struct DryRun {
    dry_run: bool,
    count: usize,
    and_more: bool,
    sample: Vec<Listed>,
}

async fn change_many(
    app: &App,
    actor: &Actor,
    body: &Body,
    operation: TaskOperation,
) -> Result<Response, ApiError> {
    let object = body.object(&["filter", "ids", "reason", "dry_run"])?;
    let selection = selection(app, &object)?;
    if object.boolean("dry_run")? {
        let operator = app.operator(actor);
        let found = operator.find(operation, &selection, FindOptions::of_request()).await?;
        let sample = found.sample.into_iter().map(Listed::from).collect();
        let (count, and_more) = (found.ids.len(), found.and_more);
        return Ok(Answer(DryRun { dry_run: true, count, and_more, sample }).into_response());
    }
    let reason = object.reason()?;
    let report = perform(app, actor, reason.as_deref(), |operator| async move {
        operator.change_tasks(operation, &selection).await
    })
    .await?;
    Ok(Answer(report).into_response())
}

fn selection(app: &App, object: &Object<'_>) -> Result<Selection, ApiError> {
    match (object.ids("ids")?, object.text("filter")?) {
        (Some(_), Some(_)) => Err(object.invalid("filter", "there are `ids` as well; give one")),
        (Some(ids), None) if ids.is_empty() => Err(object.invalid("ids", "the list is empty")),
        (Some(ids), None) => Ok(Selection::Ids(ids)),
        (None, Some(text)) => match Filter::parse(&text, &app.zone) {
            Ok(filter) if filter.is_empty() => {
                Err(object.invalid("filter", "an empty filter matches every task"))
            }
            Ok(filter) => Ok(Selection::Filter(filter)),
            Err(bad) => Err(object.invalid("filter", bad)),
        },
        (None, None) => Err(object.invalid("filter", "it is missing, and so are `ids`")),
    }
}

pub(super) async fn retry_many(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<Response, ApiError> {
    change_many(&app, &actor, &body, TaskOperation::Retry).await
}

pub(super) async fn cancel_many(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<Response, ApiError> {
    change_many(&app, &actor, &body, TaskOperation::Cancel).await
}

pub(super) async fn rerun_many(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<Response, ApiError> {
    change_many(&app, &actor, &body, TaskOperation::Rerun).await
}

pub(super) async fn delete_many(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<Response, ApiError> {
    change_many(&app, &actor, &body, TaskOperation::Delete).await
}

pub(super) async fn pause_queue(
    State(app): State<App>,
    actor: Actor,
    PathName(name): PathName,
    body: Body,
) -> Result<Answer<OperationReport>, ApiError> {
    let reason = reason_of(&body)?;
    let pause = QueuePause::new(name, reason.clone())
        .map_err(|bad| ApiError::field("/reason", bad.to_string()))?;
    perform(&app, &actor, reason.as_deref(), |operator| async move {
        operator.pause_queue(&pause).await
    })
    .await
    .map(Answer)
}

pub(super) async fn resume_queue(
    State(app): State<App>,
    actor: Actor,
    PathName(name): PathName,
    body: Body,
) -> Result<Answer<OperationReport>, ApiError> {
    let reason = reason_of(&body)?;
    perform(&app, &actor, reason.as_deref(), |operator| async move {
        operator.resume_queue(&name).await
    })
    .await
    .map(Answer)
}

pub(super) async fn recover(
    State(app): State<App>,
    actor: Actor,
    PathName(name): PathName,
    body: Body,
) -> Result<Answer<OperationReport>, ApiError> {
    let reason = reason_of(&body)?;
    perform(
        &app,
        &actor,
        reason.as_deref(),
        |operator| async move { operator.recover(&name).await },
    )
    .await
    .map(Answer)
}
