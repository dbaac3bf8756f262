//! What tasks depend on, and lists of flows: for readers. And the removal of flows that have
//! no tasks any more.

use std::time::Duration;

use rusqlite::{Row, params};
use task_engine_core::dependency::{BlockedTasks, DependencyRow, FlowCounts, FlowRow, FlowsQuery};
use task_engine_core::flow::FlowPage;
use task_engine_core::task::{TaskId, TaskStatus};

use crate::connection_thread::JobTransaction;
use crate::dependents::condition;
use crate::error::JobError;
use crate::moment::micros;
use crate::read::{HeldTasks, held_tasks, status};
use crate::value::read;

/// How many flows one call looks at to remove some.
const REMOVABLE_LOOKED_AT: u32 = 10_000;

/// After the end of what it waits for, a blocked task is decided in this time.
const DECIDED_WITHIN: Duration = Duration::from_secs(60);

/// What tasks depend on.
pub(crate) fn dependencies(
    tx: &JobTransaction<'_>,
    tasks: &[TaskId],
    limit: u32,
) -> Result<Vec<DependencyRow>, JobError> {
    let held = held_tasks(tx)?;
    let mut tasks = tasks.to_vec();
    tasks.sort_unstable();
    tasks.dedup();
    let mut statement = tx.db.prepare_cached(sql!("readers/dependencies", "dependencies"))?;
    let mut dependencies = Vec::new();
    for task in tasks {
        let left = (limit as usize).saturating_sub(dependencies.len());
        if left == 0 {
            break;
        }
        let mut rows = statement.query(params![task.0, left as i64])?;
        while let Some(row) = rows.next()? {
            let on = TaskId(read(row, 0)?);
            dependencies.push(dependency(row, &held, task, on)?);
        }
    }
    Ok(dependencies)
}

/// Which tasks depend on one.
pub(crate) fn dependents(
    tx: &JobTransaction<'_>,
    task: TaskId,
    limit: u32,
) -> Result<Vec<DependencyRow>, JobError> {
    let held = held_tasks(tx)?;
    let mut statement = tx.db.prepare_cached(sql!("readers/dependencies", "dependents"))?;
    let mut rows = statement.query(params![task.0, limit])?;
    let mut dependents = Vec::new();
    while let Some(row) = rows.next()? {
        dependents.push(dependency(row, &held, TaskId(read(row, 0)?), task)?);
    }
    Ok(dependents)
}

/// A row of either statement. The name and the status are those of `on`.
fn dependency(
    row: &Row<'_>,
    held: &HeldTasks,
    task: TaskId,
    on: TaskId,
) -> Result<DependencyRow, JobError> {
    let exists: bool = read(row, 3)?;
    let ends_task: Option<String> = read(row, 5)?;
    let status = match exists {
        true => place(held, on, read(row, 4)?, ends_task.as_deref())?,
        false => None,
    };
    Ok(DependencyRow::new(task, on, condition(row, 1)?, read(row, 2)?, status))
}

/// The status of a task. `None` for one without a place, in a damaged file.
fn place(
    held: &HeldTasks,
    id: TaskId,
    waits: bool,
    ends_task: Option<&str>,
) -> Result<Option<TaskStatus>, JobError> {
    if waits {
        return Ok(Some(TaskStatus::Waiting));
    }
    if held.contains_key(&id) {
        return Ok(Some(TaskStatus::Running));
    }
    ends_task.map(status).transpose()
}

/// The tasks that wait for others, counted up to a limit.
pub(crate) fn blocked_tasks(tx: &JobTransaction<'_>, limit: u32) -> Result<BlockedTasks, JobError> {
    let limit = i64::from(limit);
    let before = tx.now() - micros(DECIDED_WITHIN);
    let mut statement = tx.db.prepare_cached(sql!("readers/dependencies", "blocked_tasks"))?;
    let tasks = statement
        .query_map(params![limit + 1, before], |row| Ok((TaskId(read(row, 0)?), read(row, 1)?)))?
        .collect::<rusqlite::Result<Vec<(TaskId, bool)>>>()?;
    Ok(BlockedTasks::of(limit, tasks))
}

/// A page of flows, the newest first.
pub(crate) fn flows(tx: &JobTransaction<'_>, query: &FlowsQuery) -> Result<Vec<FlowRow>, JobError> {
    let before = query.before.unwrap_or(i64::MAX);
    let flow = |row: &Row<'_>| {
        Ok(FlowRow {
            id: read(row, 0)?,
            correlation_id: read(row, 1)?,
            name: read(row, 2)?,
            created_at: read(row, 3)?,
            counts: FlowCounts::default(),
        })
    };
    let rows: rusqlite::Result<Vec<FlowRow>> = match &query.correlation_id {
        None => {
            let mut statement = tx.db.prepare_cached(sql!("readers/dependencies", "flows"))?;
            statement.query_map(params![before, query.limit], flow)?.collect()
        }
        Some(id) => {
            let mut statement = tx.db.prepare_cached(sql!("readers/dependencies", "flow_of"))?;
            statement.query_map(params![before, query.limit, id], flow)?.collect()
        }
    };
    let held = held_tasks(tx)?;
    let mut rows = rows?;
    for row in &mut rows {
        row.counts = counts(tx, &held, &row.correlation_id, query.tasks_counted_max)?;
    }
    Ok(rows)
}

fn counts(
    tx: &JobTransaction<'_>,
    held: &HeldTasks,
    correlation_id: &str,
    most: u32,
) -> Result<FlowCounts, JobError> {
    let page = FlowPage { correlation_id: correlation_id.to_owned(), after: None, limit: most };
    let own = page.own_task().map(|id| id.0);
    let mut statement = tx.db.prepare_cached(sql!("readers/dependencies", "flow_states"))?;
    let limit = i64::from(most) + 1;
    let mut rows = statement.query(params![correlation_id, 0, limit, own])?;
    let mut counts = FlowCounts::default();
    while let Some(row) = rows.next()? {
        if counts.total() == most {
            counts.and_more = true;
            break;
        }
        let ends_task: Option<String> = read(row, 3)?;
        let status = place(held, TaskId(read(row, 0)?), read(row, 1)?, ends_task.as_deref())?;
        match status {
            Some(TaskStatus::Waiting) if read(row, 2)? => counts.blocked += 1,
            Some(TaskStatus::Waiting) => counts.waiting += 1,
            Some(TaskStatus::Running) => counts.running += 1,
            Some(TaskStatus::Stopped) => counts.stopped += 1,
            Some(TaskStatus::Cancelled) if read::<Option<bool>>(row, 4)?.unwrap_or(false) => {
                counts.not_needed += 1;
            }
            Some(TaskStatus::Cancelled) => counts.cancelled += 1,
            // A task without a place never runs.
            Some(TaskStatus::Failed) | None => counts.failed += 1,
        }
    }
    Ok(counts)
}

/// Removes flows whose tasks have all been removed: the oldest, and if they are still in use,
/// some from anywhere.
pub(crate) fn prune(tx: &JobTransaction<'_>, limit: u32) -> Result<u64, JobError> {
    let newest: i64 =
        tx.db.query_row(sql!("engine/flows", "newest_flow"), [], |row| read(row, 0))?;
    let mut removed = 0;
    for start in [0, fastrand::i64(0..=newest.max(0))] {
        let mut flows = tx.db.prepare_cached(sql!("engine/flows", "removable_flows"))?;
        let flows = flows.query_map(params![start, REMOVABLE_LOOKED_AT], |row| {
            Ok((read::<i64>(row, 0)?, read::<bool>(row, 1)?))
        })?;
        let flows = flows.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut delete = tx.db.prepare_cached(sql!("engine/flows", "flow_delete"))?;
        for (id, _) in flows.iter().filter(|(_, is_removable)| *is_removable) {
            if removed == u64::from(limit) {
                return Ok(removed);
            }
            delete.execute([id])?;
            removed += 1;
        }
        if flows.len() < REMOVABLE_LOOKED_AT as usize {
            break;
        }
    }
    Ok(removed)
}
