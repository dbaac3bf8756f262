//! What goes on: figures, queues, engines, errors, flows.

use axum::Json as Answer;
use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;
use task_engine_core::flow::{FlowPage, FlowTask};
use task_engine_core::instance::InstanceSummary;
use task_engine_core::queue::{BoundedCount, QueueService, queue_services};
use task_engine_core::task::TaskId;
use task_engine_operations::errors::{ErrorGroup, Failures, LIMIT};
use task_engine_operations::stats::{QueueStats, Stats};
use task_engine_store::check::Check;

use super::query::{Named, Query};
use crate::access::Actor;
use crate::app::App;
use crate::problem::Problem;

pub(super) async fn stats(State(app): State<App>, query: Query) -> Result<Answer<Stats>, Problem> {
    query.with(&[])?;
    Ok(Answer(app.glance.stats().await?.stats.clone()))
}

#[derive(Serialize)]
pub(super) struct Queues {
    queues: Vec<Queue>,
    at: Timestamp,
}

#[derive(Serialize)]
struct Queue {
    #[serde(flatten)]
    figures: QueueStats,
    served_by: Vec<QueueService>,
}

pub(super) async fn queues(
    State(app): State<App>,
    query: Query,
) -> Result<Answer<Queues>, Problem> {
    query.with(&[])?;
    let now = app.glance.now().await?;
    let queue = |figures: &QueueStats| Queue {
        served_by: queue_services(&figures.row.name, &now.engines),
        figures: figures.clone(),
    };
    let queues = now.figures.queues.iter().map(queue).collect();
    Ok(Answer(Queues { queues, at: now.moving.now }))
}

#[derive(Serialize)]
pub(super) struct Instances {
    instances: Vec<InstanceSummary>,
}

/// A life of an engine.
pub(super) async fn instances(
    State(app): State<App>,
    query: Query,
) -> Result<Answer<Instances>, Problem> {
    query.with(&[])?;
    let now = app.glance.now().await?;
    Ok(Answer(Instances { instances: now.engines.iter().map(InstanceSummary::from).collect() }))
}

#[derive(Serialize)]
pub(super) struct Checks {
    checks: Vec<Check>,
}

pub(super) async fn checks(
    State(app): State<App>,
    query: Query,
) -> Result<Answer<Checks>, Problem> {
    let query = query.with(&["depth"])?;
    let checks = match query.text("depth").unwrap_or("glance") {
        "glance" => app.glance.checks().await?,
        "usual" => app.glance.closer_checks().await?,
        other => {
            let why = format!("There is no depth {other:?}; there are glance and usual.");
            return Err(Problem::parameter("depth", why));
        }
    };
    Ok(Answer(Checks { checks: checks.to_vec() }))
}

#[derive(Serialize)]
pub(super) struct Errors {
    groups: Vec<Group>,
    /// How many tasks with an error were looked at.
    looked_at: usize,
    /// Whether there may be more: then all counts are those of a sample, the newest.
    is_sample: bool,
    /// How many tasks have failed in all, if that is known to be more.
    total: Option<BoundedCount>,
    /// Where to go on: `before` of the next look.
    next: Option<TaskId>,
    at: Timestamp,
}

#[derive(Serialize)]
struct Group {
    #[serde(flatten)]
    group: ErrorGroup,
    /// Finds its tasks.
    filter: String,
}

pub(super) async fn errors(
    State(app): State<App>,
    actor: Actor,
    query: Query,
) -> Result<Answer<Errors>, Problem> {
    let query = query.with(&["filter", "before", "limit"])?;
    let filter = query.filter(&app, &actor).await?;
    let limit = query.limit(LIMIT, LIMIT)?;
    let failures = Failures::find(&*app.store, filter, query.parse("before")?, limit).await?;
    let told = |group: ErrorGroup| Group { filter: group.filter().to_string(), group };
    Ok(Answer(Errors {
        groups: failures.groups().into_iter().map(told).collect(),
        looked_at: failures.found.tasks.len(),
        is_sample: failures.is_sample(),
        total: failures.total,
        next: failures.found.next,
        at: failures.found.now,
    }))
}

#[derive(Serialize)]
pub(super) struct Flow {
    correlation_id: String,
    /// Oldest first: parents before their children.
    tasks: Vec<FlowTask>,
    /// Where to go on: `after` of the next page.
    next: Option<TaskId>,
}

pub(super) async fn flow(
    State(app): State<App>,
    Named(correlation_id): Named,
    query: Query,
) -> Result<Answer<Flow>, Problem> {
    let query = query.with(&["after", "limit"])?;
    let limit = query.limit(200, 500)?;
    let page = FlowPage { correlation_id, after: query.parse("after")?, limit };
    let tasks = app.store.flow(&page).await?;
    if tasks.is_empty() && page.after.is_none() {
        let why = format!("No task has the correlation id {:?}.", page.correlation_id);
        return Err(Problem::not_found(why));
    }
    let next = tasks.last().filter(|_| tasks.len() >= limit as usize).map(|last| last.row.id);
    Ok(Answer(Flow { correlation_id: page.correlation_id, tasks, next }))
}
