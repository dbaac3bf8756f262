//! Signals to durable tasks, and waits that time out.

use rusqlite::{Connection, OptionalExtension, Row, params};
use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimId;
use task_engine_core::json::Json;
use task_engine_core::step::{
    SignalReport, SignalRow, SignalStatus, SignalTarget, WaitOutcome, check_signal_name,
};
use task_engine_core::task::TaskId;
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::moment::timestamp;
use crate::read::held_tasks;
use crate::savepoint::{in_savepoint, lock};
use crate::steps::OpenAttempts;
use crate::suspend;
use crate::value::read;

/// Sends a signal in a transaction of rusqlite: the task receives it if the transaction commits.
///
/// A [`rusqlite::Transaction`] on the store's file can be passed as it is.
///
/// Outside of a transaction this is one of its own. Engines learn of it within
/// milliseconds of the commit. No other transaction can write to the file until the
/// transaction ends.
pub fn signal_in(
    connection: &Connection,
    target: &SignalTarget,
    name: &str,
    payload: &Json,
) -> Result<SignalReport, StoreError> {
    in_savepoint(connection, |tx| {
        lock(tx)?;
        signal(tx, target, name, payload)
    })
}

/// Sends a signal. The caller has the lock of the writer, so a suspension is before this or
/// after it.
pub(crate) fn signal(
    tx: &JobTransaction<'_>,
    target: &SignalTarget,
    name: &str,
    payload: &Json,
) -> Result<SignalReport, JobError> {
    check_signal_name(name).map_err(|why| StoreError::Refused(why.to_string()))?;
    let Some(id) = find(tx, target)? else {
        return Ok(SignalReport { task_id: None, status: SignalStatus::NotFound });
    };
    let status = send(tx, id, name, payload)?;
    Ok(SignalReport { task_id: Some(id), status })
}

fn send(
    tx: &JobTransaction<'_>,
    id: TaskId,
    name: &str,
    payload: &Json,
) -> Result<SignalStatus, JobError> {
    if has_ended(tx, id)? {
        return Ok(SignalStatus::TaskEnded);
    }
    if !insert(tx, id, name, payload, false)? {
        let timed_out = signal_of(tx, id, name)?.is_some_and(|before| before.timed_out);
        return Ok(if timed_out { SignalStatus::TimedOut } else { SignalStatus::Duplicate });
    }
    let resumed = suspend::resume_for_signal(tx, id, name)?;
    Ok(if resumed { SignalStatus::Delivered } else { SignalStatus::Kept })
}

/// Decides a wait whose deadline has passed: the primary key decides between a signal and
/// the timeout.
pub(crate) fn time_out(
    tx: &JobTransaction<'_>,
    id: AttemptId,
    claim_id: ClaimId,
    name: &str,
) -> Result<WaitOutcome, JobError> {
    if let Some(decided) = signal_of(tx, id.task_id, name)? {
        return Ok(WaitOutcome::Decided(decided));
    }
    if !OpenAttempts::new(tx).contains(id, claim_id)? {
        return Ok(WaitOutcome::AttemptOver);
    }
    let payload = Json::null();
    insert(tx, id.task_id, name, &payload, true)?;
    Ok(WaitOutcome::Decided(SignalRow {
        name: name.to_owned(),
        payload,
        sent_at: timestamp(tx.now()),
        timed_out: true,
    }))
}

/// The signals of a task, in the order of their times.
pub(crate) fn signals_of(tx: &JobTransaction<'_>, id: TaskId) -> Result<Vec<SignalRow>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/durable", "signals"))?;
    let rows = statement.query_map([id.0], signal_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// A signal, or the timeout of the wait for it.
pub(crate) fn signal_of(
    tx: &JobTransaction<'_>,
    id: TaskId,
    name: &str,
) -> Result<Option<SignalRow>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/durable", "signal"))?;
    Ok(statement.query_row(params![id.0, name], signal_row).optional()?)
}

/// False if there is a signal, or a timeout, of this name.
fn insert(
    tx: &JobTransaction<'_>,
    id: TaskId,
    name: &str,
    payload: &Json,
    timed_out: bool,
) -> Result<bool, JobError> {
    let mut insert = tx.db.prepare_cached(sql!("engine/durable", "signal_insert"))?;
    Ok(insert.execute(params![id.0, name, payload.as_str(), tx.now(), timed_out])? == 1)
}

fn find(tx: &JobTransaction<'_>, target: &SignalTarget) -> Result<Option<TaskId>, JobError> {
    match target {
        SignalTarget::Id(id) => {
            let mut exists = tx.db.prepare_cached(sql!("engine/record", "task_exists"))?;
            Ok(exists.exists([id.0])?.then_some(*id))
        }
        SignalTarget::UniqueKey { class, key } => {
            let mut holder = tx.db.prepare_cached(sql!("engine/create", "unique_holder"))?;
            let id = holder.query_row([class, key], |row| read(row, 0)).optional()?;
            Ok(id.map(TaskId))
        }
    }
}

/// Whether a task has ended. All claims are read only if its last attempt ended it and it
/// does not wait: an operator may have retried it, and an engine holds it then.
fn has_ended(tx: &JobTransaction<'_>, id: TaskId) -> Result<bool, JobError> {
    if tx.db.prepare_cached(sql!("operators/tasks", "waiting_one"))?.exists([id.0])? {
        return Ok(false);
    }
    let last: Option<Option<String>> = tx
        .db
        .prepare_cached(sql!("operators/tasks", "last_ending"))?
        .query_row([id.0], |row| read(row, 1))
        .optional()?;
    Ok(last.flatten().is_some() && !held_tasks(tx)?.contains_key(&id))
}

fn signal_row(row: &Row<'_>) -> rusqlite::Result<SignalRow> {
    Ok(SignalRow {
        name: read(row, 0)?,
        payload: read(row, 1)?,
        sent_at: read(row, 2)?,
        timed_out: read(row, 3)?,
    })
}
