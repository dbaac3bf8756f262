//! Reading tasks.

use axum::Json as JsonResponse;
use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;
use task_engine_core::filter::FoundTask;
use task_engine_core::progress::{LogFilter, LogRow};
use task_engine_core::task::{TaskDetails, TaskId, TaskRow, TaskStatus};
use task_engine_operations::flows::{TASK_RELATIONS_SHOWN, TaskRelations};
use task_engine_operations::search::{Search, TIMEOUT};
use task_engine_operations::why::Reason;

use super::query::{PathTask, Query};
use crate::access::Actor;
use crate::app::App;
use crate::error::ApiError;

/// A task in a list, without its parameters, which may be large or secret.
#[derive(Serialize)]
pub(super) struct Listed {
    #[serde(flatten)]
    row: TaskRow,
    correlation_id: String,
}

impl From<FoundTask> for Listed {
    fn from(found: FoundTask) -> Self {
        Self { row: found.row, correlation_id: found.correlation_id }
    }
}

#[derive(Serialize)]
pub(super) struct TasksView {
    tasks: Vec<Listed>,
    /// `before` of the next page.
    next: Option<TaskId>,
    at: Timestamp,
}

pub(super) async fn list(
    State(app): State<App>,
    actor: Actor,
    query: Query,
) -> Result<JsonResponse<TasksView>, ApiError> {
    let query = query.with(&["filter", "before", "limit"])?;
    let search = Search {
        filter: query.filter(&app, &actor).await?,
        before: query.parse("before")?,
        limit: query.limit(50, 500)?,
        timeout: TIMEOUT,
    };
    let found = search.run(&*app.store).await?;
    let tasks = found.tasks.into_iter().map(Listed::from).collect();
    Ok(JsonResponse(TasksView { tasks, next: found.next, at: found.now }))
}

/// A task with what it depends on, and what depends on it.
#[derive(Serialize)]
pub(super) struct TaskView {
    #[serde(flatten)]
    task: TaskDetails,
    #[serde(flatten)]
    relations: TaskRelations,
}

pub(super) async fn show(
    State(app): State<App>,
    PathTask(id): PathTask,
    query: Query,
) -> Result<JsonResponse<TaskView>, ApiError> {
    query.with(&[])?;
    let task = app.task(id).await?.task;
    let relations = TaskRelations::read(&*app.store, id, TASK_RELATIONS_SHOWN).await?;
    Ok(JsonResponse(TaskView { task, relations }))
}

#[derive(Serialize)]
pub(super) struct LogPage {
    lines: Vec<LogRow>,
    /// `after` of the next page.
    next: Option<String>,
}

pub(super) async fn logs(
    State(app): State<App>,
    PathTask(id): PathTask,
    query: Query,
) -> Result<JsonResponse<LogPage>, ApiError> {
    let query = query.with(&["attempt", "after", "limit"])?;
    let after = query.text("after").map(log_position).transpose()?;
    let limit = query.limit(200, 500)?;
    let filter =
        LogFilter { attempt: query.parse("attempt")?, after, before: None, newest: false, limit };
    let lines = app.logs(&app.task(id).await?, &filter).await?;
    let last = lines.last().filter(|_| lines.len() >= limit as usize);
    let next = last.map(|last| format!("{}.{}", last.attempt, last.line));
    Ok(JsonResponse(LogPage { lines, next }))
}

/// An attempt and a line: `2.17`.
fn log_position(text: &str) -> Result<(i32, i32), ApiError> {
    let pair = text.split_once('.');
    let read = pair.and_then(|(attempt, line)| Some((attempt.parse().ok()?, line.parse().ok()?)));
    read.ok_or_else(|| {
        ApiError::parameter(
            "after",
            "after is an attempt and a line, like 2.17: send `next` of the last page.",
        )
    })
}

#[derive(Serialize)]
pub(super) struct WhyResponse {
    task_id: TaskId,
    status: TaskStatus,
    at: Timestamp,
    reasons: Vec<ReasonView>,
}

#[derive(Serialize)]
struct ReasonView {
    #[serde(flatten)]
    reason: Reason,
    message: String,
}

pub(super) async fn why(
    State(app): State<App>,
    PathTask(id): PathTask,
    query: Query,
) -> Result<JsonResponse<WhyResponse>, ApiError> {
    query.with(&[])?;
    let (why, _) = app.why(id).await?;
    let view = |reason: Reason| ReasonView {
        message: task_engine_operations::why::sentences::reason(&reason, why.at, &app.zone),
        reason,
    };
    Ok(JsonResponse(WhyResponse {
        task_id: id,
        status: why.task.row.status,
        at: why.at,
        reasons: why.reasons.into_iter().map(view).collect(),
    }))
}
