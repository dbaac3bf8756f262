//! Flows: lists of them, and one with its dependencies.
//!
//! [`graph`] puts the tasks of a flow into layers, for the page that draws it.

pub mod graph;

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use task_engine_core::attempt::TaskError;
use task_engine_core::dependency::{
    CreatedFlow, DependencyCondition, DependencyRow, FlowCounts, FlowRow, FlowState, FlowsQuery,
    NewFlow,
};
use task_engine_core::filter::Filter;
use task_engine_core::flow::{FlowPage, FlowTask, name_in_flow};
use task_engine_core::secret::request::CONTEXT_CREATOR;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::operator::OperationError;
use crate::redaction;
use crate::search::Search;

/// The most tasks of a flow that are read: as many as one may have when it is created.
pub const TASKS_READ_MAX: usize = 10_000;
/// The most dependencies of a flow that are read.
pub const DEPENDENCIES_READ_MAX: usize = 100_000;
/// The most tasks of each flow that are counted in lists.
pub const TASKS_COUNTED_MAX: u32 = 1_000;
/// The most blocked tasks that are counted.
pub const BLOCKED_COUNTED_MAX: u32 = 10_000;
/// The most dependencies of one task that are read to explain it.
pub const TASK_DEPENDENCIES_MAX: u32 = 10_000;
/// The most dependencies of a task, and the most dependents, that are shown with it.
pub const TASK_RELATIONS_SHOWN: u32 = 100;

const PAGE: u32 = 500;

/// A flow in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowSummary {
    /// What is stored about it, with its counts.
    #[serde(flatten)]
    pub row: FlowRow,
    /// Its state, as far as its tasks were counted.
    pub state: FlowState,
}

impl From<FlowRow> for FlowSummary {
    fn from(row: FlowRow) -> Self {
        Self { state: row.counts.state(), row }
    }
}

/// A page of flows, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowsPage {
    /// The flows.
    pub flows: Vec<FlowSummary>,
    /// `before` of the next page.
    pub next: Option<i64>,
}

/// Reads a page of flows.
pub async fn list(
    store: &dyn Store,
    before: Option<i64>,
    limit: u32,
) -> Result<FlowsPage, StoreError> {
    let query =
        FlowsQuery { correlation_id: None, before, limit, tasks_counted_max: TASKS_COUNTED_MAX };
    let flows: Vec<FlowSummary> =
        store.flows(&query).await?.into_iter().map(FlowSummary::from).collect();
    let next = flows.last().filter(|_| flows.len() >= limit as usize).map(|last| last.row.id);
    Ok(FlowsPage { flows, next })
}

/// Returns the stored row of a flow, if it was created as such.
pub async fn find(store: &dyn Store, correlation_id: &str) -> Result<Option<FlowRow>, StoreError> {
    let query = FlowsQuery {
        correlation_id: Some(correlation_id.to_owned()),
        before: None,
        limit: 1,
        tasks_counted_max: TASKS_COUNTED_MAX,
    };
    Ok(store.flows(&query).await?.into_iter().next())
}

/// A flow with its tasks and their dependencies.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowDetails {
    /// The correlation id of its tasks.
    pub correlation_id: String,
    /// Its name, if it was created with one.
    pub name: Option<String>,
    /// When it was created, if it was created as a flow.
    pub created_at: Option<Timestamp>,
    /// Its tasks, oldest first.
    pub tasks: Vec<FlowTask>,
    /// Their dependencies, ordered by task.
    pub dependencies: Vec<DependencyRow>,
    /// Whether there are more tasks, which were not read.
    pub and_more: bool,
}

impl FlowDetails {
    /// Returns how many of its tasks are in which status.
    #[must_use]
    pub fn counts(&self) -> FlowCounts {
        let mut counts = FlowCounts { and_more: self.and_more, ..FlowCounts::default() };
        for task in &self.tasks {
            add(&mut counts, task);
        }
        counts
    }

    /// Returns its state.
    #[must_use]
    pub fn state(&self) -> FlowState {
        self.counts().state()
    }
}

/// Counts a task.
pub(crate) fn add(counts: &mut FlowCounts, task: &FlowTask) {
    let count = match task.row.status {
        TaskStatus::Waiting if task.row.is_blocked => &mut counts.blocked,
        TaskStatus::Waiting => &mut counts.waiting,
        TaskStatus::Running => &mut counts.running,
        TaskStatus::Stopped => &mut counts.stopped,
        TaskStatus::Failed => &mut counts.failed,
        TaskStatus::Cancelled if not_needed(task) => &mut counts.not_needed,
        TaskStatus::Cancelled => &mut counts.cancelled,
    };
    *count += 1;
}

fn not_needed(task: &FlowTask) -> bool {
    task.row.error.as_ref().is_some_and(|error| error.exception == TaskError::NOT_NEEDED)
}

/// Reads up to `limit` tasks of a flow, oldest first, with their dependencies.
///
/// `None` if no task has this correlation id.
pub async fn read(
    store: &dyn Store,
    correlation_id: &str,
    limit: usize,
) -> Result<Option<FlowDetails>, StoreError> {
    let mut tasks: Vec<FlowTask> = Vec::new();
    let mut page = FlowPage { correlation_id: correlation_id.to_owned(), after: None, limit: PAGE };
    let mut and_more = false;
    loop {
        let rows = store.flow(&page).await?;
        let is_last = rows.len() < PAGE as usize;
        page.after = rows.last().map(|task| task.row.id);
        tasks.extend(rows);
        if tasks.len() > limit {
            tasks.truncate(limit);
            and_more = true;
        }
        if is_last || and_more {
            break;
        }
    }
    if tasks.is_empty() {
        return Ok(None);
    }
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.row.id).collect();
    let dependencies = dependencies(store, &ids, DEPENDENCIES_READ_MAX).await?;
    let row = find(store, correlation_id).await?;
    Ok(Some(FlowDetails {
        correlation_id: correlation_id.to_owned(),
        name: row.as_ref().and_then(|row| row.name.clone()),
        created_at: row.map(|row| row.created_at),
        tasks,
        dependencies,
        and_more,
    }))
}

/// Returns what these tasks depend on, in bounded statements; `limit` rows at most.
pub async fn dependencies(
    store: &dyn Store,
    tasks: &[TaskId],
    limit: usize,
) -> Result<Vec<DependencyRow>, StoreError> {
    const TASKS_AT_ONCE: usize = 1_000;
    let mut found = Vec::new();
    for ids in tasks.chunks(TASKS_AT_ONCE) {
        let left = u32::try_from(limit - found.len()).unwrap_or(u32::MAX);
        if left == 0 {
            break;
        }
        found.extend(store.dependencies(ids, left).await?);
    }
    Ok(found)
}

/// A task that another one depends on, or that depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RelatedTask {
    /// The task.
    pub id: TaskId,
    /// When the dependent task may start.
    pub condition: DependencyCondition,
    /// Its name in its flow, if it has one.
    pub name: Option<String>,
    /// Its status; `None` if it was removed.
    pub status: Option<TaskStatus>,
}

impl From<DependencyRow> for RelatedTask {
    /// The task that another one depends on.
    fn from(row: DependencyRow) -> Self {
        let DependencyRow { depends_on: id, condition, name, status, .. } = row;
        Self { id, condition, name, status }
    }
}

/// The tasks that one depends on, and those that depend on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TaskRelations {
    /// What it depends on.
    pub dependencies: Vec<RelatedTask>,
    /// What depends on it.
    pub dependents: Vec<RelatedTask>,
    /// Whether there are more of either than were read.
    pub relations_and_more: bool,
}

impl TaskRelations {
    /// Reads up to `limit` tasks on each side.
    pub async fn read(store: &dyn Store, task: TaskId, limit: u32) -> Result<Self, StoreError> {
        let dependencies = store.dependencies(&[task], limit).await?;
        let dependents = store.dependents(task, limit).await?;
        let is_full = |rows: &[DependencyRow]| rows.len() >= limit as usize;
        let relations_and_more = is_full(&dependencies) || is_full(&dependents);
        let ids: Vec<TaskId> = dependents.iter().map(|row| row.task_id).collect();
        let mut known = HashMap::new();
        if !ids.is_empty() {
            // Contexts are read only if the filter asks about them; this holds for all tasks.
            let asks = Filter::parse("context.awaited!=no", &jiff::tz::TimeZone::UTC);
            let search = Search {
                filter: Filter::of_ids(&ids).and(asks.unwrap_or_default()),
                before: None,
                limit: u32::try_from(ids.len()).unwrap_or(u32::MAX),
                timeout: DEPENDENTS_TIMEOUT,
            };
            for found in search.run(store).await?.tasks {
                let name = name_in_flow(&found.context);
                known.insert(found.row.id, (name, found.row.status));
            }
        }
        let dependent = |row: DependencyRow| {
            let (name, status) = known.remove(&row.task_id).unzip();
            RelatedTask { id: row.task_id, condition: row.condition, name: name.flatten(), status }
        };
        Ok(Self {
            dependents: dependents.into_iter().map(dependent).collect(),
            dependencies: dependencies.into_iter().map(RelatedTask::from).collect(),
            relations_and_more,
        })
    }

    /// Returns whether it depends on no task, and no task on it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dependencies.is_empty() && self.dependents.is_empty()
    }
}

/// The time limit of the search for dependents.
const DEPENDENTS_TIMEOUT: Duration = Duration::from_millis(500);

/// Marks the tasks of a flow with their creator, and records which of their parameters are secret.
///
/// Placeholders of hidden secrets are refused by the caller.
pub fn prepare(
    flow: &mut NewFlow,
    creator: Option<&str>,
    secrets: &task_engine_core::secret::Secrets,
) -> Result<(), OperationError> {
    for task in &mut flow.tasks {
        if let Some(creator) = creator {
            let added = task.task.add_context(CONTEXT_CREATOR, creator);
            added.map_err(|invalid| OperationError::invalid(invalid.to_string()))?;
        }
        let named = redaction::name_secrets(std::slice::from_ref(&task.task), secrets)?;
        if let Some(named) = named.into_iter().next() {
            task.task = named;
        }
    }
    Ok(())
}

/// A created flow with the names of its tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowReport {
    /// The correlation id of its tasks.
    pub correlation_id: String,
    /// Its tasks by name.
    pub tasks: std::collections::BTreeMap<String, TaskId>,
}

impl FlowReport {
    /// Creates the report of a created flow.
    #[must_use]
    pub fn of(flow: &NewFlow, created: &CreatedFlow) -> Self {
        let names = flow.tasks.iter().map(|task| task.name.clone());
        Self {
            correlation_id: created.correlation_id.clone(),
            tasks: names.zip(created.ids.iter().copied()).collect(),
        }
    }
}
