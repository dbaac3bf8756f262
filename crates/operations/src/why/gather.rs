//! Reads the facts about a task.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{
    FailedDependency, HOLDERS_NAMED, OpenChild, OpenChildren, OpenDependency, RATE_PERIOD, Reason,
    TaskDependencies, TaskFacts, WaitingHolder, queue_position_query, reasons,
};
use crate::flows::TASK_DEPENDENCIES_MAX;
use crate::limits::redact_key;
use crate::search::Search;
use task_engine_core::attempt::TaskError;
use task_engine_core::dependency::{DependencyCondition, DependencyRow};
use task_engine_core::display::{StepEntry, StepState, step_timeline};
use task_engine_core::filter::Filter;
use task_engine_core::instance::InstanceRow;
use task_engine_core::limit::TaskLimit;
use task_engine_core::queue::BoundedCount;
use task_engine_core::secret::Secrets;
use task_engine_core::task::{ExecutionRow, ExecutionStatus, TaskDetails, TaskId, TaskStatus};
use task_engine_store::activity::ActivityQuery;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

/// A task, and the reasons for its status.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// The task.
    pub task: TaskDetails,
    /// The time of the facts, by the database's clock.
    pub at: Timestamp,
    /// The reasons, the most important first.
    ///
    /// Never empty.
    pub reasons: Vec<Reason>,
    /// Its limits, if it waits or runs.
    pub limits: Vec<TaskLimit>,
}

/// How often the facts are read if the task changes meanwhile.
const READS_MAX: usize = 3;

/// Reads the facts in bounded queries and returns the reasons.
///
/// `None` if there is no such task.
pub async fn why(store: &dyn Store, id: TaskId) -> Result<Option<Explanation>, StoreError> {
    let mut reads = 0;
    loop {
        let Some(task) = store.task(id).await? else {
            return Ok(None);
        };
        let engines = store.instances(None).await?;
        let paused = store.paused_queues().await?;
        let activity = store.activity(ActivityQuery { per_lane: 1, soon: Duration::ZERO }).await?;
        let mut table_locks = Vec::new();
        if matches!(task.row.status, TaskStatus::Waiting | TaskStatus::Running) {
            table_locks = store.blocking_sessions().await?;
            table_locks.retain(|session| !session.locks.is_empty());
        }
        let mut limits = Vec::new();
        if matches!(task.row.status, TaskStatus::Waiting | TaskStatus::Running) {
            limits = store.task_limits(id).await?;
            limits.iter_mut().for_each(|one| redact_key(&one.limit, &mut one.usage.key, &engines));
        }
        let (mut position, mut endings) = (None, Vec::new());
        // A blocked task is in no queue.
        if task.row.status == TaskStatus::Waiting && !task.row.is_blocked {
            position = store.queue_position(&queue_position_query(&task, &engines)).await?;
            reads += 1;
            if position.is_none() && reads < READS_MAX {
                continue;
            }
            let mut query = activity.endings_query();
            query.age_max = RATE_PERIOD;
            endings = store.endings(&query).await?;
        }
        let open_steps = open_steps(store, &task, &engines).await?;
        let open_children = open_children(store, &open_steps).await?;
        let dependencies = task_dependencies(store, &task).await?;
        let waiting_holders = waiting_holders(store, &task, &limits, &engines).await?;
        let facts = TaskFacts {
            task: &task,
            activity: &activity,
            engines: &engines,
            paused: paused.iter().find(|paused| paused.queue == task.row.queue),
            position: position.as_ref(),
            endings: &endings,
            table_locks: &table_locks,
            open_steps: &open_steps,
            open_children: &open_children,
            dependencies: &dependencies,
            limits: &limits,
            waiting_holders: &waiting_holders,
        };
        let reasons = reasons(&facts);
        return Ok(Some(Explanation { task, at: activity.now, reasons, limits }));
    }
}

/// Tasks that hold a key of this task in order and wait: for a retry, or suspended.
async fn waiting_holders(
    store: &dyn Store,
    task: &TaskDetails,
    limits: &[TaskLimit],
    engines: &[InstanceRow],
) -> Result<Vec<WaitingHolder>, StoreError> {
    let mut found = Vec::new();
    if task.row.status != TaskStatus::Waiting {
        return Ok(found);
    }
    for limit in limits.iter().filter(|one| one.limit.limit.options.in_order) {
        let waiting = limit.usage.holders.iter().filter(|holder| !holder.is_running);
        for holder in waiting.take(HOLDERS_NAMED) {
            let id = holder.attempt.task_id;
            if id == task.row.id {
                continue;
            }
            if let Some(holder) = store.task(id).await? {
                let open_steps = open_steps(store, &holder, engines).await?;
                found.push(WaitingHolder { row: holder.row, open_steps });
            }
        }
    }
    Ok(found)
}

/// The steps that suspend a task, without its secrets.
async fn open_steps(
    store: &dyn Store,
    task: &TaskDetails,
    engines: &[InstanceRow],
) -> Result<Vec<StepEntry>, StoreError> {
    let is_snoozed = |one: &ExecutionRow| one.status == ExecutionStatus::Snoozed;
    if task.row.status != TaskStatus::Waiting || !task.executions.last().is_some_and(is_snoozed) {
        return Ok(Vec::new());
    }
    let mut steps = store.steps(task.row.id).await?;
    Secrets::of(engines).redactor_of(task).steps(&mut steps);
    let mut entries = step_timeline(&steps, task.row.status);
    entries.retain(|entry| entry.state.is_open());
    Ok(entries)
}

/// So many children are named.
const CHILDREN_NAMED: usize = 5;
/// No more children are counted.
const CHILDREN_COUNTED_MAX: usize = 1_000;
/// So many children are looked up at once.
const CHILDREN_AT_ONCE: usize = 500;

/// The children that a task waits for, the oldest first.
async fn open_children(
    store: &dyn Store,
    open_steps: &[StepEntry],
) -> Result<OpenChildren, StoreError> {
    let calls = open_steps.iter().filter(|step| step.state == StepState::Running);
    let ids: Vec<_> = calls.flat_map(|step| step.children.iter().copied()).collect();
    let mut found = Vec::new();
    let (begun, mut and_more) = (Instant::now(), false);
    for ids in ids.chunks(CHILDREN_AT_ONCE) {
        if found.len() >= CHILDREN_COUNTED_MAX || begun.elapsed() > LOOK_UP_TIMEOUT {
            and_more = true;
            break;
        }
        let open = [TaskStatus::Waiting, TaskStatus::Running];
        let filter = Filter::of_ids(ids).and_status(&open);
        let limit = u32::try_from(CHILDREN_AT_ONCE).unwrap_or(u32::MAX);
        let search = Search { filter, before: None, limit, timeout: LOOK_UP_TIMEOUT };
        let page = search.run(store).await?;
        and_more |= page.next.is_some() && page.tasks.len() < ids.len();
        let rows = page.tasks.iter().rev();
        found.extend(rows.map(|task| OpenChild { id: task.row.id, status: task.row.status }));
    }
    let counted = i64::try_from(found.len()).unwrap_or(i64::MAX);
    found.truncate(CHILDREN_NAMED);
    Ok(OpenChildren { number: BoundedCount { counted, and_more }, some: found })
}

/// So many open dependencies are named.
const DEPENDENCIES_NAMED: usize = 5;
/// Through so many cancelled tasks the first failure is looked for.
const CANCELLED_FOLLOWED_MAX: usize = 20;

/// What a blocked task waits for, or which task made that a cancelled one cannot run.
async fn task_dependencies(
    store: &dyn Store,
    task: &TaskDetails,
) -> Result<TaskDependencies, StoreError> {
    let mut found = TaskDependencies::default();
    if was_cancelled_by_dependency(task) {
        found.failed = failed_dependencies(store, task.row.id).await?;
    } else if task.row.status == TaskStatus::Waiting && task.row.is_blocked {
        let rows = store.dependencies(&[task.row.id], TASK_DEPENDENCIES_MAX).await?;
        let and_more = rows.len() >= TASK_DEPENDENCIES_MAX as usize;
        let number = |number: usize| BoundedCount {
            counted: i64::try_from(number).unwrap_or(i64::MAX),
            and_more,
        };
        let is_open = |row: &&DependencyRow| {
            matches!(row.status, Some(TaskStatus::Waiting | TaskStatus::Running))
        };
        found.all = number(rows.len());
        found.open = number(rows.iter().filter(is_open).count());
        for row in rows.iter().filter(is_open).take(DEPENDENCIES_NAMED) {
            found.some.extend(open_dependency(store, row).await?);
        }
    }
    Ok(found)
}

async fn open_dependency(
    store: &dyn Store,
    row: &DependencyRow,
) -> Result<Option<OpenDependency>, StoreError> {
    let Some(task) = store.task(row.depends_on).await? else { return Ok(None) };
    let task = task.row;
    let waits = task.status == TaskStatus::Waiting;
    Ok(Some(OpenDependency {
        id: task.id,
        name: row.name.clone(),
        class: task.class,
        status: task.status,
        is_blocked: task.is_blocked,
        retry: task.retry_number,
        due_at: waits.then_some(task.scheduled_at),
        since: (task.status == TaskStatus::Running).then_some(task.updated_at),
        instance: task.instance,
        condition: row.condition,
    }))
}

fn was_cancelled_by_dependency(task: &TaskDetails) -> bool {
    let error = task.row.error.as_ref().map(|error| error.exception.as_str());
    task.row.status == TaskStatus::Cancelled && error == Some(TaskError::DEPENDENCY_FAILED)
}

/// The first task that did not succeed, and those that were cancelled after it.
async fn failed_dependencies(
    store: &dyn Store,
    task: TaskId,
) -> Result<Vec<FailedDependency>, StoreError> {
    let mut path = Vec::new();
    let mut at = task;
    while path.len() < CANCELLED_FOLLOWED_MAX {
        let rows = store.dependencies(&[at], TASK_DEPENDENCIES_MAX).await?;
        let failed = rows.into_iter().find(|row| {
            row.condition == DependencyCondition::Success
                && !matches!(
                    row.status,
                    Some(TaskStatus::Waiting | TaskStatus::Running | TaskStatus::Stopped)
                )
        });
        let Some(row) = failed else { break };
        at = row.depends_on;
        path.push(FailedDependency { id: at, name: row.name, status: row.status });
        let follow = row.status == Some(TaskStatus::Cancelled);
        let cancelled = if follow { store.task(at).await? } else { None };
        if !cancelled.is_some_and(|task| was_cancelled_by_dependency(&task)) {
            break;
        }
    }
    path.reverse();
    Ok(path)
}

/// The time limit of the search for children.
const LOOK_UP_TIMEOUT: Duration = Duration::from_millis(500);
