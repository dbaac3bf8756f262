//! Records how attempts ended.

use rusqlite::{OptionalExtension, params};
use task_engine_core::attempt::{AttemptId, AttemptRecord, NextState};
use task_engine_core::claim::ClaimId;

use crate::connection_thread::JobTransaction;
use crate::ending::{EndedAttempt, Fence, began};
use crate::error::JobError;
use crate::progress;

/// Ends attempts, and removes finished claims. Returns the attempts that had already
/// ended.
pub(crate) fn record(
    tx: &JobTransaction<'_>,
    endings: &[AttemptRecord],
    finished: &[ClaimId],
) -> Result<Vec<AttemptId>, JobError> {
    let mut late = Vec::new();
    let mut fence = Fence::new(tx)?;
    fence.find(endings.iter().map(|ending| ending.id))?;
    for ending in endings {
        if record_one(tx, &mut fence, ending)? == Recorded::Late {
            late.push(ending.id);
        }
    }
    if !endings.is_empty() {
        sweep_cancel_requests(tx)?;
    }
    let mut delete = tx.db.prepare_cached(sql!("engine/record", "claim_delete"))?;
    for claim in finished {
        delete.execute([claim.0])?;
    }
    late.sort_unstable();
    Ok(late)
}

/// The outcome of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// It is recorded.
    Ended,
    /// It was before: this very holder has sent it.
    Before,
    /// The attempt had already ended otherwise.
    Late,
}

/// Ends one attempt, or keeps a late result as evidence.
pub(crate) fn record_one(
    tx: &JobTransaction<'_>,
    fence: &mut Fence<'_>,
    ending: &AttemptRecord,
) -> Result<Recorded, JobError> {
    let mut attempt = on_our_clock(tx, ending);
    if matches!(attempt.next, NextState::Wait { .. }) && cancel_requested(tx, ending.id)? {
        attempt.next = attempt.next.with_cancel_request();
    }
    if fence.end(&attempt)? {
        progress::write_cancel_response(tx, ending)?;
        return Ok(Recorded::Ended);
    }
    if was_sent_before(tx, ending)? {
        return Ok(Recorded::Before);
    }
    keep_as_evidence(tx, &attempt)?;
    Ok(Recorded::Late)
}

fn cancel_requested(tx: &JobTransaction<'_>, id: AttemptId) -> Result<bool, JobError> {
    let mut ask = tx.db.prepare_cached(sql!("engine/record", "cancel_requested"))?;
    Ok(ask.query_row(params![id.task_id.0, id.attempt], |row| row.get(0))?)
}

/// Removes cancel requests of attempts that have ended.
pub(crate) fn sweep_cancel_requests(tx: &JobTransaction<'_>) -> Result<(), JobError> {
    tx.db.prepare_cached(sql!("engine/record", "cancellations_from_requests"))?.execute([])?;
    tx.db.prepare_cached(sql!("engine/record", "cancel_requests_sweep"))?.execute([])?;
    Ok(())
}

fn on_our_clock<'a>(tx: &JobTransaction<'_>, ending: &'a AttemptRecord) -> EndedAttempt<'a> {
    let stopped_at = ending.ran.map_or(tx.now(), |ran| tx.moment.of(ran.ended));
    EndedAttempt {
        id: ending.id,
        retry_number: ending.retry_number,
        claim_id: Some(ending.claim_id.0),
        instance_id: Some(ending.instance_id.0),
        worker: ending.ran.and_then(|ran| ran.worker),
        started_at: ending.ran.map(|ran| began(stopped_at, ran.lasted)),
        stopped_at,
        result: ending.result.as_ref().map(|result| result.as_str()),
        error: ending.error.as_ref(),
        next: ending.next,
    }
}

/// Whether this very holder ended the attempt: it has lost our answer, and sends
/// the same thing again.
fn was_sent_before(tx: &JobTransaction<'_>, ending: &AttemptRecord) -> Result<bool, JobError> {
    let ended_by: Option<Option<i64>> = tx
        .db
        .prepare_cached(sql!("engine/record", "ended_by"))?
        .query_row(params![ending.id.task_id.0, ending.id.attempt], |row| row.get(0))
        .optional()?;
    Ok(ended_by == Some(Some(ending.claim_id.0)))
}

fn keep_as_evidence(tx: &JobTransaction<'_>, attempt: &EndedAttempt<'_>) -> Result<(), JobError> {
    tx.db.prepare_cached(sql!("engine/record", "late_result"))?.execute(params![
        attempt.id.task_id.0,
        attempt.id.attempt,
        tx.now(),
        attempt.claim_id,
        attempt.instance_id,
        attempt.worker,
        attempt.started_at,
        attempt.stopped_at,
        attempt.result,
        attempt.error_text()?,
    ])?;
    Ok(())
}
