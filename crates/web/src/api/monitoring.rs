//! Statistics, queues, engines, errors and checks.

use axum::Json as JsonResponse;
use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;
use task_engine_core::instance::InstanceSummary;
use task_engine_core::queue::{BoundedCount, QueueService, queue_services};
use task_engine_core::task::TaskId;
use task_engine_operations::errors::{ErrorGroup, Failures, LIMIT};
use task_engine_operations::stats::{QueueStats, Stats};
use task_engine_store::check::Check;

use super::query::Query;
use crate::access::Actor;
use crate::app::App;
use crate::error::ApiError;

pub(super) async fn stats(
    State(app): State<App>,
    query: Query,
) -> Result<JsonResponse<Stats>, ApiError> {
    query.with(&[])?;
    Ok(JsonResponse(app.cache.stats().await?.stats.clone()))
}

#[derive(Serialize)]
pub(super) struct QueuesView {
    queues: Vec<QueueView>,
    at: Timestamp,
}

#[derive(Serialize)]
struct QueueView {
    #[serde(flatten)]
    stats: QueueStats,
    served_by: Vec<QueueService>,
}

pub(super) async fn queues(
    State(app): State<App>,
    query: Query,
) -> Result<JsonResponse<QueuesView>, ApiError> {
    query.with(&[])?;
    let now = app.cache.now().await?;
    let queue = |stats: &QueueStats| QueueView {
        served_by: queue_services(&stats.row.name, &now.engines),
        stats: stats.clone(),
    };
    let queues = now.stats.queues.iter().map(queue).collect();
    Ok(JsonResponse(QueuesView { queues, at: now.activity.now }))
}

#[derive(Serialize)]
pub(super) struct InstanceList {
    instances: Vec<InstanceSummary>,
}

pub(super) async fn instances(
    State(app): State<App>,
    query: Query,
) -> Result<JsonResponse<InstanceList>, ApiError> {
    query.with(&[])?;
    let now = app.cache.now().await?;
    Ok(JsonResponse(InstanceList {
        instances: now.engines.iter().map(InstanceSummary::from).collect(),
    }))
}

#[derive(Serialize)]
pub(super) struct CheckList {
    checks: Vec<Check>,
}

pub(super) async fn checks(
    State(app): State<App>,
    query: Query,
) -> Result<JsonResponse<CheckList>, ApiError> {
    let query = query.with(&["depth"])?;
    let checks = match query.text("depth").unwrap_or("quick") {
        "quick" => app.cache.checks().await?,
        "standard" => app.cache.standard_checks().await?,
        other => {
            let why = format!("depth cannot be {other:?}; write quick or standard.");
            return Err(ApiError::parameter("depth", why));
        }
    };
    Ok(JsonResponse(CheckList { checks: checks.to_vec() }))
}

#[derive(Serialize)]
pub(super) struct ErrorList {
    groups: Vec<ErrorGroupView>,
    /// How many tasks with an error were searched.
    searched: usize,
    /// Whether there may be more: then the counts are those of the newest failures.
    is_sample: bool,
    /// All failed tasks, if more than were searched.
    total: Option<BoundedCount>,
    /// `before` of the next page.
    next: Option<TaskId>,
    at: Timestamp,
}

#[derive(Serialize)]
struct ErrorGroupView {
    #[serde(flatten)]
    group: ErrorGroup,
    /// The filter that matches its tasks.
    filter: String,
}

pub(super) async fn errors(
    State(app): State<App>,
    actor: Actor,
    query: Query,
) -> Result<JsonResponse<ErrorList>, ApiError> {
    let query = query.with(&["filter", "before", "limit"])?;
    let filter = query.filter(&app, &actor).await?;
    let limit = query.limit(LIMIT, LIMIT)?;
    let failures = Failures::find(&*app.store, filter, query.parse("before")?, limit).await?;
    let view = |group: ErrorGroup| ErrorGroupView { filter: group.filter().to_string(), group };
    Ok(JsonResponse(ErrorList {
        groups: failures.groups().into_iter().map(view).collect(),
        searched: failures.found.tasks.len(),
        is_sample: failures.is_sample(),
        total: failures.total,
        next: failures.found.next,
        at: failures.found.now,
    }))
}
