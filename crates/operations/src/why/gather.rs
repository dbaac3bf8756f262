//! Reads the facts about a task.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{
    OpenChild, OpenChildren, RATE_PERIOD, Reason, TaskFacts, queue_position_query, reasons,
};
use crate::search::Search;
use task_engine_core::display::{StepEntry, StepState, step_timeline};
use task_engine_core::filter::Filter;
use task_engine_core::instance::InstanceRow;
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
    /// The reasons, the most important first. Never empty.
    pub reasons: Vec<Reason>,
}

/// How often the facts are read if the task changes meanwhile.
const READS_MAX: usize = 3;

/// Reads the facts in bounded queries and returns the reasons. `None` if there is no such
/// task.
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
        let (mut position, mut endings) = (None, Vec::new());
        if task.row.status == TaskStatus::Waiting {
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
        };
        let reasons = reasons(&facts);
        return Ok(Some(Explanation { task, at: activity.now, reasons }));
    }
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

/// The time limit of the search for children.
const LOOK_UP_TIMEOUT: Duration = Duration::from_millis(500);
