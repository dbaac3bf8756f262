//! Tasks as they are now: pages, and all about one of them.

use std::collections::HashMap;

use jiff::Timestamp;
use rusqlite::{Row, params};
use task_engine_core::ParseError;
use task_engine_core::attempt::{AttemptId, TaskError};
use task_engine_core::flow::Origin;
use task_engine_core::json::Json;
use task_engine_core::task::{
    ExecutionRow, TaskDetails, TaskId, TaskListQuery, TaskRow, TaskStatus,
};
use task_engine_core::task::{ExecutionStatus, LateResult};
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::moment::timestamp;
use crate::value::read;

/// The tasks that engines hold. As many as there are busy workers.
pub(crate) type HeldTasks = HashMap<TaskId, RunningAttempt>;

/// An attempt in an engine's hands.
#[derive(Debug)]
pub(crate) struct RunningAttempt {
    pub(crate) id: AttemptId,
    retry_number: i32,
    claimed_at: i64,
    instance: Option<String>,
}

/// Read once, because claims are kept by the batch and not by the task.
pub(crate) fn held_tasks(tx: &JobTransaction<'_>) -> Result<HeldTasks, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("readers/tasks", "held"))?;
    let held = statement.query_map([], |row| {
        let task_id = TaskId(read(row, 0)?);
        let held = RunningAttempt {
            id: AttemptId { task_id, attempt: read(row, 1)? },
            retry_number: read(row, 2)?,
            claimed_at: read(row, 3)?,
            instance: read(row, 4)?,
        };
        Ok((task_id, held))
    })?;
    Ok(held.collect::<rusqlite::Result<_>>()?)
}

/// A page, newest first. Each status is read from the tables that contain it, because the
/// status of all tasks would need the whole history.
pub(crate) fn tasks(
    tx: &JobTransaction<'_>,
    filter: &TaskListQuery,
) -> Result<Vec<TaskRow>, JobError> {
    let held = held_tasks(tx)?;
    let ids = page(tx, filter)?;
    let rows = ids.into_iter().map(|id| row(tx, &held, TaskId(id)));
    rows.filter_map(Result::transpose).collect()
}

fn page(tx: &JobTransaction<'_>, filter: &TaskListQuery) -> Result<Vec<i64>, JobError> {
    let before = filter.before.map_or(i64::MAX, |id| id.0);
    let (class, limit) = (&filter.class, filter.limit);
    let statement = match filter.status {
        None => sql!("readers/tasks", "page_all"),
        Some(TaskStatus::Waiting) => sql!("readers/tasks", "page_waiting"),
        Some(TaskStatus::Running) => sql!("readers/tasks", "page_running"),
        Some(TaskStatus::Stopped) => sql!("readers/tasks", "page_stopped"),
        Some(TaskStatus::Failed | TaskStatus::Cancelled) => {
            sql!("readers/tasks", "page_failed_or_cancelled")
        }
    };
    let mut statement = tx.db.prepare_cached(statement)?;
    let id = |row: &Row<'_>| row.get(0);
    let ids = match filter.status {
        Some(status @ (TaskStatus::Failed | TaskStatus::Cancelled)) => {
            statement.query_map(params![before, class, limit, status.as_str()], id)?
        }
        _ => statement.query_map(params![before, class, limit], id)?,
    };
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

/// Everything about one task.
pub(crate) fn task(tx: &JobTransaction<'_>, id: TaskId) -> Result<Option<TaskDetails>, JobError> {
    let held = held_tasks(tx)?;
    let Some(row) = row(tx, &held, id)? else {
        return Ok(None);
    };
    let (parameters, context) = tx
        .db
        .prepare_cached(sql!("readers/tasks", "task_request"))?
        .query_row([id.0], |row| Ok((read(row, 0)?, read(row, 1)?)))?;
    let running = held.get(&id);
    let cancel_requested = match running {
        Some(held) => tx
            .db
            .prepare_cached(sql!("readers/tasks", "task_cancel_requested"))?
            .query_row(params![id.0, held.id.attempt], |row| read(row, 0))?,
        None => false,
    };
    let context = json(context);
    let origin = Origin::of(id, &context);
    let mut executions = executions(tx, id)?;
    executions.extend(running.map(running_execution));
    for execution in &mut executions {
        crate::progress::complete(tx, id, execution)?;
    }
    Ok(Some(TaskDetails {
        row,
        parameters: json(parameters),
        context,
        executions,
        cancel_requested,
        late_results: late_results(tx, id)?,
        correlation_id: origin.correlation_id,
        parent_id: origin.parent_id,
    }))
}

pub(crate) fn row(
    tx: &JobTransaction<'_>,
    held: &HeldTasks,
    id: TaskId,
) -> Result<Option<TaskRow>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("readers/tasks", "task"))?;
    let mut rows = statement.query([id.0])?;
    match rows.next()? {
        Some(row) => task_row(row, id, held.get(&id)).map(Some),
        None => Ok(None),
    }
}

fn task_row(row: &Row<'_>, id: TaskId, held: Option<&RunningAttempt>) -> Result<TaskRow, JobError> {
    let created_at = read(row, 3)?;
    let scheduled_at = read(row, 4)?;
    let waits_until: Option<Timestamp> = read(row, 5)?;
    let stopped_at: Option<Timestamp> = read(row, 8)?;
    let held = held.filter(|_| waits_until.is_none());
    let held_count = i32::from(held.is_some());
    let mut task = TaskRow {
        id,
        status: TaskStatus::Waiting,
        class: read(row, 0)?,
        queue: read(row, 1)?,
        priority: read(row, 2)?,
        created_at,
        scheduled_at: waits_until.unwrap_or(scheduled_at),
        updated_at: stopped_at.unwrap_or(created_at),
        attempts: read::<i32>(row, 13)? + held_count,
        retry_number: read::<Option<i32>>(row, 6)?.unwrap_or(0),
        instance: None,
        error: error(row, 9)?,
        is_blocked: read(row, 14)?,
    };
    if let Some(held) = held {
        task.status = TaskStatus::Running;
        task.scheduled_at = read::<Option<_>>(row, 11)?.unwrap_or(scheduled_at);
        task.updated_at = timestamp(held.claimed_at);
        task.retry_number = held.retry_number;
        task.instance = held.instance.clone();
        task.error = None;
    } else if waits_until.is_none()
        && let Some(word) = read::<Option<String>>(row, 10)?
    {
        task.status = status(&word)?;
        task.retry_number = read::<Option<i32>>(row, 7)?.unwrap_or(0);
        task.instance = read(row, 12)?;
    } else if ExecutionStatus::of_ended(task.error.as_ref(), None, true) == ExecutionStatus::Snoozed
    {
        task.error = None;
    }
    Ok(task)
}

fn executions(tx: &JobTransaction<'_>, id: TaskId) -> Result<Vec<ExecutionRow>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("readers/tasks", "task_executions"))?;
    let mut rows = statement.query([id.0])?;
    let mut executions = Vec::new();
    while let Some(row) = rows.next()? {
        let error = error(row, 7)?;
        let ends_task: Option<String> = read(row, 8)?;
        let ends_task = ends_task.as_deref().map(status).transpose()?;
        executions.push(ExecutionRow {
            attempt: read(row, 0)?,
            retry_number: read(row, 1)?,
            status: ExecutionStatus::of_ended(error.as_ref(), ends_task, read(row, 10)?),
            instance: read(row, 2)?,
            worker: read(row, 3)?,
            started_at: read(row, 4)?,
            stopped_at: read(row, 5)?,
            result: read::<Option<String>>(row, 6)?.map(json),
            error,
            ends_task,
            retry_at: read(row, 9)?,
            progress: None,
            log_lines: 0,
            cancel: None,
        });
    }
    Ok(executions)
}

pub(crate) fn running_execution(held: &RunningAttempt) -> ExecutionRow {
    ExecutionRow {
        attempt: held.id.attempt,
        retry_number: held.retry_number,
        status: ExecutionStatus::Running,
        instance: held.instance.clone(),
        worker: None,
        started_at: Some(timestamp(held.claimed_at)),
        stopped_at: None,
        result: None,
        error: None,
        ends_task: None,
        retry_at: None,
        progress: None,
        log_lines: 0,
        cancel: None,
    }
}

fn late_results(tx: &JobTransaction<'_>, id: TaskId) -> Result<Vec<LateResult>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("readers/tasks", "task_late_results"))?;
    let mut rows = statement.query([id.0])?;
    let mut late = Vec::new();
    while let Some(row) = rows.next()? {
        late.push(LateResult {
            attempt: read(row, 0)?,
            arrived_at: read(row, 1)?,
            ended_at: read(row, 2)?,
            result: read::<Option<String>>(row, 3)?.map(json),
            error: error(row, 4)?,
        });
    }
    Ok(late)
}

/// A stored JSON value to be shown, or why it cannot be read, in its place.
pub(crate) fn json(text: String) -> Json {
    match Json::parse(text) {
        Ok(json) => json,
        Err(why) => Json::unreadable(&why.to_string()),
    }
}

/// A stored status.
pub(crate) fn status(word: &str) -> Result<TaskStatus, JobError> {
    word.parse().map_err(|why: ParseError| JobError::Store(StoreError::Refused(why.to_string())))
}

pub(crate) fn error(row: &Row<'_>, column: usize) -> Result<Option<TaskError>, JobError> {
    let text: Option<String> = read(row, column)?;
    // SQL of an application may have written another shape: show it as it is.
    let read = |text: String| {
        serde_json::from_str(&text).unwrap_or_else(|_| TaskError::new("Unknown", text).storable())
    };
    Ok(text.map(read))
}
