//! Durable tasks: their steps, signals to them, and reruns from a step.

use axum::Json as JsonResponse;
use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;
use task_engine_core::display::{StepEntry, step_timeline};
use task_engine_core::json::Json;
use task_engine_core::step::{SignalRow, SignalTarget, check_signal_name};
use task_engine_core::task::TaskId;
use task_engine_operations::durable::SignalOutcome;
use task_engine_operations::tasks::{Selection, TaskOperation};
use task_engine_operations::{Actor, OperationReport};

use super::body::{Body, Payload};
use super::query::{PathSignal, PathTask, Query};
use crate::app::App;
use crate::error::ApiError;
use crate::operation::perform;

#[derive(Serialize)]
pub(super) struct StepsView {
    task_id: TaskId,
    at: Timestamp,
    steps: Vec<StepEntry>,
    signals: Vec<SignalRow>,
}

/// The steps of a task as a timeline, and the signals that it got.
pub(super) async fn steps(
    State(app): State<App>,
    PathTask(id): PathTask,
    query: Query,
) -> Result<JsonResponse<StepsView>, ApiError> {
    query.with(&[])?;
    let task = app.task(id).await?;
    let recorded = app.steps(&task).await?;
    Ok(JsonResponse(StepsView {
        task_id: id,
        at: recorded.now,
        steps: step_timeline(&recorded, task.row.status),
        signals: recorded.signals,
    }))
}

/// Sends a signal to the task of the path. The body is its payload, so the reason is in the
/// query.
pub(super) async fn signal_task(
    State(app): State<App>,
    actor: Actor,
    PathSignal(id, name): PathSignal,
    query: Query,
    Payload(payload): Payload,
) -> Result<JsonResponse<SignalOutcome>, ApiError> {
    let query = query.with(&["reason"])?;
    send(&app, &actor, query.text("reason"), SignalTarget::Id(id), name, payload).await
}

/// Sends a signal to the task with a class and a unique key.
pub(super) async fn signal_key(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<JsonResponse<SignalOutcome>, ApiError> {
    let object = body.object(&["class", "key", "name", "payload", "reason"])?;
    let class = object.required_text("class")?;
    let target = SignalTarget::UniqueKey { class, key: object.required_text("key")? };
    let name = object.required_text("name")?;
    check_signal_name(&name).map_err(|bad| object.invalid("name", bad))?;
    let payload = match object.raw("payload") {
        Some(payload) => {
            Json::parse(payload.get()).map_err(|bad| object.invalid("payload", bad))?
        }
        None => Json::null(),
    };
    send(&app, &actor, object.reason()?.as_deref(), target, name, payload).await
}

async fn send(
    app: &App,
    actor: &Actor,
    reason: Option<&str>,
    target: SignalTarget,
    name: String,
    payload: Json,
) -> Result<JsonResponse<SignalOutcome>, ApiError> {
    let sent = perform(app, actor, reason, |operator| async move {
        operator.signal(&target, &name, &payload).await
    })
    .await?;
    if sent.status.is_accepted() {
        return Ok(JsonResponse(sent));
    }
    let outcome = Some(sent.status.as_str());
    Err(ApiError { outcome, ..ApiError::conflict(sent.report.message) })
}

/// Creates a task again, from its beginning or from a step.
pub(super) async fn rerun(
    State(app): State<App>,
    actor: Actor,
    PathTask(id): PathTask,
    body: Body,
) -> Result<JsonResponse<OperationReport>, ApiError> {
    let object = body.object(&["from", "reason"])?;
    let (from, reason) = (object.text("from")?, object.reason()?);
    perform(&app, &actor, reason.as_deref(), |operator| async move {
        match from {
            Some(step) => operator.rerun_from(id, &step).await,
            None => operator.change_tasks(TaskOperation::Rerun, &Selection::Ids(vec![id])).await,
        }
    })
    .await
    .map(JsonResponse)
}
