//! Unique tasks: the writer's transaction decides, and no other can
//! change anything before its end.

use std::time::Duration;

use rusqlite::{OptionalExtension, params};
use task_engine_core::attempt::AttemptId;
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_core::unique::{Creation, Unique};

use crate::connection_thread::JobTransaction;
use crate::create::{Insert, due_at};
use crate::ending::wait;
use crate::error::JobError;
use crate::moment::between;
use crate::read::{HeldTasks, held_tasks};
use crate::task_operations::{TaskLocation, find, leave_queue};

/// Creates a task, unless one with its key conflicts.
pub(crate) fn create(
    tx: &JobTransaction<'_>,
    insert: &mut Insert<'_>,
    held: &mut Option<HeldTasks>,
    task: &NewTask,
    unique: &Unique,
) -> Result<Creation, JobError> {
    let mut take = tx.db.prepare_cached(sql!("engine/create", "unique_take"))?;
    let is_new = take.execute([&task.class, &unique.key])? == 1;
    if !is_new
        && let Some(holder) = KeyHolder::of(tx, held, task, unique)?
        && unique.scope.covers(holder.status(), holder.age)
    {
        return match holder.place {
            TaskLocation::Waiting { id, due_at, .. }
                if unique.on_conflict.changes(holder.status()) =>
            {
                replace(tx, id, due_at, task, unique)?;
                Ok(Creation::Replaced(holder.id))
            }
            _ => Ok(Creation::Kept(holder.id)),
        };
    }
    let id = insert.run(tx, task)?;
    write_key(tx, id, unique)?;
    let mut give = tx.db.prepare_cached(sql!("engine/create", "unique_assign"))?;
    give.execute(params![task.class, unique.key, id.0])?;
    Ok(Creation::Created(id))
}

/// The task that has a key.
struct KeyHolder {
    id: TaskId,
    age: Duration,
    place: TaskLocation,
}

impl KeyHolder {
    fn of(
        tx: &JobTransaction<'_>,
        held: &mut Option<HeldTasks>,
        task: &NewTask,
        unique: &Unique,
    ) -> Result<Option<Self>, JobError> {
        let mut holder = tx.db.prepare_cached(sql!("engine/create", "unique_holder"))?;
        let found: Option<(i64, i64)> = holder
            .query_row([&task.class, &unique.key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((id, created_at)) = found else {
            return Ok(None);
        };
        // Read once a call: no other job can claim or record before its end.
        let held = match held {
            Some(held) => held,
            none => none.insert(held_tasks(tx)?),
        };
        let (id, age) = (TaskId(id), between(created_at, tx.now()));
        Ok(Some(Self { id, age, place: find(tx, held, id)? }))
    }

    fn status(&self) -> TaskStatus {
        match self.place {
            TaskLocation::Waiting { .. } => TaskStatus::Waiting,
            TaskLocation::Held(_) => TaskStatus::Running,
            TaskLocation::Ended(_, status) => status,
            // A damaged file: a task without a location never runs.
            TaskLocation::Nowhere => TaskStatus::Failed,
        }
    }
}

/// A replaced task has all its retries; its attempt numbers continue. A waiting row is
/// never updated.
fn replace(
    tx: &JobTransaction<'_>,
    id: AttemptId,
    due_before: i64,
    task: &NewTask,
    unique: &Unique,
) -> Result<(), JobError> {
    let answer = unique.on_conflict;
    let all = answer.takes_parameters() && answer.takes_time();
    let due_at = if answer.takes_time() { due_at(task.due, tx.moment) } else { due_before };
    tx.db.prepare_cached(sql!("engine/create", "replace_task"))?.execute(params![
        id.task_id.0,
        answer.takes_parameters().then(|| task.parameters.as_str()),
        all.then(|| task.context.as_str()),
        all.then_some(&task.queue),
        all.then_some(task.priority),
        answer.takes_time().then_some(due_at),
    ])?;
    write_key(tx, id.task_id, unique)?;
    leave_queue(tx, id.task_id)?;
    let before = AttemptId { attempt: id.attempt - 1, ..id };
    wait(tx, before, due_at, 0)
}

fn write_key(tx: &JobTransaction<'_>, id: TaskId, unique: &Unique) -> Result<(), JobError> {
    tx.db
        .prepare_cached(sql!("engine/create", "unique_name"))?
        .execute(params![id.0, unique.key])?;
    Ok(())
}
