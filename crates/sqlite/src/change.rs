//! What an operator changes about tasks: edit those that wait, remove those that
//! have ended. Whoever has the writer's turn decides; nobody claims meanwhile.

use rusqlite::params;
use task_engine_core::attempt::AttemptId;
use task_engine_core::change::{Edit, EditReport, RemoveReport};
use task_engine_core::json::Json;
use task_engine_core::task::{TaskId, TaskStatus};

use crate::create::due_at;
use crate::desk::Turn;
use crate::ending::wait;
use crate::fault::Fault;
use crate::operate::{Place, find, forget, leave_queue};
use crate::read::held_tasks;

pub(crate) fn edit(turn: &Turn<'_>, id: TaskId, edit: &Edit) -> Result<EditReport, Fault> {
    let (id, due_before, retry_number) = match find(turn, &held_tasks(turn)?, id)? {
        Place::Waiting { id, due_at, retry_number } => (id, due_at, retry_number),
        Place::Held(_) => return Ok(EditReport::NotWaiting(TaskStatus::Running)),
        Place::Ended(_, status) => return Ok(EditReport::NotWaiting(status)),
        Place::Nowhere => return Ok(EditReport::NotFound),
    };
    let due = edit.due.map(|due| due_at(due, turn.moment));
    turn.db.prepare_cached(sql!("replace_task"))?.execute(params![
        id.task_id.0,
        edit.parameters.as_ref().map(Json::as_str),
        None::<&str>,
        edit.queue,
        edit.priority,
        due,
    ])?;
    leave_queue(turn, id.task_id)?;
    let before = AttemptId { attempt: id.attempt - 1, ..id };
    wait(turn, before, due.unwrap_or(due_before), retry_number)?;
    Ok(EditReport::Changed)
}

pub(crate) fn remove(turn: &Turn<'_>, ids: &[TaskId]) -> Result<Vec<RemoveReport>, Fault> {
    let held = held_tasks(turn)?;
    let (mut reports, mut ended) = (Vec::with_capacity(ids.len()), Vec::new());
    for id in ids {
        reports.push(match find(turn, &held, *id)? {
            Place::Waiting { .. } => RemoveReport::Open(TaskStatus::Waiting),
            Place::Held(_) => RemoveReport::Open(TaskStatus::Running),
            Place::Ended(..) => {
                ended.push(id.0);
                RemoveReport::Removed
            }
            Place::Nowhere => RemoveReport::NotFound,
        });
    }
    forget(turn, &ended)?;
    Ok(reports)
}
