//! Recovery: reclaims tasks from engines that no longer work on them.

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, params};
use task_engine_core::attempt::{AttemptId, NextState};
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::recovery::{HoldingEngine, OpenAttempt};
use task_engine_core::recovery::{Reclaim, ReclaimedAttempt};
use task_engine_core::task::TaskId;

use crate::connection_thread::JobTransaction;
use crate::ending::{EndedAttempt, Fence};
use crate::error::JobError;
use crate::record::sweep_cancel_requests;
use crate::suspend::resume_parents;
use crate::value::read;

/// The job that deletes a claim ends its attempts, so two recoveries never meet.
pub(crate) fn reclaim(
    tx: &JobTransaction<'_>,
    what: &Reclaim,
) -> Result<Vec<ReclaimedAttempt>, JobError> {
    let (instance, mut attempts) = match what {
        Reclaim::Unknown(instance, claims) => (*instance, unknown(tx, *instance, claims)?),
        Reclaim::Lost(instance) => (*instance, lost(tx, *instance)?),
    };
    if attempts.is_empty() {
        return Ok(Vec::new());
    }
    attempts.sort_unstable_by_key(|attempt| attempt.id);
    let holding_engine = holding_engine(tx, instance)?;
    let mut taken = Vec::with_capacity(attempts.len());
    for attempt in &attempts {
        taken.extend(end(tx, what, instance, attempt, &holding_engine)?);
    }
    sweep_cancel_requests(tx)?;
    let ended = taken.iter().filter(|one| matches!(one.next, NextState::End(_)));
    let ended: Vec<TaskId> = ended.map(|one| one.id.task_id).collect();
    resume_parents(tx, &ended)?;
    Ok(taken)
}

/// An attempt of a reclaimed claim.
struct ReclaimedTask {
    id: AttemptId,
    retry_number: u32,
    claimed_at: i64,
}

fn unknown(
    tx: &JobTransaction<'_>,
    instance: InstanceId,
    claims: &[task_engine_core::claim::ClaimId],
) -> Result<Vec<ReclaimedTask>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/recover", "reclaim_claim"))?;
    let mut attempts = Vec::new();
    for claim in claims {
        for claim in statement.query_map([claim.0, instance.0], claim_row)? {
            attempts.extend(attempts_of(claim?)?);
        }
    }
    Ok(attempts)
}

fn lost(tx: &JobTransaction<'_>, instance: InstanceId) -> Result<Vec<ReclaimedTask>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/recover", "reclaim_claims"))?;
    let mut attempts = Vec::new();
    for claim in statement.query_map([instance.0], claim_row)? {
        attempts.extend(attempts_of(claim?)?);
    }
    Ok(attempts)
}

fn claim_row(row: &Row<'_>) -> rusqlite::Result<(i64, String)> {
    Ok((read(row, 0)?, read(row, 1)?))
}

fn attempts_of((claimed_at, attempts): (i64, String)) -> Result<Vec<ReclaimedTask>, JobError> {
    let attempts: Vec<(TaskId, i32, u32)> = serde_json::from_str(&attempts)?;
    let attempts = attempts.into_iter();
    Ok(attempts
        .map(|(task_id, attempt, retry_number)| ReclaimedTask {
            id: AttemptId { task_id, attempt },
            retry_number,
            claimed_at,
        })
        .collect())
}

/// Ends one attempt, unless it has ended before: a claim stays until its last
/// attempt has ended.
fn end(
    tx: &JobTransaction<'_>,
    what: &Reclaim,
    instance: InstanceId,
    attempt: &ReclaimedTask,
    holding_engine: &HoldingEngine,
) -> Result<Option<ReclaimedAttempt>, JobError> {
    let task: Option<(String, String, bool, bool)> = tx
        .db
        .prepare_cached(sql!("engine/recover", "reclaimed_task"))?
        .query_row(params![attempt.id.task_id.0, attempt.id.attempt], |row| {
            Ok((read(row, 0)?, read(row, 1)?, read(row, 2)?, read(row, 3)?))
        })
        .optional()?;
    let Some((class, context, cancel_requested, recorded_steps)) = task else {
        return Ok(None);
    };
    let unended = OpenAttempt {
        attempt: attempt.id.attempt,
        class: &class,
        context: &Json::from_store(context),
        retry_number: attempt.retry_number,
        cancel_requested,
        recorded_steps,
    };
    let (how, next) = holding_engine.decide(what, unended, fastrand::f64());
    // There is no better source for the time when it began.
    let began = how.has_started();
    let (_, error) = how.into_parts();
    let ended = EndedAttempt {
        id: attempt.id,
        retry_number: attempt.retry_number,
        claim_id: None,
        instance_id: Some(instance.0),
        worker: None,
        started_at: began.then_some(attempt.claimed_at),
        stopped_at: tx.now(),
        result: None,
        error: error.as_ref(),
        next,
    };
    let written = Fence::new(tx)?.end(&ended)?;
    Ok(written.then_some(ReclaimedAttempt { id: attempt.id, class, next }))
}

/// The recorded session of the engine that held the claims.
fn holding_engine(
    tx: &JobTransaction<'_>,
    instance: InstanceId,
) -> Result<HoldingEngine, JobError> {
    let now = tx.now();
    let holding_engine = tx
        .db
        .prepare_cached(sql!("engine/recover", "instance_of_claims"))?
        .query_row([instance.0], |row| {
            let silent = u64::try_from(now - read::<i64>(row, 3)?).unwrap_or(0);
            Ok(HoldingEngine {
                name: read(row, 0)?,
                host: read(row, 1)?,
                pid: read(row, 2)?,
                silent: Duration::from_micros(silent),
                classes: serde_json::from_str(&read::<String>(row, 4)?).unwrap_or_default(),
            })
        })?;
    Ok(holding_engine)
}
