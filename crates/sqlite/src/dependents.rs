//! Blocked tasks: they wait for tasks that they depend on, and start or are cancelled when
//! those have ended.

use std::collections::VecDeque;

use rusqlite::{OptionalExtension, Params, Row, params};
use task_engine_core::attempt::{AttemptId, NextState, TaskError};
use task_engine_core::dependency::{
    Dependency, DependencyCondition, DependencyState, DependentNext, decide_dependent,
};
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::ending::{EndedAttempt, Fence, wait};
use crate::error::JobError;
use crate::read::status;
use crate::suspend::remove;
use crate::task_operations::leave_queue;
use crate::value::read;

/// How many dependencies of a blocked task a heartbeat looks at: from the one that the task
/// waits for on, and if there are more, from anywhere behind that.
const LOOKED_AT_MAX: i64 = 1000;

/// A blocked task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockedTask {
    /// The attempt before the one that it waits for; 0 before the first.
    pub(crate) id: AttemptId,
    /// The task that it waits for next.
    pub(crate) blocked_on: TaskId,
}

/// Decides about blocked tasks after ends, until nothing more follows.
pub(crate) struct Resolver<'t> {
    tx: &'t JobTransaction<'t>,
    /// Ended tasks whose dependents were not looked at yet.
    ended: VecDeque<TaskId>,
    /// How many tasks were started.
    started: u64,
}

impl<'t> Resolver<'t> {
    pub(crate) fn new(tx: &'t JobTransaction<'t>) -> Self {
        Self { tx, ended: VecDeque::new(), started: 0 }
    }

    /// These tasks have ended.
    pub(crate) fn ended(&mut self, ids: &[TaskId]) {
        self.ended.extend(ids);
    }

    /// Looks at the dependents of ended tasks, also of those that this cancels. Returns how
    /// many tasks were started.
    pub(crate) fn resolve(mut self) -> Result<u64, JobError> {
        while let Some(ended) = self.ended.pop_front() {
            let waiting = blocked_tasks(self.tx, sql!("engine/flows", "blocked_on"), [ended.0])?;
            for task in waiting {
                self.look(&task)?;
            }
            if self.was_unsuccessful(ended)? {
                let statement = sql!("engine/flows", "blocked_needing");
                for task in blocked_tasks(self.tx, statement, [ended.0])? {
                    self.decide(&task)?;
                }
            }
        }
        Ok(self.started)
    }

    /// Looks at what a blocked task waits for next. Ends before that one were looked at.
    fn look(&mut self, task: &BlockedTask) -> Result<(), JobError> {
        let mut next = self.tx.db.prepare_cached(sql!("engine/flows", "next_dependency"))?;
        let found: Option<(i64, bool)> = next
            .query_row([task.id.task_id.0, task.blocked_on.0], |row| {
                Ok((read(row, 0)?, read(row, 1)?))
            })
            .optional()?;
        match found {
            Some((open, true)) => self.wait_for(task, TaskId(open)),
            // Only now all that it depends on is read.
            Some((_, false)) | None => self.decide(task),
        }
    }

    /// The same, if an end was missed: a needed task may have failed while the blocked one
    /// waits for another.
    pub(crate) fn look_again(&mut self, task: &BlockedTask) -> Result<(), JobError> {
        let (db, id, from) = (self.tx.db, task.id.task_id.0, task.blocked_on.0);
        let mut failed = db.prepare_cached(sql!("engine/flows", "failed_dependency"))?;
        let mut has_failed = failed.exists(params![id, from, LOOKED_AT_MAX])?;
        if !has_failed {
            let mut last = db.prepare_cached(sql!("engine/flows", "last_dependency"))?;
            let last: Option<i64> = last.query_row([id], |row| read(row, 0))?;
            if let Some(last) = last.filter(|last| *last >= from.saturating_add(LOOKED_AT_MAX)) {
                has_failed =
                    failed.exists(params![id, fastrand::i64(from..=last), LOOKED_AT_MAX])?;
            }
        }
        if has_failed { self.decide(task) } else { self.look(task) }
    }

    /// Reads all that a task depends on, and decides.
    pub(crate) fn decide(&mut self, task: &BlockedTask) -> Result<(), JobError> {
        match next_of(self.tx, task.id.task_id)? {
            DependentNext::Wait(open) => self.wait_for(task, open),
            DependentNext::Start => self.start(task),
            DependentNext::Cancel(error) => self.cancel(task, &error),
        }
    }

    fn wait_for(&self, task: &BlockedTask, open: TaskId) -> Result<(), JobError> {
        if open != task.blocked_on {
            let mut block = self.tx.db.prepare_cached(sql!("engine/flows", "block_on"))?;
            block.execute([task.id.task_id.0, open.0])?;
        }
        Ok(())
    }

    /// A waiting row is replaced, never updated.
    fn start(&mut self, task: &BlockedTask) -> Result<(), JobError> {
        if let Some((due_at, retry_number)) = self.unblock(task)? {
            wait(self.tx, task.id, due_at.max(self.tx.now()), retry_number)?;
            self.started += 1;
        }
        Ok(())
    }

    fn cancel(&mut self, task: &BlockedTask, error: &TaskError) -> Result<(), JobError> {
        let Some((_, retry_number)) = self.unblock(task)? else {
            return Ok(());
        };
        let ended = EndedAttempt {
            id: AttemptId { attempt: task.id.attempt.saturating_add(1), ..task.id },
            retry_number,
            claim_id: None,
            instance_id: None,
            worker: None,
            started_at: None,
            stopped_at: self.tx.now(),
            result: None,
            error: Some(error),
            next: NextState::End(TaskStatus::Cancelled),
        };
        Fence::new(self.tx)?.end(&ended)?;
        self.ended.push_back(task.id.task_id);
        Ok(())
    }

    /// Takes a blocked task out of the queue. Returns when it is due, and its retry number;
    /// `None` if it is not blocked, and only its row about that was left.
    fn unblock(&self, task: &BlockedTask) -> Result<Option<(i64, u32)>, JobError> {
        remove(self.tx, task.id.task_id)?;
        let mut waiting = self.tx.db.prepare_cached(sql!("operators/tasks", "waiting_one"))?;
        let found: Option<(i64, i32, u32, bool)> = waiting
            .query_row([task.id.task_id.0], |row| {
                Ok((read(row, 0)?, read(row, 1)?, read(row, 2)?, read(row, 3)?))
            })
            .optional()?;
        match found {
            Some((due_at, attempt, retry_number, true))
                if attempt == task.id.attempt.saturating_add(1) =>
            {
                leave_queue(self.tx, task.id.task_id)?;
                Ok(Some((due_at, retry_number)))
            }
            _ => Ok(None),
        }
    }

    /// Whether the last attempt of a task ended it without success.
    fn was_unsuccessful(&self, id: TaskId) -> Result<bool, JobError> {
        let end = newest_end(self.tx, id)?;
        let ends_task = end.and_then(|end| end.ends_task);
        Ok(ends_task.is_some_and(|status| status != TaskStatus::Stopped))
    }
}

/// The newest attempt of a task that has ended.
#[derive(Debug)]
pub(crate) struct NewestEnd {
    pub(crate) attempt: i32,
    pub(crate) ends_task: Option<TaskStatus>,
    pub(crate) exception: Option<String>,
}

pub(crate) fn newest_end(
    tx: &JobTransaction<'_>,
    id: TaskId,
) -> Result<Option<NewestEnd>, JobError> {
    let mut newest = tx.db.prepare_cached(sql!("engine/flows", "newest_end"))?;
    let mut rows = newest.query([id.0])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let ends_task: Option<String> = read(row, 1)?;
    Ok(Some(NewestEnd {
        attempt: read(row, 0)?,
        ends_task: ends_task.as_deref().map(status).transpose()?,
        exception: read(row, 2)?,
    }))
}

/// What happens to a task, by all that it depends on.
pub(crate) fn next_of(tx: &JobTransaction<'_>, id: TaskId) -> Result<DependentNext, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/flows", "dependency_states"))?;
    let mut name_in_flow = tx.db.prepare_cached(sql!("engine/flows", "name_in_flow"))?;
    let mut rows = statement.query([id.0])?;
    let mut dependencies = Vec::new();
    while let Some(row) = rows.next()? {
        let (on, word): (i64, String) = (read(row, 0)?, read(row, 2)?);
        let condition = condition(row, 1)?;
        let state = match word.as_str() {
            "open" => DependencyState::Open,
            "removed" => DependencyState::Removed,
            word => DependencyState::Ended(status(word)?),
        };
        // Only the message about a failure has the name.
        let needs_name = condition == DependencyCondition::Success
            && !matches!(
                state,
                DependencyState::Open | DependencyState::Ended(TaskStatus::Stopped)
            );
        let name = match needs_name {
            true => name_in_flow.query_row([on], |row| read(row, 0)).optional()?,
            false => None,
        };
        dependencies.push(Dependency { id: TaskId(on), name, condition, state });
        if needs_name {
            // The first one decides.
            break;
        }
    }
    Ok(decide_dependent(&dependencies))
}

/// A stored condition.
pub(crate) fn condition(row: &Row<'_>, column: usize) -> Result<DependencyCondition, JobError> {
    let name: String = read(row, column)?;
    DependencyCondition::from_token(&name).ok_or_else(|| {
        StoreError::Refused(format!("a dependency has the condition {name:?}, which is unknown"))
            .into()
    })
}

/// Blocked tasks that depend on one whose engine does not know it.
pub(crate) fn blocked_late(
    tx: &JobTransaction<'_>,
    limit: u32,
) -> Result<Vec<BlockedTask>, JobError> {
    blocked_tasks(tx, sql!("engine/flows", "blocked_late"), [limit])
}

/// All of them, before the first is changed: the statements read what changes.
fn blocked_tasks(
    tx: &JobTransaction<'_>,
    statement: &str,
    params: impl Params,
) -> Result<Vec<BlockedTask>, JobError> {
    let mut statement = tx.db.prepare_cached(statement)?;
    let tasks = statement.query_map(params, |row| {
        Ok(BlockedTask {
            id: AttemptId { task_id: TaskId(read(row, 0)?), attempt: read(row, 1)? },
            blocked_on: TaskId(read(row, 2)?),
        })
    })?;
    Ok(tasks.collect::<rusqlite::Result<_>>()?)
}

/// Blocks a task that waits for the attempt after this one.
pub(crate) fn block(
    tx: &JobTransaction<'_>,
    task: &BlockedTask,
    late_watch: bool,
) -> Result<(), JobError> {
    let mut block = tx.db.prepare_cached(sql!("engine/flows", "block"))?;
    block.execute(params![task.id.task_id.0, task.id.attempt, task.blocked_on.0, late_watch])?;
    Ok(())
}

/// Puts the task of an ended attempt where no claim sees it, under the next number. Without a
/// time, it is due when it was scheduled.
pub(crate) fn wait_blocked(
    tx: &JobTransaction<'_>,
    ended: AttemptId,
    due_at: Option<i64>,
    retry_number: u32,
) -> Result<(), JobError> {
    let mut wait = tx.db.prepare_cached(sql!("engine/flows", "wait_blocked"))?;
    let attempt = ended.attempt.saturating_add(1);
    wait.execute(params![ended.task_id.0, due_at, attempt, retry_number])?;
    Ok(())
}
