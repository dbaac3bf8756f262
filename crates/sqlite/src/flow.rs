//! Flows: the tasks that share a correlation id, page by page.

use rusqlite::params;
use task_engine_core::flow::{FlowAttempt, FlowPage, FlowTask, Origin, name_in_flow};
use task_engine_core::json::Json;
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::TaskId;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::moment::timestamp;
use crate::read::{HeldTasks, error, held_tasks, row, running_execution, status};
use crate::value::read;

/// A page, oldest first.
pub(crate) fn flow(tx: &JobTransaction<'_>, page: &FlowPage) -> Result<Vec<FlowTask>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("readers/flow", "flow_ids"))?;
    let after = page.after.map_or(0, |id| id.0);
    let own = page.own_task().map(|id| id.0);
    let ids: Vec<i64> = statement
        .query_map(params![page.correlation_id, after, page.limit, own], |row| read(row, 0))?
        .collect::<rusqlite::Result<_>>()?;
    let held = held_tasks(tx)?;
    let tasks = ids.into_iter().map(|id| flow_task(tx, &held, TaskId(id)));
    tasks.filter_map(Result::transpose).collect()
}

fn flow_task(
    tx: &JobTransaction<'_>,
    held: &HeldTasks,
    id: TaskId,
) -> Result<Option<FlowTask>, JobError> {
    let Some(row) = row(tx, held, id)? else {
        return Ok(None);
    };
    let (context, due_at): (String, i64) = tx
        .db
        .prepare_cached(sql!("readers/flow", "flow_task"))?
        .query_row([id.0], |row| Ok((read(row, 0)?, read(row, 1)?)))?;
    let mut executions = ended(tx, id)?;
    executions.extend(held.get(&id).map(|held| {
        let running = running_execution(held);
        FlowAttempt {
            attempt: running.attempt,
            status: running.status,
            instance: running.instance,
            started_at: running.started_at,
            stopped_at: None,
            retry_at: None,
            error: None,
        }
    }));
    let context = Json::from_store(context);
    Ok(Some(FlowTask {
        row,
        parent_id: Origin::of(id, &context).parent_id,
        name: name_in_flow(&context),
        due_at: timestamp(due_at),
        executions,
    }))
}

fn ended(tx: &JobTransaction<'_>, id: TaskId) -> Result<Vec<FlowAttempt>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("readers/flow", "flow_executions"))?;
    let mut rows = statement.query([id.0])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        let mut error = error(row, 5)?;
        if let Some(error) = &mut error {
            error.backtrace.clear();
        }
        let ends_task: Option<String> = read(row, 6)?;
        let ends_task = ends_task.as_deref().map(status).transpose()?;
        attempts.push(FlowAttempt {
            attempt: read(row, 0)?,
            status: ExecutionStatus::of_ended(error.as_ref(), ends_task, read(row, 7)?),
            instance: read(row, 1)?,
            started_at: read(row, 2)?,
            stopped_at: read(row, 3)?,
            retry_at: read(row, 4)?,
            error,
        });
    }
    Ok(attempts)
}
