//! Unique tasks: whoever has the writer's turn decides, and nobody else can
//! change anything before its end.

use std::time::Duration;

use rusqlite::{OptionalExtension, params};
use task_engine_core::attempt::AttemptId;
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_core::unique::{Creation, Unique};

use crate::create::{Insert, due_at};
use crate::desk::Turn;
use crate::ending::wait;
use crate::fault::Fault;
use crate::moment::between;
use crate::operate::{Place, find, leave_queue};
use crate::read::{HeldTasks, held_tasks};

/// Creates a task, unless one with its key stands in the way.
pub(crate) fn create(
    turn: &Turn<'_>,
    insert: &mut Insert<'_>,
    held: &mut Option<HeldTasks>,
    task: &NewTask,
    unique: &Unique,
) -> Result<Creation, Fault> {
    let mut take = turn.db.prepare_cached(sql!("unique_take"))?;
    let is_new = take.execute([&task.class, &unique.key])? == 1;
    if !is_new
        && let Some(holder) = Holder::of(turn, held, task, unique)?
        && unique.scope.covers(holder.status(), holder.age)
    {
        return match holder.place {
            Place::Waiting { id, due_at, .. } if unique.on_conflict.changes(holder.status()) => {
                replace(turn, id, due_at, task, unique)?;
                Ok(Creation::Replaced(holder.id))
            }
            _ => Ok(Creation::Kept(holder.id)),
        };
    }
    let id = insert.run(turn, task)?;
    say_key(turn, id, unique)?;
    let mut give = turn.db.prepare_cached(sql!("unique_give"))?;
    give.execute(params![task.class, unique.key, id.0])?;
    Ok(Creation::Created(id))
}

/// The task that has a key.
struct Holder {
    id: TaskId,
    age: Duration,
    place: Place,
}

impl Holder {
    fn of(
        turn: &Turn<'_>,
        held: &mut Option<HeldTasks>,
        task: &NewTask,
        unique: &Unique,
    ) -> Result<Option<Self>, Fault> {
        let mut holder = turn.db.prepare_cached(sql!("unique_holder"))?;
        let found: Option<(i64, i64)> = holder
            .query_row([&task.class, &unique.key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((id, created_at)) = found else {
            return Ok(None);
        };
        // Read once a call: nobody else can claim or record before its end.
        let held = match held {
            Some(held) => held,
            none => none.insert(held_tasks(turn)?),
        };
        let (id, age) = (TaskId(id), between(created_at, turn.now()));
        Ok(Some(Self { id, age, place: find(turn, held, id)? }))
    }

    fn status(&self) -> TaskStatus {
        match self.place {
            Place::Waiting { .. } => TaskStatus::Waiting,
            Place::Held(_) => TaskStatus::Running,
            Place::Ended(_, status) => status,
            // A damaged file: what is nowhere never runs.
            Place::Nowhere => TaskStatus::Failed,
        }
    }
}

/// What was asked for anew has all its retries; the number of the attempt goes
/// on. A waiting row is never updated.
fn replace(
    turn: &Turn<'_>,
    id: AttemptId,
    due_before: i64,
    task: &NewTask,
    unique: &Unique,
) -> Result<(), Fault> {
    let answer = unique.on_conflict;
    let all = answer.takes_parameters() && answer.takes_time();
    let due_at = if answer.takes_time() { due_at(task.due, turn.moment) } else { due_before };
    turn.db.prepare_cached(sql!("replace_task"))?.execute(params![
        id.task_id.0,
        answer.takes_parameters().then(|| task.parameters.as_str()),
        all.then(|| task.context.as_str()),
        all.then_some(&task.queue),
        all.then_some(task.priority),
        answer.takes_time().then_some(due_at),
    ])?;
    say_key(turn, id.task_id, unique)?;
    leave_queue(turn, id.task_id)?;
    let before = AttemptId { attempt: id.attempt - 1, ..id };
    wait(turn, before, due_at, 0)
}

fn say_key(turn: &Turn<'_>, id: TaskId, unique: &Unique) -> Result<(), Fault> {
    turn.db.prepare_cached(sql!("unique_name"))?.execute(params![id.0, unique.key])?;
    Ok(())
}
