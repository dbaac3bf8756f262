//! Flows: tasks that depend on each other.

use std::collections::{BTreeMap, HashMap};

use axum::Json as JsonResponse;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use jiff::Timestamp;
use serde::Serialize;
use task_engine_core::dependency::{FlowCounts, FlowState};
use task_engine_core::flow::{FlowPage, FlowTask};
use task_engine_core::json::Json;
use task_engine_core::secret::Redactor;
use task_engine_core::task::TaskId;
use task_engine_operations::definition::{FlowDefinition, TaskDefinition};
use task_engine_operations::flows::{self, FlowsPage, RelatedTask};

use super::body::{Body, canonical_with};
use super::creation::idempotency_key;
use super::query::{PathName, Query};
use crate::access::Actor;
use crate::app::App;
use crate::error::ApiError;
use crate::operation::{NewFlowRequest, mark_of};

/// So many dependencies are shown of the tasks of a page.
const DEPENDENCIES_MAX: usize = 10_000;

/// Creates the tasks of a flow, all or none.
pub(super) async fn create(
    State(app): State<App>,
    actor: Actor,
    headers: HeaderMap,
    query: Query,
    body: Body,
) -> Result<Response, ApiError> {
    let key = idempotency_key(&headers)?.map(str::to_owned);
    let check = query.checks_parameters()?;
    let definition = FlowDefinition::read(body.value()?)?;
    let pointers =
        definition.tasks.iter().map(|it| (&it.task, format!("{}/parameters", it.pointer)));
    app.check_placeholders(pointers).await?;
    if check {
        let tasks = definition.tasks.iter().map(|it| (&it.task, it.pointer.as_str()));
        app.check_parameters(tasks).await?;
    }
    let mark = match &key {
        Some(_) => Some(mark(&app, &definition).await?),
        None => None,
    };
    let flow = definition.resolve()?;
    let request = NewFlowRequest { flow, once: key.zip(mark) };
    let (report, is_new) = request.create_for(&app, &actor).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let location =
        app.path(&format!("/api/v1/flows/{}", crate::app::encoded(&report.correlation_id)));
    let location = AppendHeaders([(header::LOCATION, location)]);
    Ok((status, location, JsonResponse(report)).into_response())
}

/// The mark of a request, without its secrets.
async fn mark(app: &App, definition: &FlowDefinition<'_>) -> Result<String, ApiError> {
    let secrets = app.secrets().await?;
    let (mut request, mut hidden) = (String::new(), String::new());
    request.push_str(definition.name.as_deref().unwrap_or_default());
    request.push('\0');
    request.push_str(definition.correlation_id.as_deref().unwrap_or_default());
    // The order of the fields of an object means nothing.
    let tasks: BTreeMap<&str, &TaskDefinition<'_>> =
        definition.tasks.iter().map(|task| (task.name.as_str(), task)).collect();
    for (name, TaskDefinition { task, sent, .. }) in tasks {
        let paths = secrets.of_class(&task.class);
        let redactor = Redactor::of(&task.parameters, &Json::empty_object(), &paths);
        let redacted = redactor.parameters().unwrap_or(&task.parameters);
        request.push('\0');
        request.push_str(name);
        request.push('\0');
        request.push_str(&canonical_with(sent, "parameters", redacted.as_str()));
        hidden.push_str(&paths.join("\n"));
        hidden.push('\0');
    }
    let keys = app.keys.get(&*app.store).await?;
    Ok(mark_of(keys, &hidden, request.as_bytes()))
}

/// Flows, newest first.
pub(super) async fn list(
    State(app): State<App>,
    query: Query,
) -> Result<JsonResponse<FlowsPage>, ApiError> {
    let query = query.with(&["before", "limit"])?;
    let limit = query.limit(50, 200)?;
    Ok(JsonResponse(flows::list(&*app.store, query.parse("before")?, limit).await?))
}

#[derive(Serialize)]
pub(super) struct FlowView {
    correlation_id: String,
    /// Null if it was not created as a flow.
    name: Option<String>,
    created_at: Option<Timestamp>,
    state: Option<FlowState>,
    counts: Option<FlowCounts>,
    /// Oldest first: parents before their children.
    tasks: Vec<FlowTaskView>,
    /// False if the tasks of this page have more dependencies than are shown.
    dependencies_complete: bool,
    /// `after` of the next page.
    next: Option<TaskId>,
}

#[derive(Serialize)]
struct FlowTaskView {
    #[serde(flatten)]
    task: FlowTask,
    dependencies: Vec<RelatedTask>,
}

/// A page of the tasks of a flow.
pub(super) async fn show(
    State(app): State<App>,
    PathName(correlation_id): PathName,
    query: Query,
) -> Result<JsonResponse<FlowView>, ApiError> {
    let query = query.with(&["after", "limit"])?;
    let limit = query.limit(200, 500)?;
    let page = FlowPage { correlation_id, after: query.parse("after")?, limit };
    let tasks = app.store.flow(&page).await?;
    if tasks.is_empty() && page.after.is_none() {
        let why = format!("No task has the correlation id {:?}.", page.correlation_id);
        return Err(ApiError::not_found(why));
    }
    let row = flows::find(&*app.store, &page.correlation_id).await?;
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.row.id).collect();
    let rows = flows::dependencies(&*app.store, &ids, DEPENDENCIES_MAX).await?;
    let dependencies_complete = rows.len() < DEPENDENCIES_MAX;
    let mut by_task: HashMap<TaskId, Vec<RelatedTask>> = HashMap::new();
    for row in rows {
        by_task.entry(row.task_id).or_default().push(row.into());
    }
    let next = tasks.last().filter(|_| tasks.len() >= limit as usize).map(|last| last.row.id);
    let counts = row.as_ref().map(|row| row.counts);
    Ok(JsonResponse(FlowView {
        correlation_id: page.correlation_id,
        name: row.as_ref().and_then(|row| row.name.clone()),
        created_at: row.as_ref().map(|row| row.created_at),
        state: counts.map(|counts| counts.state()),
        counts,
        tasks: tasks
            .into_iter()
            .map(|task| FlowTaskView {
                dependencies: by_task.remove(&task.row.id).unwrap_or_default(),
                task,
            })
            .collect(),
        dependencies_complete,
        next,
    }))
}
