//! Recording: engines say how attempts ended.

use rusqlite::{OptionalExtension, params};
use task_engine_core::attempt::{AttemptId, Ending, NextState};
use task_engine_core::claim::ClaimId;

use crate::desk::Turn;
use crate::ending::{EndedAttempt, Fence, began};
use crate::fault::Fault;
use crate::report;

/// Ends attempts, and removes claims that are finished. Returns the attempts
/// that somebody else had ended before.
pub(crate) fn record(
    turn: &Turn<'_>,
    endings: &[Ending],
    finished: &[ClaimId],
) -> Result<Vec<AttemptId>, Fault> {
    let mut late = Vec::new();
    let mut fence = Fence::new(turn)?;
    fence.find(endings.iter().map(|ending| ending.id))?;
    for ending in endings {
        if record_one(turn, &mut fence, ending)? == Recorded::Late {
            late.push(ending.id);
        }
    }
    if !endings.is_empty() {
        sweep_cancel_requests(turn)?;
    }
    let mut delete = turn.db.prepare_cached(sql!("claim_delete"))?;
    for claim in finished {
        delete.execute([claim.0])?;
    }
    late.sort_unstable();
    Ok(late)
}

/// What became of an ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// It is on record.
    Ended,
    /// It was before: this very holder has sent it.
    Before,
    /// Somebody else had ended the attempt.
    Late,
}

/// Ends one attempt, or keeps what came too late as evidence.
pub(crate) fn record_one(
    turn: &Turn<'_>,
    fence: &mut Fence<'_>,
    ending: &Ending,
) -> Result<Recorded, Fault> {
    let mut attempt = on_our_clock(turn, ending);
    if matches!(attempt.next, NextState::Wait { .. }) && cancel_requested(turn, ending.id)? {
        attempt.next = attempt.next.with_cancel_request();
    }
    if fence.end(&attempt)? {
        report::told(turn, ending)?;
        return Ok(Recorded::Ended);
    }
    if was_sent_before(turn, ending)? {
        return Ok(Recorded::Before);
    }
    keep_as_evidence(turn, &attempt)?;
    Ok(Recorded::Late)
}

fn cancel_requested(turn: &Turn<'_>, id: AttemptId) -> Result<bool, Fault> {
    let mut ask = turn.db.prepare_cached(sql!("cancel_requested"))?;
    Ok(ask.query_row(params![id.task_id.0, id.attempt], |row| row.get(0))?)
}

/// Puts wishes that have nothing to wish for any more out of the way.
pub(crate) fn sweep_cancel_requests(turn: &Turn<'_>) -> Result<(), Fault> {
    turn.db.prepare_cached(sql!("cancellations_keep"))?.execute([])?;
    turn.db.prepare_cached(sql!("cancel_requests_sweep"))?.execute([])?;
    Ok(())
}

fn on_our_clock<'a>(turn: &Turn<'_>, ending: &'a Ending) -> EndedAttempt<'a> {
    let stopped_at = ending.ran.map_or(turn.now(), |ran| turn.moment.of(ran.ended));
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
fn was_sent_before(turn: &Turn<'_>, ending: &Ending) -> Result<bool, Fault> {
    let ended_by: Option<Option<i64>> = turn
        .db
        .prepare_cached(sql!("ended_by"))?
        .query_row(params![ending.id.task_id.0, ending.id.attempt], |row| row.get(0))
        .optional()?;
    Ok(ended_by == Some(Some(ending.claim_id.0)))
}

fn keep_as_evidence(turn: &Turn<'_>, attempt: &EndedAttempt<'_>) -> Result<(), Fault> {
    turn.db.prepare_cached(sql!("late_result"))?.execute(params![
        attempt.id.task_id.0,
        attempt.id.attempt,
        turn.now(),
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
