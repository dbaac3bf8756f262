//! Operations on tasks: cancel, retry, edit, delete, prune.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::{OptionalExtension, params};
use task_engine_core::attempt::{AttemptId, NextState, TaskError};
use task_engine_core::change::{DeleteReport, Edit, EditReport};
use task_engine_core::json::Json;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::{CancelReport, RetryReport};
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::create::due_at;
use crate::dependents::wait_blocked;
use crate::ending::{EndedAttempt, Fence, wait};
use crate::error::JobError;
use crate::moment::micros;
use crate::read::{HeldTasks, held_tasks, status};
use crate::restore::restore;
use crate::suspend::{self, resume_parents};
use crate::value::read;

/// Where a task is, as far as an operation depends on it.
pub(crate) enum TaskLocation {
    Waiting { id: AttemptId, due_at: i64, retry_number: u32, is_blocked: bool },
    Held(AttemptId),
    Ended(AttemptId, TaskStatus),
    Nowhere,
}

pub(crate) fn cancel(
    tx: &JobTransaction<'_>,
    ids: &[TaskId],
) -> Result<Vec<CancelReport>, JobError> {
    let held = held_tasks(tx)?;
    let each = ids.iter();
    let reports: Vec<CancelReport> =
        each.map(|id| cancel_one(tx, &held, *id)).collect::<Result<_, _>>()?;
    let cancelled =
        ids.iter().zip(&reports).filter(|(_, report)| **report == CancelReport::Cancelled);
    let cancelled: Vec<TaskId> = cancelled.map(|(id, _)| *id).collect();
    resume_parents(tx, &cancelled)?;
    Ok(reports)
}

pub(crate) fn retry(tx: &JobTransaction<'_>, ids: &[TaskId]) -> Result<Vec<RetryReport>, JobError> {
    let held = held_tasks(tx)?;
    let mut retried = Vec::new();
    let each = ids.iter();
    let reports: Vec<RetryReport> =
        each.map(|id| retry_one(tx, &held, *id, &mut retried)).collect::<Result<_, _>>()?;
    restore(tx, &held, &retried)?;
    Ok(reports)
}

/// Removes tasks that ended long enough ago, whole. The choice and the removal
/// are in one transaction, so that no task can be retried in between.
pub(crate) fn prune(
    tx: &JobTransaction<'_>,
    status: TaskStatus,
    age: Duration,
    limit: u32,
) -> Result<u64, JobError> {
    let before = tx.now().saturating_sub(micros(age));
    let ids = match status {
        TaskStatus::Stopped => stopped_before(tx, before, limit)?,
        TaskStatus::Failed | TaskStatus::Cancelled => {
            let mut statement =
                tx.db.prepare_cached(sql!("operators/tasks", "prune_failed_or_cancelled"))?;
            let ids =
                statement.query_map(params![status.as_str(), before, limit], |row| read(row, 0))?;
            ids.collect::<rusqlite::Result<Vec<i64>>>()?
        }
        TaskStatus::Waiting | TaskStatus::Running => {
            return Err(JobError::Store(StoreError::Refused(format!(
                "a {status} task has not ended, and is never removed; cancel it first"
            ))));
        }
    };
    delete_rows(tx, &ids)?;
    Ok(ids.len() as u64)
}

/// Removes tasks with their history.
pub(crate) fn delete_rows(tx: &JobTransaction<'_>, ids: &[i64]) -> Result<(), JobError> {
    for statement in [
        sql!("operators/tasks", "prune_unique_tasks"),
        sql!("operators/tasks", "prune_created_tasks"),
        sql!("operators/tasks", "prune_ended_executions"),
        sql!("operators/tasks", "prune_late_results"),
        sql!("operators/tasks", "prune_cancel_requests"),
        sql!("operators/tasks", "prune_cancellations"),
        sql!("operators/tasks", "prune_execution_progress"),
        sql!("operators/tasks", "prune_execution_logs"),
        sql!("operators/tasks", "prune_fired_slots"),
        sql!("operators/tasks", "prune_steps"),
        sql!("operators/tasks", "prune_signals"),
        sql!("operators/tasks", "prune_task_dependencies"),
        sql!("operators/tasks", "prune_suspended_tasks"),
        sql!("operators/tasks", "prune_reopened_tasks"),
    ] {
        let mut delete = tx.db.prepare_cached(statement)?;
        for id in ids {
            delete.execute([id])?;
        }
    }
    Ok(())
}

pub(crate) fn find(
    tx: &JobTransaction<'_>,
    held: &HeldTasks,
    id: TaskId,
) -> Result<TaskLocation, JobError> {
    let waiting = tx
        .db
        .prepare_cached(sql!("operators/tasks", "waiting_one"))?
        .query_row([id.0], |row| {
            Ok(TaskLocation::Waiting {
                id: AttemptId { task_id: id, attempt: read(row, 1)? },
                due_at: read(row, 0)?,
                retry_number: read(row, 2)?,
                is_blocked: read(row, 3)?,
            })
        })
        .optional()?;
    if let Some(waiting) = waiting {
        return Ok(waiting);
    }
    if let Some(held) = held.get(&id) {
        return Ok(TaskLocation::Held(held.id));
    }
    let ended: Option<(i32, Option<String>)> = tx
        .db
        .prepare_cached(sql!("operators/tasks", "last_ending"))?
        .query_row([id.0], |row| Ok((read(row, 0)?, read(row, 1)?)))
        .optional()?;
    Ok(match ended {
        Some((attempt, Some(word))) => {
            let ended = AttemptId { task_id: id, attempt };
            TaskLocation::Ended(ended, status(&word)?)
        }
        _ => TaskLocation::Nowhere,
    })
}

fn cancel_one(
    tx: &JobTransaction<'_>,
    held: &HeldTasks,
    id: TaskId,
) -> Result<CancelReport, JobError> {
    match find(tx, held, id)? {
        TaskLocation::Waiting { id, retry_number, is_blocked, .. } => {
            leave_queue(tx, id.task_id)?;
            if is_blocked {
                suspend::remove(tx, id.task_id)?;
            }
            let error = TaskError::new(TaskError::CANCELLED, "cancelled while it waited");
            let ended = EndedAttempt {
                id,
                retry_number,
                claim_id: None,
                instance_id: None,
                worker: None,
                started_at: None,
                stopped_at: tx.now(),
                result: None,
                error: Some(&error),
                next: NextState::End(TaskStatus::Cancelled),
            };
            Fence::new(tx)?.end(&ended)?;
            Ok(CancelReport::Cancelled)
        }
        TaskLocation::Held(id) => {
            tx.db.prepare_cached(sql!("operators/tasks", "cancel_request"))?.execute(params![
                id.task_id.0,
                id.attempt,
                tx.now()
            ])?;
            tx.wants_cancel.set(true);
            Ok(CancelReport::Requested)
        }
        TaskLocation::Ended(_, status) => Ok(CancelReport::Ended(status)),
        TaskLocation::Nowhere => Ok(CancelReport::NotFound),
    }
}

fn retry_one(
    tx: &JobTransaction<'_>,
    held: &HeldTasks,
    id: TaskId,
    retried: &mut Vec<AttemptId>,
) -> Result<RetryReport, JobError> {
    match find(tx, held, id)? {
        TaskLocation::Waiting { is_blocked: true, .. } => Ok(RetryReport::Blocked),
        TaskLocation::Waiting { due_at, .. } if due_at <= tx.now() => Ok(RetryReport::AlreadyDue),
        TaskLocation::Waiting { id, retry_number, .. } => {
            leave_queue(tx, id.task_id)?;
            let before = AttemptId { attempt: id.attempt - 1, ..id };
            wait(tx, before, tx.now(), retry_number)?;
            Ok(RetryReport::Advanced)
        }
        TaskLocation::Held(_) => Ok(RetryReport::Running),
        TaskLocation::Ended(_, TaskStatus::Stopped) => Ok(RetryReport::Stopped),
        TaskLocation::Ended(last, _) => {
            // A task that was cancelled before its time waits for it again.
            let time = tx
                .db
                .prepare_cached(sql!("operators/tasks", "time_before_first_attempt"))?
                .query_row([id.0], |row| read(row, 0))
                .optional()?;
            wait(tx, last, time.unwrap_or(0).max(tx.now()), 0)?;
            retried.push(last);
            Ok(RetryReport::Waiting)
        }
        TaskLocation::Nowhere => Ok(RetryReport::NotFound),
    }
}

pub(crate) fn leave_queue(tx: &JobTransaction<'_>, id: TaskId) -> Result<(), JobError> {
    tx.db.prepare_cached(sql!("operators/tasks", "waiting_delete"))?.execute([id.0])?;
    Ok(())
}

/// Reads from the oldest task on, and no further than it must.
fn stopped_before(tx: &JobTransaction<'_>, before: i64, limit: u32) -> Result<Vec<i64>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("operators/tasks", "prune_stopped"))?;
    let mut kept = tx.db.prepare_cached(sql!("operators/tasks", "is_kept_child"))?;
    let mut rows = statement.query([])?;
    let mut ids = Vec::new();
    while ids.len() < limit as usize
        && let Some(row) = rows.next()?
    {
        let (created_at, stopped_at): (i64, i64) = (read(row, 1)?, read(row, 2)?);
        if created_at > before {
            break;
        }
        let id: i64 = read(row, 0)?;
        if stopped_at <= before && !kept.exists([id])? {
            ids.push(id);
        }
    }
    Ok(ids)
}

pub(crate) fn edit(
    tx: &JobTransaction<'_>,
    id: TaskId,
    edit: &Edit,
) -> Result<EditReport, JobError> {
    let (id, due_before, retry_number, is_blocked) = match find(tx, &held_tasks(tx)?, id)? {
        TaskLocation::Waiting { id, due_at, retry_number, is_blocked } => {
            (id, due_at, retry_number, is_blocked)
        }
        TaskLocation::Held(_) => return Ok(EditReport::NotWaiting(TaskStatus::Running)),
        TaskLocation::Ended(_, status) => return Ok(EditReport::NotWaiting(status)),
        TaskLocation::Nowhere => return Ok(EditReport::NotFound),
    };
    let due = edit.due.map(|due| due_at(due, tx.moment));
    tx.db.prepare_cached(sql!("engine/create", "replace_task"))?.execute(params![
        id.task_id.0,
        edit.parameters.as_ref().map(Json::as_str),
        None::<&str>,
        edit.queue,
        edit.priority,
        due,
    ])?;
    leave_queue(tx, id.task_id)?;
    let before = AttemptId { attempt: id.attempt - 1, ..id };
    let due_at = due.unwrap_or(due_before);
    if is_blocked {
        wait_blocked(tx, before, Some(due_at), retry_number)?;
    } else {
        wait(tx, before, due_at, retry_number)?;
    }
    Ok(EditReport::Changed)
}

pub(crate) fn delete(
    tx: &JobTransaction<'_>,
    ids: &[TaskId],
) -> Result<Vec<DeleteReport>, JobError> {
    let held = held_tasks(tx)?;
    let mut reports = Vec::with_capacity(ids.len());
    for id in ids {
        reports.push(match find(tx, &held, *id)? {
            TaskLocation::Waiting { .. } => DeleteReport::Open(TaskStatus::Waiting),
            TaskLocation::Held(_) => DeleteReport::Open(TaskStatus::Running),
            TaskLocation::Ended(..) => DeleteReport::Deleted,
            TaskLocation::Nowhere => DeleteReport::NotFound,
        });
    }
    let ended = ids.iter().zip(&reports).filter(|(_, report)| **report == DeleteReport::Deleted);
    let mut deleted: BTreeSet<TaskId> = ended.map(|(id, _)| *id).collect();
    keep_needed(tx, &mut deleted)?;
    for (id, report) in ids.iter().zip(&mut reports) {
        if *report == DeleteReport::Deleted && !deleted.contains(id) {
            *report = DeleteReport::Needed;
        }
    }
    let rows: Vec<i64> = deleted.iter().map(|id| id.0).collect();
    delete_rows(tx, &rows)?;
    Ok(reports)
}

/// Takes out the tasks that another one depends on that has not succeeded and stays. That one
/// has a higher id as a rule, so a second round finds nothing.
fn keep_needed(tx: &JobTransaction<'_>, deleted: &mut BTreeSet<TaskId>) -> Result<(), JobError> {
    let mut needed_by = tx.db.prepare_cached(sql!("engine/flows", "needed_by"))?;
    loop {
        let before = deleted.len();
        for id in deleted.iter().rev().copied().collect::<Vec<_>>() {
            let mut rows = needed_by.query([id.0])?;
            while let Some(row) = rows.next()? {
                if !deleted.contains(&TaskId(read(row, 0)?)) {
                    deleted.remove(&id);
                    break;
                }
            }
        }
        if deleted.len() == before {
            return Ok(());
        }
    }
}
