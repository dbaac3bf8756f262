//! Imports a file, all of it or nothing, in the writer's transaction.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Params, params};
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::limit::blocked_queue;
use task_engine_store::error::StoreError;
use task_engine_store::export::{
    ExportFile, ExportLine, IdShift, ImportIds, ImportOutcome, InstanceRecord, LimitRecord,
    ScheduleRecord, TaskRecord,
};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::limit_changes::{add, count_running};
use crate::limits::{LimitSet, named_limits, register_class};

pub(crate) fn import(
    tx: &JobTransaction<'_>,
    file: ExportFile,
    ids: ImportIds,
) -> Result<ImportOutcome, JobError> {
    // A conflict that is found half-way is a reply, and everything is rolled back.
    tx.db.execute_batch("SAVEPOINT task_engine_import")?;
    let imported = read(tx, file, ids)?;
    if let ImportOutcome::Conflict(_) = imported {
        tx.db.execute_batch("ROLLBACK TO task_engine_import")?;
    } else {
        tx.brings_work.set(true);
        tx.changes_schedules.set(true);
        tx.db.prepare_cached(sql!("schedules/schedules", "schedule_changed"))?.execute([])?;
    }
    tx.db.execute_batch("RELEASE task_engine_import")?;
    Ok(imported)
}

fn read(
    tx: &JobTransaction<'_>,
    mut file: ExportFile,
    ids: ImportIds,
) -> Result<ImportOutcome, JobError> {
    let header = file.header().clone();
    let last: (i64, i64, i64) =
        tx.db.query_row(sql!("operators/export", "last_ids"), [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
    let mut shift = IdShift { tasks: 0, instances: last.1, schedules: 0 };
    if ids == ImportIds::New {
        (shift.tasks, shift.schedules) = (last.0, last.2);
    } else if !tx.db.query_row(sql!("operators/import", "is_empty"), [], |row| row.get(0))? {
        return Ok(ImportOutcome::Conflict(ImportOutcome::NOT_EMPTY.to_owned()));
    }
    if !shift.fits(&header) {
        return Err(StoreError::InvalidData(ImportOutcome::TOO_FAR.to_owned()).into());
    }
    let mut holders: Vec<InstanceId> = Vec::new();
    let mut claims = 0;
    let mut conflict = None;
    while let Some(line) = file.next() {
        let line = line.map_err(|bad| StoreError::InvalidData(bad.to_string()))?;
        let number = file.line();
        match shift.apply(line, &header) {
            ExportLine::Instance(one) => instance(tx, &one)?,
            ExportLine::PausedQueue(paused) => put(
                tx,
                sql!("operators/import", "paused_queue"),
                params![paused.queue, paused.reason, paused.paused_at.as_microsecond()],
            )?,
            ExportLine::Limit(one) => limit(tx, &one)?,
            ExportLine::Flow(one) => put(
                tx,
                sql!("operators/import", "flow"),
                params![one.correlation_id, one.name, one.created_at.as_microsecond()],
            )?,
            ExportLine::Task(one) => {
                if let Some(running) = one.running {
                    claims += 1;
                    holders.push(InstanceId(running.instance_id));
                }
                task(tx, &one, claims).map_err(|fault| in_line(fault, number, one.id))?;
            }
            ExportLine::Schedule(one) => {
                let there: Option<i64> = tx
                    .db
                    .prepare_cached(sql!("schedules/schedules", "schedule"))?
                    .query_row([&one.name], |row| row.get(0))
                    .optional()?;
                // CancelResponse at the end: a file that is wrong is so in any case.
                if there.is_some() {
                    conflict.get_or_insert(ImportOutcome::same_schedule(&one.name));
                } else {
                    schedule(tx, &one)?;
                }
            }
            ExportLine::SkippedTask(_) | ExportLine::Header(_) | ExportLine::End(_) => {}
        }
    }
    if let Some(conflict) = conflict {
        return Ok(conflict);
    }
    let limits = LimitSet::read(tx)?;
    for row in &limits.rows {
        count_running(tx, &limits, row.id)?;
    }
    // Ids of tasks that retention has removed are never used again, either.
    for (table, seq) in [
        ("task_engine_created_tasks", last.0.max(header.last_task_id + shift.tasks)),
        ("task_engine_instances", last.1.max(header.last_instance_id + shift.instances)),
        ("task_engine_schedules", last.2.max(header.last_schedule_id + shift.schedules)),
    ] {
        put(tx, sql!("operators/import", "delete_sequence"), [table])?;
        put(tx, sql!("operators/import", "set_sequence"), params![table, seq])?;
    }
    holders.sort_unstable();
    holders.dedup();
    Ok(ImportOutcome::Done { read: file.seen(), shift, holders })
}

/// Names the line of a value that cannot be stored, and its task.
fn in_line(fault: JobError, line: u64, task: i64) -> JobError {
    match fault.explain("the database") {
        StoreError::InvalidData(why) => {
            StoreError::InvalidData(format!("line {line}: task {task}: {why}")).into()
        }
        other => other.into(),
    }
}

fn put(tx: &JobTransaction<'_>, statement: &str, params: impl Params) -> Result<(), JobError> {
    tx.db.prepare_cached(statement)?.execute(params)?;
    Ok(())
}

fn instance(tx: &JobTransaction<'_>, one: &InstanceRecord) -> Result<(), JobError> {
    // A live session is alive in another database, not here.
    let is_over = one.stopped_at.is_some() || one.lost_at.is_some();
    let lost_at = if is_over { micros(one.lost_at) } else { Some(tx.now()) };
    put(
        tx,
        sql!("operators/import", "instance"),
        params![
            one.id,
            one.name,
            one.host,
            one.pid,
            one.version,
            one.workers,
            one.lease_ms,
            serde_json::to_string(&one.queues)?,
            serde_json::to_string(&one.pools)?,
            serde_json::to_string(&one.classes)?,
            one.started_at.as_microsecond(),
            one.heartbeat_at.as_microsecond(),
            micros(one.stopped_at),
            lost_at,
        ],
    )
}

/// A limit that is there already stays as it is.
fn limit(tx: &JobTransaction<'_>, one: &LimitRecord) -> Result<(), JobError> {
    if LimitSet::read(tx)?.by_name(&one.name).is_none() {
        add(tx, &one.limit(), one.declared.as_ref(), one.operator.as_ref())?;
    }
    let limits = LimitSet::read(tx)?;
    let Some(row) = limits.by_name(&one.name).filter(|row| row.limit.target == one.target) else {
        return Ok(());
    };
    for closed in &one.closed_keys {
        put(
            tx,
            sql!("engine/limits", "close_key"),
            params![row.id.0, closed.key, closed.until.as_microsecond(), closed.reason],
        )?;
    }
    Ok(())
}

fn task(tx: &JobTransaction<'_>, one: &TaskRecord, claim: i64) -> Result<(), JobError> {
    let id = one.id;
    put(
        tx,
        sql!("operators/import", "task"),
        params![
            id,
            one.class,
            one.queue,
            one.priority,
            one.created_at.as_microsecond(),
            one.scheduled_at.as_microsecond(),
            one.parameters.as_str(),
            one.context.as_str(),
        ],
    )?;
    if !named_limits(&one.context).is_empty() {
        register_class(tx, &one.class)?;
    }
    if let Some(w) = one.waiting {
        let due_at = w.due_at.as_microsecond();
        let is_blocked = one.suspended.as_ref().is_some_and(|suspended| suspended.blocked);
        let queue = if is_blocked { &blocked_queue(&one.queue) } else { &one.queue };
        put(
            tx,
            sql!("operators/import", "waiting"),
            params![id, queue, one.class, one.priority, due_at, w.attempt, w.retry_number],
        )?;
    }
    if let Some(r) = one.running {
        let claimed_at = r.claimed_at.as_microsecond();
        let claim = (r.instance_id << 40) + claim;
        put(
            tx,
            sql!("operators/import", "claim"),
            params![claim, r.instance_id, claimed_at, id, r.attempt, r.retry_number],
        )?;
        if let Some(at) = micros(r.cancel_requested_at) {
            put(tx, sql!("operators/import", "cancel_request"), params![id, r.attempt, at])?;
        }
    }
    for e in &one.executions {
        put(
            tx,
            sql!("operators/import", "execution"),
            params![
                id,
                e.attempt,
                e.retry_number,
                e.instance_id,
                e.worker,
                micros(e.started_at),
                e.stopped_at.as_microsecond(),
                micros(e.retry_at),
                e.ends_task.map(|status| status.as_str()),
                text(e.result.as_ref()),
                text(e.error.as_ref()),
            ],
        )?;
    }
    for late in &one.late_results {
        let holder = one.executions.iter().find(|e| e.attempt == late.attempt);
        put(
            tx,
            sql!("operators/import", "late_result"),
            params![
                id,
                late.attempt,
                late.arrived_at.as_microsecond(),
                holder.and_then(|e| e.instance_id),
                text(late.result.as_ref()),
                text(late.error.as_ref()),
            ],
        )?;
    }
    for p in &one.progress {
        put(
            tx,
            sql!("operators/import", "progress"),
            params![id, p.attempt, p.version, p.lines, p.percent, p.message, micros(p.reported_at)],
        )?;
    }
    for log in &one.logs {
        put(
            tx,
            sql!("operators/import", "log"),
            params![
                id,
                log.attempt,
                log.line,
                log.logged_at.as_microsecond(),
                log.level,
                log.message
            ],
        )?;
    }
    for c in &one.cancellations {
        put(
            tx,
            sql!("operators/import", "cancellation"),
            params![
                id,
                c.attempt,
                c.requested_at.as_microsecond(),
                micros(c.delivered_at),
                c.answer
            ],
        )?;
    }
    durable(tx, one)?;
    if let Some(key) = one.unique_key().filter(|_| one.has_unique_key) {
        put(tx, sql!("operators/import", "unique_key"), params![one.class, key, id])?;
    }
    Ok(())
}

/// The steps and signals of a task, and what it depends on.
fn durable(tx: &JobTransaction<'_>, one: &TaskRecord) -> Result<(), JobError> {
    let id = one.id;
    for step in &one.steps {
        put(
            tx,
            sql!("operators/import", "step"),
            params![
                id,
                step.name,
                step.number,
                step.attempt,
                step.kind.as_str(),
                text(step.result.as_ref()),
                micros(step.until),
                step.started_at.as_microsecond(),
                step.recorded_at.as_microsecond(),
            ],
        )?;
    }
    for signal in &one.signals {
        let (payload, sent_at) = (signal.payload.as_str(), signal.sent_at.as_microsecond());
        put(
            tx,
            sql!("operators/import", "signal"),
            params![id, signal.name, payload, sent_at, signal.timed_out],
        )?;
    }
    for child in &one.depends_on {
        put(tx, sql!("operators/import", "dependency"), params![id, child, None::<&str>])?;
    }
    for one in &one.dependencies {
        let condition = Some(one.condition.as_str());
        put(tx, sql!("operators/import", "dependency"), params![id, one.on, condition])?;
    }
    for attempt in &one.reopened {
        put(tx, sql!("operators/import", "reopened"), params![id, attempt])?;
    }
    if let (Some(suspended), Some(waiting)) = (&one.suspended, one.waiting) {
        let signals = serde_json::to_string(&suspended.signals)?;
        put(
            tx,
            sql!("operators/import", "suspended"),
            params![id, waiting.attempt, signals, suspended.watching, suspended.blocked],
        )?;
    }
    Ok(())
}

fn schedule(tx: &JobTransaction<'_>, one: &ScheduleRecord) -> Result<(), JobError> {
    put(
        tx,
        sql!("operators/import", "schedule"),
        params![
            one.id,
            one.version,
            one.name,
            one.definition.as_str(),
            one.declared,
            one.overlap.as_str(),
            one.anchor.as_microsecond(),
            micros(one.paused_at),
            one.pause_reason,
            one.error,
            micros(one.next_at),
            micros(one.last_slot),
            one.last_task_id,
            one.created_at.as_microsecond(),
            one.updated_at.as_microsecond(),
        ],
    )?;
    for fired in &one.fired_slots {
        let (slot, fired_at) = (fired.slot.as_microsecond(), fired.fired_at.as_microsecond());
        put(
            tx,
            sql!("operators/import", "fired_slot"),
            params![one.id, slot, fired.task_id, fired_at],
        )?;
    }
    for event in &one.events {
        put(
            tx,
            sql!("operators/import", "schedule_event"),
            params![
                one.id,
                event.kind.as_str(),
                micros(event.first_slot),
                micros(event.last_slot),
                event.slots,
                event.task_id,
                event.requested_by,
                event.recorded_at.as_microsecond(),
            ],
        )?;
    }
    Ok(())
}

fn micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_microsecond)
}

fn text(json: Option<&Json>) -> Option<&str> {
    json.map(Json::as_str)
}
