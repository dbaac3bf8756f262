//! What a retry means for the tasks that depend on the retried ones: they wait for them again.

use std::collections::{HashMap, HashSet};

use rusqlite::params;
use task_engine_core::attempt::{AttemptId, TaskError};
use task_engine_core::dependency::DependentNext;
use task_engine_core::task::{TaskId, TaskStatus};

use crate::connection_thread::JobTransaction;
use crate::dependents::{BlockedTask, block, newest_end, next_of, wait_blocked};
use crate::error::JobError;
use crate::read::HeldTasks;
use crate::task_operations::{TaskLocation, find, leave_queue};
use crate::value::read;

/// Restores the tasks that were cancelled because one of these had not succeeded, level by level.
/// The retried tasks wait already. One that depends on a task that has not ended waits for that. If
/// a task that it needs has not succeeded, the operator has decided that it runs anyway.
pub(crate) fn restore(
    tx: &JobTransaction<'_>,
    held: &HeldTasks,
    retried: &[AttemptId],
) -> Result<(), JobError> {
    let mut restoring =
        Restoring { tx, held, reopened: Vec::new(), seen: HashSet::new(), needing: HashMap::new() };
    for last in retried {
        restoring.reopen(*last)?;
    }
    while let Some(id) = restoring.reopened.pop() {
        restoring.restore_dependents(id)?;
    }
    let mut depends = tx.db.prepare_cached(sql!("engine/flows", "has_dependencies"))?;
    for last in retried {
        if depends.exists([last.task_id.0])?
            && let DependentNext::Wait(blocked_on) = next_of(tx, last.task_id)?
        {
            leave_queue(tx, last.task_id)?;
            wait_blocked(tx, *last, Some(tx.now()), 0)?;
            block(tx, &BlockedTask { id: *last, blocked_on }, false)?;
        }
    }
    Ok(())
}

/// A restoring in progress.
struct Restoring<'t> {
    tx: &'t JobTransaction<'t>,
    held: &'t HeldTasks,
    /// Tasks that count as open from now on, and whose dependents were not looked at yet.
    reopened: Vec<TaskId>,
    /// Dependents that were looked at, each once.
    seen: HashSet<TaskId>,
    /// The first task that has not succeeded, and the dependents that need it: they are looked
    /// at again if that one is restored. So each reads what it depends on once.
    needing: HashMap<TaskId, Vec<AttemptId>>,
}

impl Restoring<'_> {
    /// The end by this attempt no longer counts, if others depend on the task.
    fn reopen(&mut self, last: AttemptId) -> Result<(), JobError> {
        let (db, id) = (self.tx.db, last.task_id.0);
        if db.prepare_cached(sql!("engine/flows", "has_dependents"))?.exists([id])? {
            db.prepare_cached(sql!("engine/flows", "reopen"))?
                .execute(params![id, last.attempt])?;
            db.prepare_cached(sql!("engine/flows", "block_on_reopened"))?.execute([id])?;
            self.reopened.push(last.task_id);
        }
        Ok(())
    }

    fn restore_dependents(&mut self, id: TaskId) -> Result<(), JobError> {
        for last in self.needing.remove(&id).unwrap_or_default() {
            self.restore_from(last, id)?;
        }
        let mut needing = self.tx.db.prepare_cached(sql!("engine/flows", "needing"))?;
        let dependents = needing.query_map([id.0], |row| Ok(TaskId(read(row, 0)?)))?;
        for dependent in dependents.collect::<rusqlite::Result<Vec<_>>>()? {
            if self.seen.insert(dependent)
                && let Some(last) = self.cancelled_by_dependency(dependent)?
            {
                self.restore_from(last, TaskId(i64::MIN))?;
            }
        }
        Ok(())
    }

    /// The last attempt of a task that was cancelled because it needed another one, and that
    /// has not been retried.
    fn cancelled_by_dependency(&self, id: TaskId) -> Result<Option<AttemptId>, JobError> {
        let TaskLocation::Ended(last, TaskStatus::Cancelled) = find(self.tx, self.held, id)? else {
            return Ok(None);
        };
        let exception = newest_end(self.tx, id)?.and_then(|end| end.exception);
        Ok((exception.as_deref() == Some(TaskError::DEPENDENCY_FAILED)).then_some(last))
    }

    /// Restores a task, unless one that it needs has not succeeded. Those before `from` are
    /// open or have succeeded.
    fn restore_from(&mut self, last: AttemptId, from: TaskId) -> Result<(), JobError> {
        let db = self.tx.db;
        let id = last.task_id;
        let mut failed = db.prepare_cached(sql!("engine/flows", "failed_dependency"))?;
        let mut failed = failed.query(params![id.0, from.0, -1])?;
        if let Some(row) = failed.next()? {
            self.needing.entry(TaskId(read(row, 0)?)).or_default().push(last);
            return Ok(());
        }
        // The one that is restored or retried is open.
        if let DependentNext::Wait(blocked_on) = next_of(self.tx, id)? {
            wait_blocked(self.tx, last, None, 0)?;
            block(self.tx, &BlockedTask { id: last, blocked_on }, false)?;
            self.reopen(last)?;
        }
        Ok(())
    }
}
