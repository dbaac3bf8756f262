//! The end of an attempt.

use std::ops::RangeInclusive;
use std::time::Duration;

use rusqlite::{CachedStatement, params};
use task_engine_core::attempt::{AttemptId, NextState, TaskError};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;

/// An ending with its times on the database's clock.
#[derive(Debug)]
pub(crate) struct EndedAttempt<'a> {
    pub(crate) id: AttemptId,
    pub(crate) retry_number: u32,
    /// Set if the holder of the claim itself writes this.
    pub(crate) claim_id: Option<i64>,
    pub(crate) instance_id: Option<i64>,
    pub(crate) worker: Option<i32>,
    pub(crate) started_at: Option<i64>,
    pub(crate) stopped_at: i64,
    pub(crate) result: Option<&'a str>,
    pub(crate) error: Option<&'a TaskError>,
    pub(crate) next: NextState,
}

/// Ends attempts. Its statements are prepared once for many of them.
pub(crate) struct Fence<'t> {
    tx: &'t JobTransaction<'t>,
    exists: CachedStatement<'t>,
    end: CachedStatement<'t>,
    /// Tasks that were found before, in order.
    there: Vec<RangeInclusive<i64>>,
}

impl<'t> Fence<'t> {
    pub(crate) fn new(tx: &'t JobTransaction<'t>) -> Result<Self, JobError> {
        Ok(Self {
            tx,
            exists: tx.db.prepare_cached(sql!("engine/record", "task_exists"))?,
            end: tx.db.prepare_cached(sql!("engine/record", "end_attempt"))?,
            there: Vec::new(),
        })
    }

    /// Finds the tasks of many attempts before they end. Consecutive ids, which batches
    /// mostly have, cost one search. Ids with gaps are searched one by one.
    pub(crate) fn find(
        &mut self,
        attempts: impl Iterator<Item = AttemptId>,
    ) -> Result<(), JobError> {
        let mut ids: Vec<i64> = attempts.map(|id| id.task_id.0).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut count = self.tx.db.prepare_cached(sql!("engine/record", "tasks_exist"))?;
        for row in ids.chunk_by(|id, next| id.checked_add(1) == Some(*next)) {
            let [first, .., last] = *row else { continue };
            let found: i64 = count.query_row([first, last], |row| row.get(0))?;
            if found == last - first + 1 {
                self.there.push(first..=last);
            }
        }
        Ok(())
    }

    fn exists(&mut self, task_id: i64) -> Result<bool, JobError> {
        let place = self.there.partition_point(|row| *row.end() < task_id);
        let found = self.there.get(place).is_some_and(|row| row.contains(&task_id));
        Ok(found || self.exists.exists([task_id])?)
    }

    /// Ends the attempt, and requeues the task if it continues. False, and nothing is
    /// changed, if the attempt has already ended, or retention has removed its task.
    pub(crate) fn end(&mut self, attempt: &EndedAttempt<'_>) -> Result<bool, JobError> {
        if !self.exists(attempt.id.task_id.0)? {
            return Ok(false);
        }
        let (ends_task, goes_on) = match attempt.next {
            NextState::End(status) => (Some(status.as_str()), None),
            NextState::Wait { after, retry_number } => {
                (None, Some((self.tx.moment.after(after), retry_number)))
            }
        };
        let written = self.end.execute(params![
            attempt.id.task_id.0,
            attempt.id.attempt,
            attempt.retry_number,
            attempt.claim_id,
            attempt.instance_id,
            attempt.worker,
            attempt.started_at,
            attempt.stopped_at,
            attempt.result,
            attempt.error_text()?,
            ends_task,
            goes_on.map(|(due_at, _)| due_at),
        ])?;
        if written == 0 {
            return Ok(false);
        }
        if let Some((due_at, retry_number)) = goes_on {
            wait(self.tx, attempt.id, due_at, retry_number)?;
        }
        Ok(true)
    }
}

impl EndedAttempt<'_> {
    pub(crate) fn error_text(&self) -> Result<Option<String>, JobError> {
        Ok(self.error.map(serde_json::to_string).transpose()?)
    }
}

/// Puts the task of an ended attempt back to wait, under the next number.
pub(crate) fn wait(
    tx: &JobTransaction<'_>,
    ended: AttemptId,
    due_at: i64,
    retry_number: u32,
) -> Result<(), JobError> {
    tx.db.prepare_cached(sql!("engine/record", "requeue"))?.execute(params![
        ended.task_id.0,
        due_at,
        ended.attempt.saturating_add(1),
        retry_number
    ])?;
    tx.brings_work.set(true);
    Ok(())
}

/// When an attempt began that ended at a time and lasted so long.
pub(crate) fn began(stopped_at: i64, lasted: Duration) -> i64 {
    stopped_at.saturating_sub(crate::moment::micros(lasted))
}
