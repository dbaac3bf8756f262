//! The end of an attempt: written here, whoever decided it.

use std::time::Duration;

use rusqlite::params;
use task_engine_model::{AttemptId, Next, TaskError};

use crate::desk::Turn;
use crate::fault::Fault;

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
    pub(crate) next: Next,
}

impl EndedAttempt<'_> {
    /// Ends the attempt, and puts the task back to wait if it goes on. False,
    /// and nothing is changed, if the attempt has ended before.
    pub(crate) fn write(&self, turn: &Turn<'_>) -> Result<bool, Fault> {
        let (ends_task, goes_on) = match self.next {
            Next::End(status) => (Some(status.as_str()), None),
            Next::Wait { after, retry_number } => {
                (None, Some((turn.moment.after(after), retry_number)))
            }
        };
        let written = turn.db.prepare_cached(sql!("end_attempt"))?.execute(params![
            self.id.task_id.0,
            self.id.attempt,
            self.retry_number,
            self.claim_id,
            self.instance_id,
            self.worker,
            self.started_at,
            self.stopped_at,
            self.result,
            self.error_text()?,
            ends_task,
            goes_on.map(|(due_at, _)| due_at),
        ])?;
        if written == 0 {
            return Ok(false);
        }
        if let Some((due_at, retry_number)) = goes_on {
            wait(turn, self.id, due_at, retry_number)?;
        }
        Ok(true)
    }

    pub(crate) fn error_text(&self) -> Result<Option<String>, Fault> {
        Ok(self.error.map(serde_json::to_string).transpose()?)
    }
}

/// Puts the task of an ended attempt back to wait, under the next number.
pub(crate) fn wait(
    turn: &Turn<'_>,
    ended: AttemptId,
    due_at: i64,
    retry_number: u32,
) -> Result<(), Fault> {
    turn.db.prepare_cached(sql!("wait_again"))?.execute(params![
        ended.task_id.0,
        due_at,
        ended.attempt + 1,
        retry_number
    ])?;
    turn.brings_work.set(true);
    Ok(())
}

/// When an attempt began that ended at a time and lasted so long.
pub(crate) fn began(stopped_at: i64, lasted: Duration) -> i64 {
    stopped_at.saturating_sub(crate::moment::micros(lasted))
}
