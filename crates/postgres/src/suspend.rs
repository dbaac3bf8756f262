//! Durable tasks that wait: suspension, signals, timeouts, and parents of child tasks.

use std::collections::{HashMap, HashSet};

use task_engine_core::attempt::{AttemptId, TaskError};
use task_engine_core::claim::ClaimId;
use task_engine_core::json::Json;
use task_engine_core::step::{
    ChildOutcome, SignalReport, SignalRow, SignalStatus, SignalTarget, SuspendOutcome, Suspension,
    WaitOutcome, check_signal_name,
};
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::error::{SqlError, must_repeat};
use crate::executor::{Executor as _, PgTransaction, PooledConnection};
use crate::json::JsonIn;
use crate::record::{attempt_id, error_text, small, wait};
use crate::schema::Schema;
use crate::store::{StoreInner, micros};
use crate::value::read;

const SQL: &str = include_str!("../sql/engine/durable.sql");
const LOCK_TASKS: &str = statement(SQL, "lock_tasks_to_suspend");
const EXISTING_TASKS: &str = statement(SQL, "existing_tasks");
const SUSPEND: &str = statement(SQL, "suspend");
const TIME_OUT: &str = statement(SQL, "time_out");
const SIGNAL_OF: &str = statement(SQL, "signal_of");
const WATCHED_BY: &str = statement(SQL, "watched_by");
const RESOLVE: &str = statement(include_str!("../sql/engine/flows.sql"), "resolve");
const LOCK_SUSPENDED: &str = statement(SQL, "lock_suspended");
const RESUME: &str = statement(SQL, "resume");
const SUSPENDED_PAGE: &str = statement(SQL, "suspended_page");
const LATE_TASKS: &str = statement(SQL, "late_tasks");
const CHILD_OUTCOMES: &str = statement(SQL, "child_outcomes");
const SIGNAL: &str = statement(SQL, "signal");
const SIGNAL_UNIQUE: &str = statement(SQL, "signal_unique");

impl StoreInner {
    pub(crate) async fn suspend(
        &self,
        suspensions: &[Suspension],
    ) -> Result<Vec<SuspendOutcome>, StoreError> {
        let mut client = self.connections.work().await?;
        let suspended = loop {
            let transaction = client.transaction().await?;
            let suspended = match self.suspend_in(&transaction, suspensions).await {
                Ok(suspended) => transaction.commit().await.map(|()| suspended),
                Err(e) => Err(e),
            };
            match suspended {
                Err(e) if must_repeat(&e) => {}
                answer => break answer?,
            }
        };
        self.suspend_outcomes(&client, suspensions, &suspended).await
    }

    /// Locks the tasks, then ends the attempts of those that could be locked.
    async fn suspend_in(
        &self,
        transaction: &PgTransaction<'_>,
        suspensions: &[Suspension],
    ) -> Result<SuspendedAttempts, SqlError> {
        let ids: Vec<i64> = suspensions.iter().map(|one| one.record.id.task_id.0).collect();
        let rows = transaction.query_cached(&self.schema.sql(LOCK_TASKS), &[&ids]).await?;
        let locked: HashSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        let free: Vec<&Suspension> =
            suspensions.iter().filter(|one| locked.contains(&one.record.id.task_id.0)).collect();
        let mut suspended = HashMap::new();
        if !free.is_empty() {
            let rows = run(transaction, &self.schema.sql(SUSPEND), &free).await?;
            let watching = |row: &Row| read::<Option<i64>>(row, "watching").map(TaskId);
            suspended = rows.iter().map(|row| (attempt_id(row), watching(row))).collect();
        }
        Ok(SuspendedAttempts { locked, suspended })
    }

    async fn suspend_outcomes(
        &self,
        client: &PooledConnection,
        suspensions: &[Suspension],
        attempts: &SuspendedAttempts,
    ) -> Result<Vec<SuspendOutcome>, StoreError> {
        let open: Vec<i64> = suspensions
            .iter()
            .map(|one| one.record.id.task_id.0)
            .filter(|id| !attempts.locked.contains(id))
            .collect();
        let mut existing: HashSet<i64> = HashSet::new();
        if !open.is_empty() {
            let rows = client.query(&self.schema.sql(EXISTING_TASKS), &[&open]).await;
            existing = rows?.iter().map(|row| row.get(0)).collect();
        }
        let late: Vec<_> = suspensions
            .iter()
            .map(|one| &one.record)
            .filter(|record| attempts.locked.contains(&record.id.task_id.0))
            .filter(|record| !attempts.suspended.contains_key(&record.id))
            .collect();
        // Some were sent before, and the reply was lost: they are not late.
        let mut watching: HashMap<i64, TaskId> = HashMap::new();
        let late: HashSet<AttemptId> = match late.is_empty() {
            true => HashSet::new(),
            false => {
                let ids: Vec<i64> = late.iter().map(|record| record.id.task_id.0).collect();
                let rows = client.query(&self.schema.sql(WATCHED_BY), &[&ids]).await?;
                watching.extend(rows.iter().map(|row| (row.get(0), TaskId(row.get(1)))));
                self.record_late(client, &late).await?.into_iter().collect()
            }
        };
        let outcome = |one: &Suspension| match one.record.id {
            id if existing.contains(&id.task_id.0) => SuspendOutcome::Open,
            id if !attempts.locked.contains(&id.task_id.0) || late.contains(&id) => {
                SuspendOutcome::Late
            }
            id => match attempts.suspended.get(&id) {
                Some(watching) => SuspendOutcome::Suspended(*watching),
                None => SuspendOutcome::Suspended(watching.get(&id.task_id.0).copied()),
            },
        };
        Ok(suspensions.iter().map(outcome).collect())
    }

    pub(crate) async fn time_out(
        &self,
        id: AttemptId,
        claim_id: ClaimId,
        name: &str,
    ) -> Result<WaitOutcome, StoreError> {
        let mut client = self.connections.work().await?;
        let task = id.task_id.0;
        let transaction = client.transaction().await?;
        let locked = transaction.query(&self.schema.sql(LOCK_TASKS), &[&vec![task]]).await;
        if locked?.is_empty() {
            return Ok(WaitOutcome::Open);
        }
        transaction
            .execute(&self.schema.sql(TIME_OUT), &[&task, &id.attempt, &claim_id.0, &name])
            .await?;
        let row = transaction.query_opt(&self.schema.sql(SIGNAL_OF), &[&task, &name]).await?;
        transaction.commit().await?;
        Ok(row.map_or(WaitOutcome::AttemptOver, |row| {
            WaitOutcome::Decided(SignalRow {
                name: read(&row, "name"),
                payload: read(&row, "payload"),
                sent_at: read(&row, "sent_at"),
                timed_out: read(&row, "timed_out"),
            })
        }))
    }

    pub(crate) async fn resume_parents(&self, ended: &[TaskId]) -> Result<u64, StoreError> {
        self.resolve(ended.iter().map(|id| id.0).collect(), Vec::new()).await
    }

    /// Decides about what depends on these ended tasks, and about these dependents; and resumes
    /// the parents of the ended ones. Watched tasks may have ended before this was committed, so
    /// it asks again about them: see the statements.
    async fn resolve(
        &self,
        mut ended: Vec<i64>,
        mut dependents: Vec<i64>,
    ) -> Result<u64, StoreError> {
        let mut client = self.connections.work().await?;
        let sql = self.schema.sql(RESOLVE);
        let mut resumed = 0;
        while !ended.is_empty() || !dependents.is_empty() {
            let row = match client.query_cached(&sql, &[&ended, &dependents]).await {
                Err(e) if must_repeat(&e) => continue,
                rows => rows?,
            };
            let Some(row) = row.first() else { break };
            resumed += u64::try_from(read::<i64>(row, "resumed")).unwrap_or(0);
            ended = read(row, "watching");
            dependents.clear();
            let parents: Vec<i64> = read(row, "parents");
            if !parents.is_empty() {
                let watched = self.resume(&mut client, &parents).await?;
                resumed += watched.resumed;
                ended.extend(watched.watching);
            }
        }
        Ok(resumed)
    }

    /// Locks suspended tasks, and resumes those that can continue.
    async fn resume(
        &self,
        client: &mut PooledConnection,
        tasks: &[i64],
    ) -> Result<ResumedTasks, StoreError> {
        loop {
            let transaction = client.transaction().await?;
            let row = match self.resume_in(&transaction, tasks).await {
                Ok(row) => transaction.commit().await.map(|()| row),
                Err(e) => Err(e),
            };
            match row {
                Err(e) if must_repeat(&e) => {}
                row => {
                    let row = row?;
                    let resumed = u64::try_from(read::<i64>(&row, "resumed")).unwrap_or(0);
                    return Ok(ResumedTasks { resumed, watching: read(&row, "watching") });
                }
            }
        }
    }

    async fn resume_in(
        &self,
        transaction: &PgTransaction<'_>,
        tasks: &[i64],
    ) -> Result<Row, SqlError> {
        let rows = transaction.query(&self.schema.sql(LOCK_SUSPENDED), &[&tasks]).await?;
        let locked: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        transaction.query_one(&self.schema.sql(RESUME), &[&locked]).await
    }

    /// The same after an operation has ended tasks. If it fails, a heartbeat finds the parents.
    pub(crate) async fn resume_parents_of(&self, ended: Vec<TaskId>) {
        if !ended.is_empty()
            && let Err(error) = self.resume_parents(&ended).await
        {
            tracing::debug!("parents of ended tasks are resumed with a heartbeat: {error}");
        }
    }

    /// Decides about blocked tasks after a change of what they depend on. If it fails, a
    /// heartbeat does.
    pub(crate) async fn resolve_dependents_of(&self, dependents: Vec<i64>) {
        if let Err(error) = self.resolve(Vec::new(), dependents).await {
            tracing::debug!(
                "tasks that depend on others are decided about with a heartbeat: {error}"
            );
        }
    }

    pub(crate) async fn resume_missed(
        &self,
        after: TaskId,
        limit: u32,
    ) -> Result<Option<TaskId>, StoreError> {
        let mut client = self.connections.work().await?;
        let sql = self.schema.sql(SUSPENDED_PAGE);
        let rows = client.query_cached(&sql, &[&after.0, &i64::from(limit)]).await?;
        let missed = |blocked: bool| -> Vec<i64> {
            let rows = rows.iter().filter(|row| read(row, "is_missed"));
            let rows = rows.filter(|row| read::<bool>(row, "is_blocked") == blocked);
            rows.map(|row| row.get("task_id")).collect()
        };
        let late = client.query_cached(&self.schema.sql(LATE_TASKS), &[&i64::from(limit)]).await?;
        let mut dependents = missed(true);
        dependents.extend(late.iter().map(|row| row.get::<_, i64>("task_id")));
        let parents = missed(false);
        let mut watching = Vec::new();
        if !parents.is_empty() {
            watching = self.resume(&mut client, &parents).await?.watching;
        }
        drop(client);
        self.resolve(watching, dependents).await?;
        let is_last = rows.len() < limit as usize;
        Ok(rows.last().filter(|_| !is_last).map(|row| TaskId(row.get("task_id"))))
    }

    pub(crate) async fn child_outcomes(
        &self,
        children: &[(TaskId, Option<i32>)],
    ) -> Result<Vec<Option<ChildOutcome>>, StoreError> {
        let client = self.connections.work().await?;
        let ids: Vec<i64> = children.iter().map(|(id, _)| id.0).collect();
        let attempts: Vec<Option<i32>> = children.iter().map(|(_, attempt)| *attempt).collect();
        let sql = self.schema.sql(CHILD_OUTCOMES);
        let rows = client.query_cached(&sql, &[&ids, &attempts]).await?;
        Ok(rows.iter().map(child_outcome).collect())
    }

    pub(crate) async fn signal(
        &self,
        target: &SignalTarget,
        name: &str,
        payload: &Json,
    ) -> Result<SignalReport, StoreError> {
        let mut client = self.connections.work().await?;
        loop {
            // With the settings of the store, also behind a pooler.
            let transaction = client.transaction().await?;
            let sent = self.schema.send_signal(transaction.client(), target, name, payload).await;
            let sent = match sent {
                Ok(report) => {
                    transaction.commit().await.map(|()| report).map_err(SendError::Database)
                }
                Err(error) => Err(error),
            };
            match sent {
                Err(SendError::Database(e)) if must_repeat(&e) => {}
                sent => return sent.map_err(StoreError::from),
            }
        }
    }
}

/// The attempts of one suspension.
struct SuspendedAttempts {
    /// The tasks that could be locked.
    locked: HashSet<i64>,
    /// The attempts that ended now, each with the child that it watches.
    suspended: HashMap<AttemptId, Option<TaskId>>,
}

/// What became of suspended tasks.
struct ResumedTasks {
    /// How many are due.
    resumed: u64,
    /// The children that others watch now.
    watching: Vec<i64>,
}

async fn run(
    transaction: &PgTransaction<'_>,
    statement: &str,
    suspensions: &[&Suspension],
) -> Result<Vec<Row>, SqlError> {
    let column = |f: fn(&Suspension) -> i64| suspensions.iter().map(|one| f(one)).collect();
    let task_ids: Vec<i64> = column(|one| one.record.id.task_id.0);
    let attempts: Vec<i32> = suspensions.iter().map(|one| one.record.id.attempt).collect();
    let retry_numbers: Vec<i32> =
        suspensions.iter().map(|one| small(one.record.retry_number)).collect();
    let claim_ids: Vec<i64> = column(|one| one.record.claim_id.0);
    let instance_ids: Vec<i64> = column(|one| one.record.instance_id.0);
    let workers: Vec<Option<i32>> =
        suspensions.iter().map(|one| one.record.ran.and_then(|ran| ran.worker)).collect();
    let ended_ago: Vec<i64> =
        column(|one| one.record.ran.map_or(0, |ran| micros(ran.ended.elapsed())));
    let lasted: Vec<Option<i64>> =
        suspensions.iter().map(|one| one.record.ran.map(|ran| micros(ran.lasted))).collect();
    let waits: Vec<i64> = column(|one| wait(&one.record).map_or(0, |wait| micros(wait.0)));
    let next_retry_numbers: Vec<i32> =
        suspensions.iter().map(|one| wait(&one.record).map_or(0, |wait| small(wait.1))).collect();
    let errors: Vec<Option<String>> =
        suspensions.iter().map(|one| error_text(&one.record)).collect();
    let errors: Vec<Option<JsonIn<'_>>> =
        errors.iter().map(|error| error.as_deref().map(JsonIn)).collect();
    let signals: Vec<String> = suspensions
        .iter()
        .map(|one| serde_json::to_string(&one.signals).unwrap_or_else(|_| "[]".to_owned()))
        .collect();
    let signals: Vec<JsonIn<'_>> = signals.iter().map(|names| JsonIn(names)).collect();
    let children_from: Vec<Option<i64>> =
        suspensions.iter().map(|one| one.children_from.map(|id| id.0)).collect();
    let untils: Vec<Option<jiff::Timestamp>> = suspensions.iter().map(|one| one.until).collect();
    let parameters: [&(dyn ToSql + Sync); 14] = [
        &task_ids,
        &attempts,
        &retry_numbers,
        &claim_ids,
        &instance_ids,
        &workers,
        &ended_ago,
        &lasted,
        &waits,
        &errors,
        &signals,
        &children_from,
        &untils,
        &next_retry_numbers,
    ];
    transaction.query_cached(statement, &parameters).await
}

/// `None` if the task has not ended.
fn child_outcome(row: &Row) -> Option<ChildOutcome> {
    let id = TaskId(row.get("id"));
    let status = read::<Option<String>>(row, "status").and_then(|status| status.parse().ok());
    match status {
        Some(status) => Some(ChildOutcome {
            id,
            attempt: read(row, "attempt"),
            status: Some(status),
            result: read::<Option<Json>>(row, "result").filter(|_| status == TaskStatus::Stopped),
            error: read::<Option<Json>>(row, "error").and_then(|error| error.decode().ok()),
        }),
        None if read(row, "exists") => None,
        None => Some(ChildOutcome {
            id,
            attempt: 0,
            status: None,
            result: None,
            error: Some(TaskError::new("TaskRemoved", format!("task {id} was removed"))),
        }),
    }
}

/// Why a signal was not sent.
#[derive(Debug)]
enum SendError {
    Name(String),
    Database(SqlError),
}

impl From<SendError> for StoreError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Name(message) => Self::Refused(message),
            SendError::Database(error) => error.into(),
        }
    }
}

impl Schema {
    /// Sends a signal in a transaction of tokio-postgres: the task receives it when the transaction
    /// commits.
    ///
    /// The task is locked until then.
    pub async fn signal_in(
        &self,
        transaction: &impl GenericClient,
        target: &SignalTarget,
        name: &str,
        payload: &Json,
    ) -> Result<SignalReport, StoreError> {
        Ok(self.send_signal(transaction, target, name, payload).await?)
    }

    async fn send_signal(
        &self,
        client: &impl GenericClient,
        target: &SignalTarget,
        name: &str,
        payload: &Json,
    ) -> Result<SignalReport, SendError> {
        check_signal_name(name).map_err(|error| SendError::Name(error.to_string()))?;
        let json = JsonIn(payload.as_str());
        let (sql, parameters): (_, Vec<(&(dyn ToSql + Sync), Type)>) = match target {
            SignalTarget::Id(id) => {
                (SIGNAL, vec![(&id.0, Type::INT8), (&name, Type::TEXT), (&json, Type::JSONB)])
            }
            SignalTarget::UniqueKey { class, key } => {
                let class_and_key: [(&(dyn ToSql + Sync), Type); 2] =
                    [(class, Type::TEXT), (key, Type::TEXT)];
                let signal: [(&(dyn ToSql + Sync), Type); 2] =
                    [(&name, Type::TEXT), (&json, Type::JSONB)];
                (SIGNAL_UNIQUE, class_and_key.into_iter().chain(signal).collect())
            }
        };
        let rows = client.query_typed(&self.sql(sql), &parameters).await;
        let rows = rows.map_err(|e| SendError::Database(e.into()))?;
        Ok(rows.first().map_or(NOT_FOUND, |row| report(row.get("task_id"), row.get("status"))))
    }

    /// Sends a signal like [`Schema::signal_in`], with sqlx.
    #[cfg(feature = "sqlx")]
    pub async fn signal_in_sqlx(
        &self,
        connection: &mut sqlx::PgConnection,
        target: &SignalTarget,
        name: &str,
        payload: &Json,
    ) -> Result<SignalReport, StoreError> {
        use sqlx::Row as _;
        check_signal_name(name).map_err(|error| StoreError::Refused(error.to_string()))?;
        let failed = |error: sqlx::Error| {
            StoreError::Unavailable(format!("signal {name:?} was not sent to {target}: {error}"))
        };
        let sql = |name: &'static str| sqlx::AssertSqlSafe(self.sql(name).into_owned());
        let query = match target {
            SignalTarget::Id(id) => {
                sqlx::query(sql(const { statement(SQL, "signal_from_text") })).bind(id.0)
            }
            SignalTarget::UniqueKey { class, key } => {
                let by_key = sql(const { statement(SQL, "signal_unique_from_text") });
                sqlx::query(by_key).bind(class.clone()).bind(key.clone())
            }
        };
        let query = query.bind(name.to_owned()).bind(payload.as_str().to_owned());
        let row = query.fetch_optional(connection).await.map_err(failed)?;
        Ok(row.map_or(NOT_FOUND, |row| report(row.get("task_id"), row.get("status"))))
    }
}

const NOT_FOUND: SignalReport = SignalReport { task_id: None, status: SignalStatus::NotFound };

fn report(id: Option<i64>, status: &str) -> SignalReport {
    let status = SignalStatus::from_token(status).unwrap_or(SignalStatus::NotFound);
    let task_id = id.map(TaskId).filter(|_| status != SignalStatus::NotFound);
    SignalReport { task_id, status }
}
