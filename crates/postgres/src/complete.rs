//! Completion in a transaction of the application, and how the engine settles it.

use std::collections::HashSet;

use task_engine_core::attempt::{AttemptId, AttemptRecord};
use task_engine_core::completion::{Completion, SettleOutcome};
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::error::{SqlError, must_repeat, store_error};
use crate::executor::{Executor as _, PgTransaction, PooledConnection};
use crate::json::JsonIn;
#[cfg(feature = "sqlx")]
use crate::locks::{LOCK_TIMEOUT, unnamed_blocker};
use crate::record::{BATCH_LOCK_TIMEOUT, EndOutcome, attempt_id};
use crate::schema::Schema;
use crate::store::{StoreInner, micros};

const SQL: &str = include_str!("../sql/engine/complete.sql");
const COMPLETE: &str = statement(SQL, "complete");
#[cfg(feature = "sqlx")]
const COMPLETE_FROM_TEXT: &str = statement(SQL, "complete_from_text");
const COMPLETED: &str = statement(SQL, "completed");

const LOCK_CLAIMS: &str = statement(SQL, "lock_claims");

/// The server's name for "this attempt is no longer yours".
pub(crate) const ATTEMPT_OVER: &str = "TE001";

impl Schema {
    /// Completes a task in a transaction of tokio-postgres: the task ends if the transaction
    /// commits.
    ///
    /// Call it last: until the commit, no other transaction can end the attempt.
    ///
    /// After an error the transaction is aborted, and can only be rolled back.
    /// [`StoreError::AttemptOver`]: the attempt has been ended otherwise.
    pub async fn complete_in(
        &self,
        transaction: &impl GenericClient,
        completion: &Completion,
    ) -> Result<(), StoreError> {
        let lasted = micros(completion.began.elapsed());
        // Not prepared: that would be another way to the server and back.
        let completed = transaction
            .query_typed(
                &self.sql(COMPLETE),
                &[
                    (&completion.id.task_id.0, Type::INT8),
                    (&completion.id.attempt, Type::INT4),
                    (&completion.claim_id.0, Type::INT8),
                    (&JsonIn(completion.result.as_str()), Type::JSONB),
                    (&completion.worker, Type::INT4),
                    (&lasted, Type::INT8),
                ],
            )
            .await;
        match completed {
            Ok(_) => Ok(()),
            Err(e) if e.code().is_some_and(|code| code.code() == ATTEMPT_OVER) => {
                Err(StoreError::AttemptOver(completion.id))
            }
            Err(e) => Err(store_error(&e)),
        }
    }

    /// Completes a task like [`Schema::complete_in`], with sqlx.
    #[cfg(feature = "sqlx")]
    pub async fn complete_in_sqlx(
        &self,
        connection: &mut sqlx::PgConnection,
        completion: &Completion,
    ) -> Result<(), StoreError> {
        // JSON is sent as text, so no feature of sqlx is needed.
        let statement = self.sql(COMPLETE_FROM_TEXT).into_owned();
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(completion.id.task_id.0)
            .bind(completion.id.attempt)
            .bind(completion.claim_id.0)
            .bind(completion.result.as_str().to_owned())
            .bind(completion.worker)
            .bind(micros(completion.began.elapsed()))
            .execute(connection)
            .await
            .map_err(|error| sqlx_error(&error, completion.id, "completed"))?;
        Ok(())
    }
}

#[cfg(feature = "sqlx")]
pub(crate) fn sqlx_error(error: &sqlx::Error, id: AttemptId, what: &str) -> StoreError {
    let message = format!("{id} was not {what}: {error}");
    let code = error.as_database_error().and_then(|error| error.code());
    match code.as_deref() {
        Some(ATTEMPT_OVER) => StoreError::AttemptOver(id),
        Some(LOCK_TIMEOUT) => StoreError::Locked(format!("{message}{}", unnamed_blocker())),
        Some(code) if crate::error::is_temporary(code) => StoreError::Unavailable(message),
        Some(code) if crate::error::is_invalid_data(code) => StoreError::InvalidData(message),
        Some(_) => StoreError::Refused(message),
        None => StoreError::Unavailable(message),
    }
}

impl StoreInner {
    pub(crate) async fn settle(
        &self,
        endings: &[AttemptRecord],
    ) -> Result<Vec<SettleOutcome>, StoreError> {
        let mut client = self.connections.work().await?;
        let completed = self.completed(&client, endings).await?;
        let rest: Vec<AttemptRecord> =
            endings.iter().filter(|e| !completed.contains(&e.id)).cloned().collect();
        if rest.is_empty() {
            return Ok(vec![SettleOutcome::Completed; endings.len()]);
        }
        let outcome = loop {
            let mut transaction = client.transaction().await?;
            let outcome = match self.end_held(&mut transaction, &rest).await {
                Ok(outcome) => transaction.commit().await.map(|()| outcome),
                Err(e) => Err(e),
            };
            match outcome {
                Err(e) if must_repeat(&e) => {}
                answer => break answer?,
            }
        };
        // Some may have committed since the first check.
        let others: Vec<AttemptRecord> = rest
            .into_iter()
            .filter(|e| !outcome.ended.contains(&e.id) && !outcome.open.contains(&e.id))
            .collect();
        let later = self.completed(&client, &others).await?;
        let ended: Vec<&AttemptRecord> = others.iter().filter(|e| !later.contains(&e.id)).collect();
        // Except those that were sent before and whose reply was lost.
        let late = match ended.is_empty() {
            true => Vec::new(),
            false => self.record_late(&client, &ended).await?,
        };
        let settled = |ending: &AttemptRecord| match ending.id {
            id if completed.contains(&id) || later.contains(&id) => SettleOutcome::Completed,
            id if outcome.open.contains(&id) => SettleOutcome::Open,
            id if late.contains(&id) => SettleOutcome::Late,
            _ => SettleOutcome::Recorded,
        };
        Ok(endings.iter().map(settled).collect())
    }

    async fn completed(
        &self,
        client: &PooledConnection,
        endings: &[AttemptRecord],
    ) -> Result<HashSet<AttemptId>, StoreError> {
        if endings.is_empty() {
            return Ok(HashSet::new());
        }
        let task_ids: Vec<i64> = endings.iter().map(|e| e.id.task_id.0).collect();
        let attempts: Vec<i32> = endings.iter().map(|e| e.id.attempt).collect();
        let claim_ids: Vec<i64> = endings.iter().map(|e| e.claim_id.0).collect();
        let rows = client
            .query_cached(&self.schema.sql(COMPLETED), &[&task_ids, &attempts, &claim_ids])
            .await?;
        Ok(rows.iter().map(attempt_id).collect())
    }

    /// Ends those of these attempts that are still held.
    async fn end_held(
        &self,
        transaction: &mut PgTransaction<'_>,
        endings: &[AttemptRecord],
    ) -> Result<EndOutcome, SqlError> {
        transaction.batch_execute(BATCH_LOCK_TIMEOUT).await?;
        let claims: Vec<i64> = endings.iter().map(|ending| ending.claim_id.0).collect();
        let rows = transaction.query(&self.schema.sql(LOCK_CLAIMS), &[&claims]).await?;
        let held: HashSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        let endings: Vec<AttemptRecord> =
            endings.iter().filter(|ending| held.contains(&ending.claim_id.0)).cloned().collect();
        self.end_without_waiting(transaction, &endings).await
    }
}
