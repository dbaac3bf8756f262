//! Exports the store line by line, in the snapshot of the reader.

use std::collections::HashMap;

use rusqlite::{Params, Row};
use task_engine_core::json::Json;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::export::{
    CancellationRecord, ClosedKeyRecord, DependencyRecord, ExecutionRecord, ExportCounts,
    ExportFilter, ExportHeader, ExportLine, ExportSink, FORMAT, FiredRecord, FlowRecord,
    InstanceRecord, LateRecord, LimitRecord, LogRecord, PausedQueueRecord, ProgressRecord,
    RunningRecord, ScheduleEventRecord, ScheduleRecord, SignalRecord, StepRecord, SuspendedRecord,
    TaskRecord, WaitingRecord, compact,
};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::limits::LimitSet;
use crate::moment::timestamp;
use crate::schedules::event_kind;
use crate::value::read;

/// A statement that is about one row of another.
pub(crate) fn export(
    tx: &JobTransaction<'_>,
    filter: &ExportFilter,
    place: String,
    mut to: ExportSink,
) -> Result<(), JobError> {
    let mut end = ExportCounts::default();
    // False: the reader has stopped.
    let mut send = |line: ExportLine| {
        end.count(&line);
        to(line)
    };
    let _ = send(ExportLine::Header(header(tx, filter, place)?))
        && each(tx, sql!("operators/export", "instances"), [], |row| {
            Ok(send(ExportLine::Instance(Box::new(instance(row)?))))
        })?
        && crate::queues::paused(tx)?.into_iter().all(|paused| {
            send(ExportLine::PausedQueue(PausedQueueRecord {
                queue: paused.queue,
                reason: paused.reason,
                paused_at: paused.paused_at,
            }))
        })
        && limits(tx)?.into_iter().all(|limit| send(ExportLine::Limit(Box::new(limit))))
        && each(tx, sql!("operators/export", "flows"), [], |row| {
            Ok(send(ExportLine::Flow(FlowRecord {
                correlation_id: read(row, 0)?,
                name: read(row, 1)?,
                created_at: read(row, 2)?,
            })))
        })?
        && tasks(tx, filter, &mut |task| send(task.into_line()))?
        && each(tx, sql!("operators/export", "schedules"), [], |row| {
            Ok(send(ExportLine::Schedule(Box::new(schedule(tx, row)?))))
        })?
        && to(ExportLine::End(end));
    Ok(())
}

/// Passes rows on until the reader stops.
fn each(
    tx: &JobTransaction<'_>,
    statement: &str,
    params: impl Params,
    mut take: impl FnMut(&Row<'_>) -> Result<bool, JobError>,
) -> Result<bool, JobError> {
    let mut statement = tx.db.prepare_cached(statement)?;
    let mut rows = statement.query(params)?;
    while let Some(row) = rows.next()? {
        if !take(row)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn all<T>(
    tx: &JobTransaction<'_>,
    statement: &str,
    id: i64,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    tx.db.prepare_cached(statement)?.query_map([id], read)?.collect()
}

fn header(
    tx: &JobTransaction<'_>,
    filter: &ExportFilter,
    place: String,
) -> Result<ExportHeader, JobError> {
    let ids = |row: &Row<'_>| Ok((read(row, 0)?, read(row, 1)?, read(row, 2)?));
    let (last_task_id, last_instance_id, last_schedule_id) =
        tx.db.query_row(sql!("operators/export", "last_ids"), [], ids)?;
    Ok(ExportHeader {
        task_engine_export: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        exported_at: timestamp(tx.now()),
        from: place,
        statuses: filter.statuses.clone(),
        last_task_id,
        last_instance_id,
        last_schedule_id,
    })
}

fn instance(row: &Row<'_>) -> Result<InstanceRecord, JobError> {
    let text = |column| read::<String>(row, column);
    Ok(InstanceRecord {
        id: read(row, 0)?,
        name: read(row, 1)?,
        host: read(row, 2)?,
        pid: read(row, 3)?,
        version: read(row, 4)?,
        workers: read(row, 5)?,
        lease_ms: read(row, 6)?,
        queues: serde_json::from_str(&text(7)?).unwrap_or_default(),
        pools: serde_json::from_str(&text(8)?).unwrap_or_default(),
        classes: serde_json::from_str(&text(9)?).unwrap_or_default(),
        started_at: read(row, 10)?,
        heartbeat_at: read(row, 11)?,
        stopped_at: read(row, 12)?,
        lost_at: read(row, 13)?,
    })
}

/// Those that operators have set, and those with closed keys.
fn limits(tx: &JobTransaction<'_>) -> Result<Vec<LimitRecord>, JobError> {
    let mut records = Vec::new();
    for row in LimitSet::read(tx)?.rows {
        let mut closed = tx.db.prepare_cached(sql!("operators/limits", "closed_keys"))?;
        let closed_keys = closed.query_map([i64::from(row.id.0), tx.now()], |key| {
            Ok(ClosedKeyRecord { key: read(key, 0)?, until: read(key, 1)?, reason: read(key, 2)? })
        })?;
        let closed_keys: Vec<_> = closed_keys.collect::<rusqlite::Result<_>>()?;
        if row.set_by_operator || !closed_keys.is_empty() {
            records.push(LimitRecord {
                name: row.limit.name,
                target: row.limit.target,
                declared: row.declared,
                operator: row.set_by_operator.then_some(row.limit.options),
                closed_keys,
            });
        }
    }
    Ok(records)
}

fn tasks(
    tx: &JobTransaction<'_>,
    filter: &ExportFilter,
    take: &mut dyn FnMut(TaskRecord) -> bool,
) -> Result<bool, JobError> {
    let mut held = HashMap::new();
    each(tx, sql!("operators/export", "held"), [], |row| {
        let running = RunningRecord {
            attempt: read(row, 1)?,
            retry_number: read(row, 2)?,
            instance_id: read(row, 3)?,
            claimed_at: read(row, 4)?,
            cancel_requested_at: read(row, 5)?,
        };
        held.insert(read::<i64>(row, 0)?, running);
        Ok(true)
    })?;
    each(tx, sql!("operators/export", "tasks"), [], |row| {
        let task = task(tx, row, &held)?;
        Ok(!filter.wants(task.status) || take(task))
    })
}

fn task(
    tx: &JobTransaction<'_>,
    row: &Row<'_>,
    held: &HashMap<i64, RunningRecord>,
) -> Result<TaskRecord, JobError> {
    let id: i64 = read(row, 0)?;
    let waiting = match read::<Option<i32>>(row, 8)? {
        Some(attempt) => {
            Some(WaitingRecord { attempt, retry_number: read(row, 9)?, due_at: read(row, 10)? })
        }
        None => None,
    };
    let durable = crate::steps::steps(tx, TaskId(id))?;
    let mut task = TaskRecord {
        id,
        status: TaskStatus::Waiting,
        class: read(row, 1)?,
        queue: read(row, 2)?,
        priority: read(row, 3)?,
        created_at: read(row, 4)?,
        scheduled_at: read(row, 5)?,
        parameters: compact(&read::<String>(row, 6)?),
        context: compact(&read::<String>(row, 7)?),
        has_unique_key: read(row, 11)?,
        waiting,
        running: held.get(&id).copied(),
        executions: all(tx, sql!("operators/export", "executions"), id, execution)?,
        late_results: all(tx, sql!("operators/export", "late_results"), id, |row| {
            Ok(LateRecord {
                attempt: read(row, 0)?,
                arrived_at: read(row, 1)?,
                result: json(row, 2)?,
                error: json(row, 3)?,
            })
        })?,
        progress: all(tx, sql!("operators/export", "progress"), id, |row| {
            Ok(ProgressRecord {
                attempt: read(row, 0)?,
                version: read(row, 1)?,
                lines: read(row, 2)?,
                percent: read(row, 3)?,
                message: read(row, 4)?,
                reported_at: read(row, 5)?,
            })
        })?,
        logs: all(tx, sql!("operators/export", "logs"), id, |row| {
            Ok(LogRecord {
                attempt: read(row, 0)?,
                line: read(row, 1)?,
                logged_at: read(row, 2)?,
                level: read(row, 3)?,
                message: read(row, 4)?,
            })
        })?,
        cancellations: all(tx, sql!("operators/export", "cancellations"), id, |row| {
            Ok(CancellationRecord {
                attempt: read(row, 0)?,
                requested_at: read(row, 1)?,
                delivered_at: read(row, 2)?,
                answer: read(row, 3)?,
            })
        })?,
        steps: durable.steps.into_iter().map(StepRecord::from).collect(),
        signals: durable.signals.into_iter().map(SignalRecord::from).collect(),
        depends_on: all(tx, sql!("operators/export", "dependencies"), id, |row| read(row, 0))?,
        dependencies: conditions(tx, id)?,
        reopened: all(tx, sql!("operators/export", "reopened"), id, |row| read(row, 0))?,
        suspended: None,
    };
    for (attempt, suspended) in all(tx, sql!("operators/export", "suspended"), id, suspended)? {
        task.set_suspended(attempt, suspended);
    }
    task.status = task.place().ok_or_else(|| task.nowhere())?;
    Ok(task)
}

fn execution(row: &Row<'_>) -> rusqlite::Result<ExecutionRecord> {
    let ends_task = read::<Option<String>>(row, 7)?;
    Ok(ExecutionRecord {
        attempt: read(row, 0)?,
        retry_number: read(row, 1)?,
        instance_id: read(row, 2)?,
        worker: read(row, 3)?,
        started_at: read(row, 4)?,
        stopped_at: read(row, 5)?,
        retry_at: read(row, 6)?,
        ends_task: ends_task.and_then(|word| word.parse().ok()),
        result: json(row, 8)?,
        error: json(row, 9)?,
    })
}

fn suspended(row: &Row<'_>) -> rusqlite::Result<(i32, SuspendedRecord)> {
    let signals = serde_json::from_str(&read::<String>(row, 1)?).unwrap_or_default();
    let (watching, blocked) = (read(row, 2)?, read(row, 3)?);
    Ok((read(row, 0)?, SuspendedRecord { signals, watching, blocked }))
}

/// What a task depends on.
fn conditions(tx: &JobTransaction<'_>, id: i64) -> Result<Vec<DependencyRecord>, JobError> {
    let mut dependencies = Vec::new();
    each(tx, sql!("operators/export", "conditions"), [id], |row| {
        let condition = crate::dependents::condition(row, 1)?;
        dependencies.push(DependencyRecord { on: read(row, 0)?, condition });
        Ok(true)
    })?;
    Ok(dependencies)
}

fn schedule(tx: &JobTransaction<'_>, row: &Row<'_>) -> Result<ScheduleRecord, JobError> {
    let id = read(row, 0)?;
    let overlap: String = read(row, 5)?;
    Ok(ScheduleRecord {
        id,
        version: read(row, 1)?,
        name: read(row, 2)?,
        definition: compact(&read::<String>(row, 3)?),
        declared: read(row, 4)?,
        overlap: overlap.parse().unwrap_or_default(),
        anchor: read(row, 6)?,
        paused_at: read(row, 7)?,
        pause_reason: read(row, 8)?,
        error: read(row, 9)?,
        next_at: read(row, 10)?,
        last_slot: read(row, 11)?,
        last_task_id: read(row, 12)?,
        created_at: read(row, 13)?,
        updated_at: read(row, 14)?,
        fired_slots: all(tx, sql!("operators/export", "fired_slots"), id, |row| {
            Ok(FiredRecord { slot: read(row, 0)?, task_id: read(row, 1)?, fired_at: read(row, 2)? })
        })?,
        events: all(tx, sql!("operators/export", "schedule_events"), id, |row| {
            Ok(ScheduleEventRecord {
                kind: event_kind(row)?,
                first_slot: read(row, 1)?,
                last_slot: read(row, 2)?,
                slots: read(row, 3)?,
                task_id: read(row, 4)?,
                requested_by: read(row, 5)?,
                recorded_at: read(row, 6)?,
            })
        })?,
    })
}

fn json(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Json>> {
    Ok(read::<Option<String>>(row, column)?.map(|text| compact(&text)))
}
