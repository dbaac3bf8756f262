//! Engine sessions: register, heartbeat, unregister.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Params, Row, params};
use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimId;
use task_engine_core::instance::ENDED_KEPT;
use task_engine_core::instance::{InstanceId, InstanceRow, NewInstance};
use task_engine_core::limit::is_blocked_queue;
use task_engine_core::process;
use task_engine_core::recovery::UnendedAttempt;
use task_engine_core::task::TaskId;
use task_engine_store::contract::HeartbeatReply;
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::lane::AFTER_BLOCKED;
use crate::moment::{between, micros, timestamp};
use crate::value::read;

/// The most classes of waiting tasks that a heartbeat returns.
const CLASSES_MAX: usize = 100;
/// The most pairs of queue and class that it reads for them.
const LOOKS_MAX: usize = 1000;

pub(crate) fn register(tx: &JobTransaction<'_>, new: &NewInstance) -> Result<InstanceId, JobError> {
    // Rounded up: a lease is never shorter than requested.
    let lease_ms = new.lease.as_micros().div_ceil(1000);
    let inserted =
        tx.db.prepare_cached(sql!("engine/instances", "instance_insert"))?.execute(params![
            new.name,
            new.host,
            new.pid,
            new.process,
            new.version,
            new.workers,
            i64::try_from(lease_ms).unwrap_or(i64::MAX / 1000),
            serde_json::to_string(&new.queues)?,
            serde_json::to_string(&new.classes)?,
            tx.now(),
            serde_json::to_string(&new.pools)?,
        ])?;
    if inserted == 0 {
        return Err(JobError::Store(StoreError::NameTaken(new.name.clone())));
    }
    Ok(InstanceId(tx.db.last_insert_rowid()))
}

pub(crate) fn heartbeat(
    tx: &JobTransaction<'_>,
    instance: InstanceId,
) -> Result<HeartbeatReply, JobError> {
    let renewed = tx
        .db
        .prepare_cached(sql!("engine/instances", "instance_heartbeat"))?
        .execute([instance.0, tx.now()])?;
    if renewed == 0 {
        return Ok(HeartbeatReply::default());
    }
    let instance_id = |row: &Row<'_>| Ok(InstanceId(read(row, 0)?));
    Ok(HeartbeatReply {
        alive: true,
        now: timestamp(tx.now()),
        claims: all(tx, sql!("engine/instances", "heartbeat_claims"), [instance.0], |row| {
            Ok(ClaimId(read(row, 0)?))
        })?,
        cancel: all(tx, sql!("engine/instances", "heartbeat_cancel"), [instance.0], attempt_id)?,
        // One writer: a request and an ending cannot be concurrent.
        lingering: Vec::new(),
        expired: all(
            tx,
            sql!("engine/instances", "heartbeat_expired"),
            [instance.0, tx.now()],
            instance_id,
        )?,
        orphaned: all(tx, sql!("engine/instances", "heartbeat_orphaned"), [], instance_id)?,
        waiting_classes: waiting_classes(tx)?,
        next_schedule_in: crate::schedules::next_in(tx)?,
        tasks_suspended: crate::suspend::tasks_suspended(tx)?,
    })
}

pub(crate) fn unregister(tx: &JobTransaction<'_>, instance: InstanceId) -> Result<(), JobError> {
    tx.db
        .prepare_cached(sql!("engine/instances", "instance_stop"))?
        .execute([instance.0, tx.now()])?;
    Ok(())
}

pub(crate) fn declare_lost(
    tx: &JobTransaction<'_>,
    instance: InstanceId,
    process_gone: bool,
) -> Result<bool, JobError> {
    let lost = tx
        .db
        .prepare_cached(sql!("engine/instances", "instance_lose"))?
        .execute(params![instance.0, tx.now(), process_gone])?;
    Ok(lost == 1)
}

pub(crate) fn instances(
    tx: &JobTransaction<'_>,
    name: Option<&str>,
) -> Result<Vec<InstanceRow>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/instances", "instances"))?;
    let mut rows = statement.query(params![name, tx.now() - micros(ENDED_KEPT)])?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        sessions.push(instance_row(tx, row)?);
    }
    Ok(sessions)
}

pub(crate) fn prune(tx: &JobTransaction<'_>, limit: u32) -> Result<u64, JobError> {
    let before = tx.now() - micros(ENDED_KEPT);
    let pruned = tx
        .db
        .prepare_cached(sql!("engine/instances", "prune_instances"))?
        .execute(params![before, limit])?;
    Ok(pruned as u64)
}

pub(crate) fn held_attempts(
    tx: &JobTransaction<'_>,
    instance: InstanceId,
) -> Result<Vec<UnendedAttempt>, JobError> {
    all(tx, sql!("engine/instances", "held_by"), [instance.0], |row| {
        Ok(UnendedAttempt { id: attempt_id(row)?, class: read(row, 2)?, claimed_at: read(row, 3)? })
    })
}

fn instance_row(tx: &JobTransaction<'_>, row: &Row<'_>) -> Result<InstanceRow, JobError> {
    let heartbeat_at = read(row, 11)?;
    let lease_ms: i64 = read(row, 7)?;
    let stopped_at: Option<Timestamp> = read(row, 12)?;
    let lost_at: Option<Timestamp> = read(row, 13)?;
    let process: Option<String> = read(row, 4)?;
    let ended = stopped_at.is_some() || lost_at.is_some();
    Ok(InstanceRow {
        process_gone: !ended && process.as_deref().is_some_and(process::is_gone),
        id: InstanceId(read(row, 0)?),
        name: read(row, 1)?,
        host: read(row, 2)?,
        pid: read(row, 3)?,
        process,
        version: read(row, 5)?,
        workers: read(row, 6)?,
        lease: between(0, lease_ms.saturating_mul(1000)),
        queues: serde_json::from_str(&read::<String>(row, 8)?).unwrap_or_default(),
        classes: serde_json::from_str(&read::<String>(row, 9)?).unwrap_or_default(),
        started_at: read(row, 10)?,
        heartbeat_at: timestamp(heartbeat_at),
        heartbeat_age: between(heartbeat_at, tx.now()),
        stopped_at,
        lost_at,
        held: read(row, 14)?,
        pools: serde_json::from_str(&read::<String>(row, 15)?).unwrap_or_default(),
    })
}

fn attempt_id(row: &Row<'_>) -> rusqlite::Result<AttemptId> {
    Ok(AttemptId { task_id: TaskId(read(row, 0)?), attempt: read(row, 1)? })
}

/// Seeks from class to class: a queue of a million tasks of one class is one seek.
fn waiting_classes(tx: &JobTransaction<'_>) -> Result<Vec<String>, JobError> {
    let mut next = tx.db.prepare_cached(sql!("engine/instances", "next_waiting_class"))?;
    let mut classes = BTreeSet::new();
    let mut at = (String::new(), String::new());
    for _ in 0..LOOKS_MAX {
        let found =
            next.query_row([&at.0, &at.1], |row| Ok((read(row, 0)?, read(row, 1)?))).optional()?;
        let Some(pair) = found else { break };
        at = pair;
        if is_blocked_queue(&at.0) {
            at = (AFTER_BLOCKED.to_owned(), String::new());
            continue;
        }
        classes.insert(at.1.clone());
        if classes.len() == CLASSES_MAX {
            break;
        }
    }
    Ok(classes.into_iter().collect())
}

fn all<T>(
    tx: &JobTransaction<'_>,
    statement: &str,
    parameters: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, JobError> {
    let mut statement = tx.db.prepare_cached(statement)?;
    let rows = statement.query_map(parameters, read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
