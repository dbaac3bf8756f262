//! One step of a search: how far it goes, and its tasks.

use rusqlite::types::Value;
use rusqlite::{OptionalExtension, Statement, params};
use task_engine_core::filter::FoundTask;
use task_engine_core::flow::Origin;
use task_engine_core::json::Json;
use task_engine_core::task::{TaskId, TaskRow, TaskStatus};
use task_engine_store::scan::{CreationTimes, TimeRange};
use task_engine_store::scan::{Scan, ScanPage, ScanSource};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::moment::timestamp;
use crate::read::{HeldTasks, held_tasks, json, row};
use crate::value::read;

pub(crate) fn scan(tx: &JobTransaction<'_>, scan: &Scan) -> Result<ScanPage, JobError> {
    let now = timestamp(tx.now());
    let (bound, step) = match &scan.source {
        ScanSource::All => {
            (sql!("readers/scan", "scan_bound_all"), sql!("readers/scan", "scan_all"))
        }
        ScanSource::Flow(_) => {
            (sql!("readers/scan", "scan_bound_flow"), sql!("readers/scan", "scan_flow"))
        }
        ScanSource::Ids(_) => {
            (sql!("readers/scan", "scan_bound_ids"), sql!("readers/scan", "scan_ids"))
        }
        ScanSource::WithStatus(_) => {
            (sql!("readers/scan", "scan_bound_status"), sql!("readers/scan", "scan_status"))
        }
    };
    let mut bound = tx.db.prepare_cached(bound)?;
    let range = [scan.from.0.into(), scan.before.0.into(), i64::from(scan.rows).into()];
    bind(&mut bound, scan, range, ScanNarrowing::NOTHING)?;
    let (lowest, rows): (Option<i64>, i64) = {
        let mut rows = bound.raw_query();
        match rows.next()? {
            Some(row) => (read(row, 0)?, read(row, 1)?),
            None => (None, 0),
        }
    };
    let Some(lowest) = lowest else {
        return Ok(ScanPage { tasks: Vec::new(), down_to: None, now });
    };

    let (from, until) = scan.created_between(now);
    let list = |words: &Option<Vec<String>>| match words {
        Some(words) => serde_json::to_string(words).map(Value::Text),
        None => Ok(Value::Null),
    };
    let time = |time: Option<jiff::Timestamp>| {
        time.map_or(Value::Null, |time| time.as_microsecond().into())
    };
    let mut step = tx.db.prepare_cached(step)?;
    let range = [lowest.into(), scan.before.0.into(), i64::from(scan.tasks).into()];
    let (ended_from, ended_until) = scan.ended_between(now);
    let narrow = ScanNarrowing {
        columns: [list(&scan.classes)?, list(&scan.queues)?, time(from), time(until)],
        attempts: [time(ended_from), time(ended_until), scan.with_error.into()],
    };
    bind(&mut step, scan, range, narrow)?;
    let ids: Vec<i64> = step.raw_query().mapped(|row| read(row, 0)).collect::<Result<_, _>>()?;
    let held = held_tasks(tx)?;
    let tasks = ids.iter().map(|id| found(tx, &held, TaskId(*id), scan.with_json));
    let tasks = tasks.filter_map(Result::transpose).collect::<Result<Vec<_>, JobError>>()?;
    let down_to = match ids.last() {
        Some(last) if ids.len() >= scan.tasks as usize => Some(TaskId(*last)),
        _ => (rows >= i64::from(scan.rows)).then_some(TaskId(lowest)),
    };
    Ok(ScanPage { tasks, down_to, now })
}

/// The conditions of a step.
struct ScanNarrowing {
    /// By columns of the task: classes, queues, and when it was created.
    columns: [Value; 4],
    /// By its attempts: when one ended, and whether one must have an error.
    attempts: [Value; 3],
}

impl ScanNarrowing {
    const NOTHING: Self =
        Self { columns: [const { Value::Null }; 4], attempts: [const { Value::Null }; 3] };
}

/// Gives a statement those of the seventeen parameters that it has.
fn bind(
    statement: &mut Statement<'_>,
    scan: &Scan,
    range: [Value; 3],
    narrow: ScanNarrowing,
) -> Result<(), JobError> {
    let flow = match &scan.source {
        ScanSource::Flow(name) => Value::Text(name.clone()),
        _ => Value::Null,
    };
    let own = scan.own_task_of_flow().map_or(Value::Null, |id| id.0.into());
    let ids = match &scan.source {
        ScanSource::Ids(ids) => {
            let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
            Value::Text(serde_json::to_string(&ids)?)
        }
        _ => Value::Null,
    };
    let statuses =
        [TaskStatus::Waiting, TaskStatus::Running, TaskStatus::Failed, TaskStatus::Cancelled];
    let statuses = statuses.map(|status| match &scan.source {
        ScanSource::WithStatus(wanted) => wanted.contains(&status).into(),
        _ => Value::Null,
    });
    let count = statement.parameter_count();
    let all = range.into_iter().chain(narrow.columns).chain([flow, own]).chain(narrow.attempts);
    let all = all.chain([ids]).chain(statuses);
    for (n, value) in all.enumerate().take(count) {
        statement.raw_bind_parameter(n + 1, value)?;
    }
    Ok(())
}

fn found(
    tx: &JobTransaction<'_>,
    held: &HeldTasks,
    id: TaskId,
    with_json: bool,
) -> Result<Option<FoundTask>, JobError> {
    let Some(row) = row(tx, held, id)? else {
        return Ok(None);
    };
    let (parameters, context): (String, String) = tx
        .db
        .prepare_cached(sql!("readers/tasks", "task_request"))?
        .query_row(params![id.0], |row| Ok((read(row, 0)?, read(row, 1)?)))?;
    let (started_at, ended_at) = last_times(tx, &row)?;
    let context = json(context);
    let origin = Origin::of(id, &context);
    let asked = |json: Json| if with_json { json } else { Json::empty_object() };
    Ok(Some(FoundTask {
        row,
        correlation_id: origin.correlation_id,
        parent_id: origin.parent_id,
        parameters: asked(json(parameters)),
        context: asked(context),
        started_at,
        ended_at,
    }))
}

/// When the last attempt of a task began and ended.
fn last_times(tx: &JobTransaction<'_>, row: &TaskRow) -> Result<TimeRange, JobError> {
    if row.status == TaskStatus::Running {
        return Ok((Some(row.updated_at), None));
    }
    let times = tx
        .db
        .prepare_cached(sql!("readers/scan", "last_times"))?
        .query_row([row.id.0], |row| Ok((read(row, 0)?, Some(read(row, 1)?))))
        .optional()?;
    Ok(times.unwrap_or_default())
}

pub(crate) fn creation_times(
    tx: &JobTransaction<'_>,
    ids: &[TaskId],
) -> Result<CreationTimes, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("readers/scan", "creation_times"))?;
    let mut tasks = Vec::with_capacity(ids.len());
    for id in ids {
        let task = statement
            .query_row([id.0], |row| Ok((TaskId(read(row, 0)?), read(row, 1)?)))
            .optional()?;
        tasks.push(task);
    }
    Ok(CreationTimes { tasks, now: timestamp(tx.now()) })
}
