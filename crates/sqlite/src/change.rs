//! Changes of tasks by operators: edits of waiting tasks, removal of ended ones. The
//! writer's transaction excludes claims.

use rusqlite::params;
use task_engine_core::attempt::AttemptId;
use task_engine_core::change::{DeleteReport, Edit, EditReport};
use task_engine_core::json::Json;
use task_engine_core::task::{TaskId, TaskStatus};

use crate::connection_thread::JobTransaction;
use crate::create::due_at;
use crate::ending::wait;
use crate::error::JobError;
use crate::operate::{TaskLocation, delete_rows, find, leave_queue};
use crate::read::held_tasks;

pub(crate) fn edit(
    tx: &JobTransaction<'_>,
    id: TaskId,
    edit: &Edit,
) -> Result<EditReport, JobError> {
    let (id, due_before, retry_number) = match find(tx, &held_tasks(tx)?, id)? {
        TaskLocation::Waiting { id, due_at, retry_number } => (id, due_at, retry_number),
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
    wait(tx, before, due.unwrap_or(due_before), retry_number)?;
    Ok(EditReport::Changed)
}

pub(crate) fn delete(
    tx: &JobTransaction<'_>,
    ids: &[TaskId],
) -> Result<Vec<DeleteReport>, JobError> {
    let held = held_tasks(tx)?;
    let (mut reports, mut ended) = (Vec::with_capacity(ids.len()), Vec::new());
    for id in ids {
        reports.push(match find(tx, &held, *id)? {
            TaskLocation::Waiting { .. } => DeleteReport::Open(TaskStatus::Waiting),
            TaskLocation::Held(_) => DeleteReport::Open(TaskStatus::Running),
            TaskLocation::Ended(..) => {
                ended.push(id.0);
                DeleteReport::Deleted
            }
            TaskLocation::Nowhere => DeleteReport::NotFound,
        });
    }
    delete_rows(tx, &ended)?;
    Ok(reports)
}
