//! The record: an attempt ends once.

use std::borrow::Cow;
use std::collections::HashSet;

use task_engine_core::attempt::{AttemptId, AttemptRecord, NextState};
use task_engine_core::claim::ClaimId;
use task_engine_core::task::TaskId;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::error::{SqlError, must_repeat};
use crate::executor::{Executor, PgTransaction, PooledConnection};
use crate::json::JsonIn;
use crate::store::{StoreInner, micros};

const SQL: &str = include_str!("../sql/engine/record.sql");
const RECORD: &str = statement(SQL, "record");
const RECORD_SKIPPING_ENDED: &str = statement(SQL, "record_skipping_ended");
const RECORD_CANCEL_RESPONSES: &str = statement(SQL, "record_cancel_responses");
const RECORD_LATE: &str = statement(SQL, "record_late");

/// How long is waited for a transaction of an application that may be about to
/// commit, all in all and for each of several.
pub(crate) const BATCH_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '100ms'";
const SINGLE_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '20ms'";
const USUAL_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '10s'";

impl StoreInner {
    pub(crate) async fn record(
        &self,
        endings: &[AttemptRecord],
        finished: &[ClaimId],
    ) -> Result<Vec<AttemptId>, StoreError> {
        if endings.is_empty() && finished.is_empty() {
            return Ok(Vec::new());
        }
        let mut client = self.connections.work().await?;
        let columns = RecordColumns::of(endings);
        let cancelled = endings.iter().any(|ending| ending.cancel_response.is_some());
        let mut mode = ConflictMode::FailStatement;
        let recorded = loop {
            let statement = self.record_statement(mode);
            let recorded = if cancelled {
                self.record_with_cancel_responses(&mut client, &columns, &statement, finished).await
            } else {
                columns.run(&client, &statement, finished).await
            };
            match recorded {
                Err(e) if must_repeat(&e) => {}
                Err(e)
                    if mode == ConflictMode::FailStatement
                        && e.code() == Some(&SqlState::UNIQUE_VIOLATION) =>
                {
                    mode = ConflictMode::SkipEnded;
                }
                answer => break answer?,
            }
        };
        if recorded.len() == endings.len() {
            return Ok(Vec::new());
        }
        let recorded: HashSet<AttemptId> = recorded.iter().map(attempt_id).collect();
        let late: Vec<&AttemptRecord> =
            endings.iter().filter(|e| !recorded.contains(&e.id)).collect();
        self.record_late(&client, &late).await
    }

    /// The same for a batch in which an attempt got a cancel request. That is rare, so
    /// the usual statement does not handle it.
    async fn record_with_cancel_responses(
        &self,
        client: &mut PooledConnection,
        columns: &RecordColumns<'_>,
        statement: &str,
        finished: &[ClaimId],
    ) -> Result<Vec<Row>, SqlError> {
        let transaction = client.transaction().await?;
        let recorded = columns.run(&transaction, statement, finished).await?;
        self.record_cancel_responses(&transaction, columns.endings, &recorded).await?;
        transaction.commit().await?;
        Ok(recorded)
    }

    /// Writes the cancel responses of those of these attempts that were recorded.
    async fn record_cancel_responses(
        &self,
        client: &impl Executor,
        endings: &[AttemptRecord],
        recorded: &[Row],
    ) -> Result<(), SqlError> {
        let recorded: HashSet<AttemptId> = recorded.iter().map(attempt_id).collect();
        let responses: Vec<_> = endings
            .iter()
            .filter(|ending| recorded.contains(&ending.id))
            .filter_map(|ending| ending.cancel_response.map(|response| (ending.id, response)))
            .collect();
        let task_ids: Vec<i64> = responses.iter().map(|(id, _)| id.task_id.0).collect();
        let attempts: Vec<i32> = responses.iter().map(|(id, _)| id.attempt).collect();
        let ago: Vec<i64> =
            responses.iter().map(|(_, response)| micros(response.delivered.elapsed())).collect();
        let answers: Vec<&str> =
            responses.iter().map(|(_, response)| response.reaction.as_str()).collect();
        let sql = self.schema.sql(RECORD_CANCEL_RESPONSES);
        client.execute(&sql, &[&task_ids, &attempts, &ago, &answers]).await.map(|_| ())
    }

    fn record_statement(&self, mode: ConflictMode) -> Cow<'static, str> {
        match mode {
            ConflictMode::FailStatement => self.schema.sql(RECORD),
            ConflictMode::SkipEnded => self.schema.sql(RECORD_SKIPPING_ENDED),
        }
    }

    pub(crate) async fn record_late(
        &self,
        client: &impl Executor,
        late: &[&AttemptRecord],
    ) -> Result<Vec<AttemptId>, StoreError> {
        let task_ids: Vec<i64> = late.iter().map(|e| e.id.task_id.0).collect();
        let attempts: Vec<i32> = late.iter().map(|e| e.id.attempt).collect();
        let claim_ids: Vec<i64> = late.iter().map(|e| e.claim_id.0).collect();
        let errors: Vec<Option<String>> = late.iter().map(|e| error_text(e)).collect();
        let results: Vec<_> =
            late.iter().map(|e| e.result.as_ref().map(|j| JsonIn(j.as_str()))).collect();
        let errors: Vec<_> = errors.iter().map(|e| e.as_deref().map(JsonIn)).collect();
        let rows = client
            .query(
                &self.schema.sql(RECORD_LATE),
                &[&task_ids, &attempts, &claim_ids, &results, &errors],
            )
            .await?;
        Ok(rows.iter().map(attempt_id).collect())
    }
}

impl StoreInner {
    /// Ends attempts, of which some may be completed by an open transaction: those are
    /// skipped. First all in one statement; if that has to wait, one by one, to find the
    /// blocked ones.
    pub(crate) async fn end_without_waiting(
        &self,
        transaction: &mut PgTransaction<'_>,
        endings: &[AttemptRecord],
    ) -> Result<EndOutcome, SqlError> {
        let mut outcome = EndOutcome::default();
        transaction.batch_execute(BATCH_LOCK_TIMEOUT).await?;
        if !self.end_at_once(transaction, endings, &mut outcome).await? {
            transaction.batch_execute(SINGLE_LOCK_TIMEOUT).await?;
            // In the order in which every writer inserts them.
            let mut in_order: Vec<&AttemptRecord> = endings.iter().collect();
            in_order.sort_unstable_by_key(|ending| ending.id);
            for ending in in_order {
                let one = std::slice::from_ref(ending);
                if !self.end_at_once(transaction, one, &mut outcome).await? {
                    outcome.open.insert(ending.id);
                }
            }
        }
        transaction.batch_execute(USUAL_LOCK_TIMEOUT).await?;
        Ok(outcome)
    }

    /// False, and nothing is changed, if it would have to wait.
    async fn end_at_once(
        &self,
        transaction: &mut PgTransaction<'_>,
        endings: &[AttemptRecord],
        outcome: &mut EndOutcome,
    ) -> Result<bool, SqlError> {
        let part = transaction.savepoint("task_engine_end").await?;
        let statement = self.record_statement(ConflictMode::SkipEnded);
        match RecordColumns::of(endings).run(&part, &statement, &[]).await {
            Ok(recorded) => {
                if endings.iter().any(|ending| ending.cancel_response.is_some()) {
                    self.record_cancel_responses(&part, endings, &recorded).await?;
                }
                part.commit().await?;
                outcome.ended.extend(recorded.iter().map(attempt_id));
                Ok(true)
            }
            Err(e) if e.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                part.rollback().await?;
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }
}

/// The outcome of ending attempts. Those in neither set had ended before.
#[derive(Debug, Default)]
pub(crate) struct EndOutcome {
    pub(crate) ended: HashSet<AttemptId>,
    /// A transaction that ends them is still open.
    pub(crate) open: HashSet<AttemptId>,
}

/// How to treat an attempt that has already ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConflictMode {
    /// The whole statement fails: the usual case is that none has.
    FailStatement,
    /// It is skipped.
    SkipEnded,
}

pub(crate) fn attempt_id(row: &Row) -> AttemptId {
    AttemptId { task_id: TaskId(row.get(0)), attempt: row.get(1) }
}

pub(crate) fn error_text(ending: &AttemptRecord) -> Option<String> {
    let error = ending.error.as_ref()?;
    Some(serde_json::to_string(error).unwrap_or_else(|e| format!("{{\"message\":\"{e}\"}}")))
}

/// Endings as arrays, side by side.
struct RecordColumns<'a> {
    endings: &'a [AttemptRecord],
    task_ids: Vec<i64>,
    attempts: Vec<i32>,
    retry_numbers: Vec<i32>,
    claim_ids: Vec<i64>,
    instance_ids: Vec<i64>,
    workers: Vec<Option<i32>>,
    waits: Vec<Option<i64>>,
    next_retry_numbers: Vec<Option<i32>>,
    ends: Vec<Option<&'static str>>,
    lasted: Vec<Option<i64>>,
    errors: Vec<Option<String>>,
}

impl<'a> RecordColumns<'a> {
    fn of(endings: &'a [AttemptRecord]) -> Self {
        let column = |f: fn(&AttemptRecord) -> i64| endings.iter().map(f).collect();
        Self {
            endings,
            task_ids: column(|e| e.id.task_id.0),
            attempts: endings.iter().map(|e| e.id.attempt).collect(),
            retry_numbers: endings.iter().map(|e| small(e.retry_number)).collect(),
            claim_ids: column(|e| e.claim_id.0),
            instance_ids: column(|e| e.instance_id.0),
            workers: endings.iter().map(|e| e.ran.and_then(|ran| ran.worker)).collect(),
            waits: endings.iter().map(|e| wait(e).map(|w| micros(w.0))).collect(),
            next_retry_numbers: endings.iter().map(|e| wait(e).map(|w| small(w.1))).collect(),
            ends: endings
                .iter()
                .map(|e| match e.next {
                    NextState::End(status) => Some(status.as_str()),
                    NextState::Wait { .. } => None,
                })
                .collect(),
            lasted: endings.iter().map(|e| e.ran.map(|ran| micros(ran.lasted))).collect(),
            errors: endings.iter().map(error_text).collect(),
        }
    }

    /// May be run again: how long ago an attempt ended is taken at each run.
    async fn run(
        &self,
        client: &impl Executor,
        statement: &str,
        finished: &[ClaimId],
    ) -> Result<Vec<Row>, SqlError> {
        let ended_ago: Vec<i64> = self
            .endings
            .iter()
            .map(|e| e.ran.map_or(0, |ran| micros(ran.ended.elapsed())))
            .collect();
        let results: Vec<_> =
            self.endings.iter().map(|e| e.result.as_ref().map(|j| JsonIn(j.as_str()))).collect();
        let errors: Vec<_> = self.errors.iter().map(|e| e.as_deref().map(JsonIn)).collect();
        let finished: Vec<i64> = finished.iter().map(|claim| claim.0).collect();
        let parameters: [&(dyn ToSql + Sync); 14] = [
            &self.task_ids,
            &self.attempts,
            &self.retry_numbers,
            &self.claim_ids,
            &self.instance_ids,
            &self.workers,
            &ended_ago,
            &self.lasted,
            &self.waits,
            &self.next_retry_numbers,
            &self.ends,
            &results,
            &errors,
            &finished,
        ];
        client.query_cached(statement, &parameters).await
    }
}

pub(crate) fn wait(ending: &AttemptRecord) -> Option<(std::time::Duration, u32)> {
    match ending.next {
        NextState::Wait { after, retry_number } => Some((after, retry_number)),
        NextState::End(_) => None,
    }
}

pub(crate) fn small(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
