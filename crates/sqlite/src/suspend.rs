//! Tasks that wait for signals or for children, and how they continue.

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, params};
use task_engine_core::attempt::{AttemptId, NextState, TaskError};
use task_engine_core::json::Json;
use task_engine_core::step::{ChildOutcome, SuspendOutcome, Suspension};
use task_engine_core::task::{TaskId, TaskStatus};

use crate::connection_thread::JobTransaction;
use crate::dependents::{BlockedTask, Resolver, blocked_late};
use crate::ending::{Fence, wait};
use crate::error::JobError;
use crate::moment::between;
use crate::read::{error, status};
use crate::record::{Recorded, record_one, sweep_cancel_requests};
use crate::task_operations::leave_queue;
use crate::value::read;

/// Ends attempts whose tasks wait. A signal is sent in the same kind of transaction, so it
/// is committed before this or comes after it: no outcome is open.
pub(crate) fn suspend(
    tx: &JobTransaction<'_>,
    suspensions: &[Suspension],
) -> Result<Vec<SuspendOutcome>, JobError> {
    let mut fence = Fence::new(tx)?;
    fence.find(suspensions.iter().map(|suspension| suspension.record.id))?;
    let each = suspensions.iter().map(|suspension| suspend_one(tx, &mut fence, suspension));
    let outcomes = each.collect::<Result<_, _>>()?;
    if !suspensions.is_empty() {
        sweep_cancel_requests(tx)?;
    }
    Ok(outcomes)
}

fn suspend_one(
    tx: &JobTransaction<'_>,
    fence: &mut Fence<'_>,
    suspension: &Suspension,
) -> Result<SuspendOutcome, JobError> {
    let id = suspension.record.id;
    let signals = serde_json::to_string(&suspension.signals)?;
    let watching = match suspension.children_from {
        Some(first) => next_unfinished_child(tx, id.task_id, first)?,
        None => None,
    };
    let is_due = suspension.children_from.is_some() && watching.is_none()
        || signal_arrived(tx, id.task_id, &signals)?;
    let mut record = suspension.record.clone();
    if let NextState::Wait { after, .. } = &mut record.next {
        match suspension.until {
            _ if is_due => *after = Duration::ZERO,
            Some(until) => *after = between(tx.now(), until.as_microsecond()),
            None => {}
        }
    }
    match record_one(tx, fence, &record)? {
        Recorded::Late => return Ok(SuspendOutcome::Late),
        Recorded::Before => {}
        Recorded::Ended => {
            if !is_due && (watching.is_some() || !suspension.signals.is_empty()) {
                let mut insert =
                    tx.db.prepare_cached(sql!("engine/durable", "suspended_insert"))?;
                let watching = watching.map(|child| child.0);
                insert.execute(params![id.task_id.0, id.attempt, signals, watching, tx.now()])?;
            }
        }
    }
    // Read back: a cancel request may have ended the task, and an engine that has lost the
    // answer asks again.
    let mut statement = tx.db.prepare_cached(sql!("engine/durable", "suspended"))?;
    let suspended = statement.query_row([id.task_id.0], SuspendedTask::read).optional()?;
    let suspended = suspended.filter(|suspended| suspended.id == id);
    Ok(SuspendOutcome::Suspended(suspended.and_then(|suspended| suspended.watching)))
}

/// Makes the parents of ended tasks due, and decides about the tasks that depend on them.
/// Returns how many are due.
pub(crate) fn resume_parents(tx: &JobTransaction<'_>, ended: &[TaskId]) -> Result<u64, JobError> {
    let mut resumed = 0;
    for child in ended {
        let mut watching = tx.db.prepare_cached(sql!("engine/durable", "suspended_watching"))?;
        let parents = watching.query_map([child.0], SuspendedTask::read)?;
        // All of them before the first is changed: the statement reads what changes.
        for parent in parents.collect::<rusqlite::Result<Vec<_>>>()? {
            resumed += u64::from(parent.look_at_children(tx)?);
        }
    }
    let mut resolver = Resolver::new(tx);
    resolver.ended(ended);
    Ok(resumed + resolver.resolve()?)
}

/// Makes suspended tasks due that should have been resumed, and removes the rows of tasks
/// that do not wait any more, for example after the deadline of a wait. Returns the last
/// one that was read, or `None` after the last of all.
pub(crate) fn resume_missed(
    tx: &JobTransaction<'_>,
    after: TaskId,
    limit: u32,
) -> Result<Option<TaskId>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/durable", "suspended_after"))?;
    let rows = statement.query_map(params![after.0, limit], |row| {
        Ok((SuspendedTask::read(row)?, read::<Option<i64>>(row, 4)?.map(TaskId)))
    })?;
    let suspended = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut resolver = Resolver::new(tx);
    for (task, blocked_on) in &suspended {
        if let Some(blocked_on) = *blocked_on {
            resolver.look_again(&BlockedTask { id: task.id, blocked_on })?;
        } else if task.waiting(tx)?.is_none() {
            task.remove(tx)?;
        } else if signal_arrived(tx, task.id.task_id, &task.signals)? {
            task.resume(tx)?;
        } else {
            task.look_at_children(tx)?;
        }
    }
    for task in blocked_late(tx, limit)? {
        resolver.look_again(&task)?;
    }
    resolver.resolve()?;
    let is_full = suspended.len() == limit as usize;
    Ok(suspended.last().filter(|_| is_full).map(|(last, _)| last.id.task_id))
}

/// Makes a task due that waits for this signal. False if it does not.
pub(crate) fn resume_for_signal(
    tx: &JobTransaction<'_>,
    id: TaskId,
    name: &str,
) -> Result<bool, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/durable", "suspended_for_signal"))?;
    let task = statement.query_row(params![id.0, name], SuspendedTask::read).optional()?;
    task.map_or(Ok(false), |task| task.resume(tx))
}

/// Whether a task is suspended.
pub(crate) fn tasks_suspended(tx: &JobTransaction<'_>) -> Result<bool, JobError> {
    let mut ask = tx.db.prepare_cached(sql!("engine/durable", "tasks_suspended"))?;
    Ok(ask.query_row([], |row| read(row, 0))?)
}

/// How tasks ended, in order.
pub(crate) fn child_outcomes(
    tx: &JobTransaction<'_>,
    children: &[(TaskId, Option<i32>)],
) -> Result<Vec<Option<ChildOutcome>>, JobError> {
    let mut newest_end = tx.db.prepare_cached(sql!("engine/durable", "child_outcome"))?;
    let mut exists = tx.db.prepare_cached(sql!("engine/record", "task_exists"))?;
    let mut outcomes = Vec::with_capacity(children.len());
    for (id, attempt) in children {
        let mut rows = newest_end.query(params![id.0, attempt])?;
        outcomes.push(match rows.next()? {
            Some(row) => ended_child(row, *id)?,
            None if exists.exists([id.0])? => None,
            None => Some(ChildOutcome {
                id: *id,
                attempt: 0,
                status: None,
                result: None,
                error: Some(TaskError::new("TaskRemoved", format!("task {id} was removed"))),
            }),
        });
    }
    Ok(outcomes)
}

fn ended_child(row: &Row<'_>, id: TaskId) -> Result<Option<ChildOutcome>, JobError> {
    let Some(word) = read::<Option<String>>(row, 0)? else {
        return Ok(None);
    };
    let status = status(&word)?;
    let result = read::<Option<String>>(row, 1)?.filter(|_| status == TaskStatus::Stopped);
    Ok(Some(ChildOutcome {
        id,
        attempt: read(row, 3)?,
        status: Some(status),
        result: result.map(Json::from_store),
        error: error(row, 2)?,
    }))
}

/// The first child from an id on that has not ended.
fn next_unfinished_child(
    tx: &JobTransaction<'_>,
    parent: TaskId,
    from: TaskId,
) -> Result<Option<TaskId>, JobError> {
    let mut next = tx.db.prepare_cached(sql!("engine/durable", "next_unfinished_child"))?;
    let child = next.query_row([parent.0, from.0], |row| read(row, 0)).optional()?;
    Ok(child.map(TaskId))
}

/// Whether one of these signals, a JSON array of names, has been sent.
fn signal_arrived(tx: &JobTransaction<'_>, id: TaskId, signals: &str) -> Result<bool, JobError> {
    if signals == "[]" {
        return Ok(false);
    }
    let mut ask = tx.db.prepare_cached(sql!("engine/durable", "signal_arrived"))?;
    Ok(ask.query_row(params![id.0, signals], |row| read(row, 0))?)
}

/// The task is not suspended any more.
pub(crate) fn remove(tx: &JobTransaction<'_>, id: TaskId) -> Result<(), JobError> {
    let mut delete = tx.db.prepare_cached(sql!("engine/durable", "suspended_delete"))?;
    delete.execute([id.0])?;
    Ok(())
}

/// A row about a suspended task. It counts only while the task waits for the next attempt.
struct SuspendedTask {
    /// The attempt that suspended it.
    id: AttemptId,
    signals: String,
    watching: Option<TaskId>,
}

/// The waiting row of a suspended task.
struct WaitingTask {
    due_at: i64,
    retry_number: u32,
}

impl SuspendedTask {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: AttemptId { task_id: TaskId(read(row, 0)?), attempt: read(row, 1)? },
            signals: read(row, 2)?,
            watching: read::<Option<i64>>(row, 3)?.map(TaskId),
        })
    }

    /// Moves on to the next child that has not ended, or resumes the task if there is none.
    /// Returns whether it is due.
    fn look_at_children(&self, tx: &JobTransaction<'_>) -> Result<bool, JobError> {
        let Some(watching) = self.watching else {
            return Ok(false);
        };
        match next_unfinished_child(tx, self.id.task_id, watching)? {
            None => self.resume(tx),
            Some(child) if child == watching => Ok(false),
            Some(child) => {
                let mut watch = tx.db.prepare_cached(sql!("engine/durable", "suspended_watch"))?;
                watch.execute([self.id.task_id.0, child.0])?;
                Ok(false)
            }
        }
    }

    /// Makes the task due. False if it does not wait any more. Its row is removed in both
    /// cases. A waiting row is replaced, never updated.
    fn resume(&self, tx: &JobTransaction<'_>) -> Result<bool, JobError> {
        self.remove(tx)?;
        let Some(waiting) = self.waiting(tx)? else {
            return Ok(false);
        };
        if waiting.due_at > tx.now() {
            leave_queue(tx, self.id.task_id)?;
            wait(tx, self.id, tx.now(), waiting.retry_number)?;
        }
        Ok(true)
    }

    fn remove(&self, tx: &JobTransaction<'_>) -> Result<(), JobError> {
        remove(tx, self.id.task_id)
    }

    /// The waiting row of the next attempt, if the task still waits for it.
    fn waiting(&self, tx: &JobTransaction<'_>) -> Result<Option<WaitingTask>, JobError> {
        let mut statement = tx.db.prepare_cached(sql!("operators/tasks", "waiting_one"))?;
        let row = statement.query_row([self.id.task_id.0], |row| {
            let attempt: i32 = read(row, 1)?;
            Ok((attempt, WaitingTask { due_at: read(row, 0)?, retry_number: read(row, 2)? }))
        });
        let next = self.id.attempt.saturating_add(1);
        Ok(row.optional()?.and_then(|(attempt, waiting)| (attempt == next).then_some(waiting)))
    }
}
