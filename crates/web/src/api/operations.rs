//! Operations on tasks, queues and engines for programs. All of them are audited.

use axum::Json as JsonResponse;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use task_engine_core::change::Edit;
use task_engine_core::filter::Filter;
use task_engine_core::queue::check_queue_name;
use task_engine_core::task::Due;
use task_engine_operations::tasks::{FindOptions, Selection, TaskOperation};
use task_engine_operations::{Actor, OperationReport};

use super::body::{Body, ChangeReason, Object};
use super::query::{PathName, PathTask, Query};
use super::tasks::Listed;
use super::times::{duration, time};
use crate::app::App;
use crate::error::ApiError;
use crate::operation::{NamedOperation, perform};

/// Changes one task.
pub(super) async fn change_task(
    State(app): State<App>,
    actor: Actor,
    PathTask(id): PathTask,
    ChangeReason(reason): ChangeReason,
    operation: TaskOperation,
) -> Result<JsonResponse<OperationReport>, ApiError> {
    let selection = Selection::Ids(vec![id]);
    perform(&app, &actor, reason.as_deref(), |operator| async move {
        operator.change_tasks(operation, &selection).await
    })
    .await
    .map(JsonResponse)
}

/// Changes the queue, engine, schedule or token of the path.
pub(super) async fn change_named(
    State(app): State<App>,
    actor: Actor,
    PathName(name): PathName,
    ChangeReason(reason): ChangeReason,
    operation: NamedOperation,
) -> Result<JsonResponse<OperationReport>, ApiError> {
    perform(&app, &actor, reason.as_deref(), |operator| operation.perform(operator, name))
        .await
        .map(JsonResponse)
}

pub(super) async fn edit(
    State(app): State<App>,
    actor: Actor,
    PathTask(id): PathTask,
    query: Query,
    body: Body,
) -> Result<JsonResponse<OperationReport>, ApiError> {
    let check = query.checks_parameters()?;
    let known = ["parameters", "queue", "priority", "scheduled_at", "after", "reason"];
    let object = body.object(&known)?;
    let queue = object.text("queue")?;
    if let Some(queue) = &queue {
        check_queue_name(queue).map_err(|bad| object.invalid("queue", bad))?;
    }
    let due = match (object.parsed("scheduled_at", time)?, object.parsed("after", duration)?) {
        (Some(_), Some(_)) => {
            return Err(object.invalid("after", "give `scheduled_at` or `after`, not both").into());
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
    perform(&app, &actor, reason.as_deref(), |operator| async move {
        operator.checking_parameters(check).edit(id, edit).await
    })
    .await
    .map(JsonResponse)
}

/// The tasks that a bulk operation would change.
#[derive(Serialize)]
struct DryRun {
    dry_run: bool,
    count: usize,
    and_more: bool,
    sample: Vec<Listed>,
}

/// Changes the tasks of a selection, or lists them.
pub(super) async fn change_tasks(
    State(app): State<App>,
    actor: Actor,
    body: Body,
    operation: TaskOperation,
) -> Result<Response, ApiError> {
    let object = body.object(&["filter", "ids", "reason", "dry_run"])?;
    let selection = selection(&app, &object)?;
    if object.boolean("dry_run")? {
        let operator = app.operator(&actor);
        let found = operator.find(operation, &selection, FindOptions::of_request()).await?;
        let sample = found.sample.into_iter().map(Listed::from).collect();
        let (count, and_more) = (found.ids.len(), found.and_more);
        return Ok(JsonResponse(DryRun { dry_run: true, count, and_more, sample }).into_response());
    }
    let reason = object.reason()?;
    let report = perform(&app, &actor, reason.as_deref(), |operator| async move {
        operator.change_tasks(operation, &selection).await
    })
    .await?;
    Ok(JsonResponse(report).into_response())
}

fn selection(app: &App, object: &Object<'_>) -> Result<Selection, ApiError> {
    match (object.ids("ids")?, object.text("filter")?) {
        (Some(_), Some(_)) => {
            Err(object.invalid("filter", "there are `ids` as well; give one").into())
        }
        (Some(ids), None) if ids.is_empty() => {
            Err(object.invalid("ids", "the list is empty").into())
        }
        (Some(ids), None) => Ok(Selection::Ids(ids)),
        (None, Some(text)) => match Filter::parse(&text, &app.zone) {
            Ok(filter) if filter.is_empty() => {
                Err(object.invalid("filter", "an empty filter matches every task").into())
            }
            Ok(filter) => Ok(Selection::Filter(filter)),
            Err(bad) => Err(object.invalid("filter", bad).into()),
        },
        (None, None) => Err(object.invalid("filter", "it is missing, and so are `ids`").into()),
    }
}
