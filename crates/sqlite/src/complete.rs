//! Completion in a transaction of the application, and how the engine settles it.

use rusqlite::{Connection, OptionalExtension, params};
use task_engine_core::attempt::{AttemptId, AttemptRecord, NextState};
use task_engine_core::completion::{Completion, SettleOutcome};
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::ending::{EndedAttempt, Fence};
use crate::error::JobError;
use crate::record::{Recorded, record_one, sweep_cancel_requests};
use crate::savepoint::{in_savepoint, lock, roll_back};

/// Completes a task in a transaction of rusqlite: the task ends if the transaction commits.
///
/// A [`rusqlite::Transaction`] on the store's file can be passed as it is. Call it last: no other
/// transaction can write to the file until the transaction ends.
///
/// [`StoreError::AttemptOver`] means that the attempt has been ended otherwise. The whole
/// transaction has been rolled back then, so that nothing of it can be committed. After any other
/// error it is as it was before the call.
pub fn complete_in(connection: &Connection, completion: &Completion) -> Result<(), StoreError> {
    if in_savepoint(connection, |tx| complete(tx, completion))? {
        return Ok(());
    }
    roll_back(connection);
    Err(StoreError::AttemptOver(completion.id))
}

/// False if the attempt is not its holder's any more.
fn complete(tx: &JobTransaction<'_>, completion: &Completion) -> Result<bool, JobError> {
    let id = completion.id;
    lock(tx)?;
    let claim: Option<(i64, String)> = tx
        .db
        .prepare_cached(sql!("engine/complete", "claim"))?
        .query_row([completion.claim_id.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((instance_id, attempts)) = claim else {
        return Ok(false);
    };
    let attempts: Vec<(TaskId, i32, u32)> = serde_json::from_str(&attempts)?;
    let held = attempts.iter().find(|held| AttemptId { task_id: held.0, attempt: held.1 } == id);
    let Some((_, _, retry_number)) = held else {
        return Ok(false);
    };
    Fence::new(tx)?.end(&EndedAttempt {
        id,
        retry_number: *retry_number,
        claim_id: Some(completion.claim_id.0),
        instance_id: Some(instance_id),
        worker: completion.worker,
        started_at: Some(tx.moment.of(completion.began)),
        stopped_at: tx.now(),
        result: Some(completion.result.as_str()),
        error: None,
        next: NextState::End(TaskStatus::Stopped),
    })
}

/// Whether all of these attempts were completed by their own holders.
pub(crate) fn all_completed(
    tx: &JobTransaction<'_>,
    endings: &[AttemptRecord],
) -> Result<bool, JobError> {
    for ending in endings {
        if !is_completed(tx, ending)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_completed(tx: &JobTransaction<'_>, ending: &AttemptRecord) -> Result<bool, JobError> {
    let mut ask = tx.db.prepare_cached(sql!("engine/complete", "completed"))?;
    Ok(ask.exists(params![ending.id.task_id.0, ending.id.attempt, ending.claim_id.0])?)
}

/// In the writer's transaction there is no other open one: an attempt that is not
/// completed now never will be.
pub(crate) fn settle(
    tx: &JobTransaction<'_>,
    endings: &[AttemptRecord],
) -> Result<Vec<SettleOutcome>, JobError> {
    let mut fence = Fence::new(tx)?;
    let mut settled = Vec::with_capacity(endings.len());
    for ending in endings {
        settled.push(match is_completed(tx, ending)? {
            true => SettleOutcome::Completed,
            false => match record_one(tx, &mut fence, ending)? {
                Recorded::Late => SettleOutcome::Late,
                Recorded::Ended | Recorded::Before => SettleOutcome::Recorded,
            },
        });
    }
    sweep_cancel_requests(tx)?;
    Ok(settled)
}
