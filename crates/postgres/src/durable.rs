//! Durable tasks: recorded steps, and steps that create child tasks. Suspension, signals and
//! parents are in `suspend`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use task_engine_core::json::Json;
use task_engine_core::step::{
    NewCall, NewStep, SignalRow, StepContent, StepKind, StepOutcome, StepRow, TaskSteps,
};
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::unique::Creation;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use crate::complete::ATTEMPT_OVER;
use crate::error::{SqlError, must_repeat, store_error};
use crate::executor::{Executor as _, PgTransaction, PooledConnection};
use crate::json::JsonIn;
use crate::schema::Schema;
use crate::store::{StoreInner, micros};
use crate::value::read;

const SQL: &str = include_str!("../sql/engine/durable.sql");
const STEPS: &str = statement(SQL, "steps");
const RECORD_STEPS: &str = statement(SQL, "record_steps");
const EXISTING_STEPS: &str = statement(SQL, "existing_steps");
const RECORD_STEP_IN: &str = statement(SQL, "record_step_in");
const CALL_FENCE: &str = statement(SQL, "call_fence");
const RECORD_CALL: &str = statement(SQL, "record_call");
const ADD_DEPENDENCIES: &str = statement(SQL, "add_dependencies");
const LOCK_SOURCE: &str = statement(SQL, "lock_source");
const COPY_STEPS: &str = statement(SQL, "copy_steps");
const COPY_DEPENDENCIES: &str = statement(SQL, "copy_dependencies");

/// The server's name for "this step is recorded already".
const STEP_RECORDED: &str = "TE002";

impl StoreInner {
    pub(crate) async fn steps(&self, id: TaskId) -> Result<TaskSteps, StoreError> {
        let client = self.connections.work().await?;
        let rows = client.query_cached(&self.schema.sql(STEPS), &[&id.0]).await?;
        let mut all = TaskSteps::default();
        for row in &rows {
            match row.get("row") {
                "step" => all.steps.extend(step_row(row)),
                "signal" => all.signals.push(SignalRow {
                    name: read(row, "name"),
                    payload: read(row, "json"),
                    sent_at: read(row, "recorded_at"),
                    timed_out: read(row, "timed_out"),
                }),
                _ => all.now = read(row, "recorded_at"),
            }
        }
        all.steps.sort_by_key(|step| step.number);
        all.signals.sort_by_key(|signal| signal.sent_at);
        Ok(all)
    }

    pub(crate) async fn record_steps(
        &self,
        steps: &[NewStep],
    ) -> Result<Vec<StepOutcome>, StoreError> {
        let client = self.connections.work().await?;
        let columns = StepColumns::of(steps);
        let rows = loop {
            match columns.run(&client, &self.schema.sql(RECORD_STEPS)).await {
                Err(e) if must_repeat(&e) => {}
                answer => break answer?,
            }
        };
        let mut recorded: HashMap<(i64, String), StepOutcome> = rows
            .iter()
            .map(|row| ((row.get("task_id"), read(row, "name")), outcome(row)))
            .collect();
        let mut existing = HashSet::new();
        if recorded.len() < steps.len() {
            existing = self.existing_steps(&client, &columns).await?;
        }
        Ok(steps
            .iter()
            .map(|step| {
                let key = (step.id.task_id.0, step.name.clone());
                let otherwise = if existing.contains(&key) {
                    StepOutcome::Exists
                } else {
                    StepOutcome::AttemptOver
                };
                recorded.remove(&key).unwrap_or(otherwise)
            })
            .collect())
    }

    async fn existing_steps(
        &self,
        client: &PooledConnection,
        columns: &StepColumns<'_>,
    ) -> Result<HashSet<(i64, String)>, StoreError> {
        let sql = self.schema.sql(EXISTING_STEPS);
        let rows = client.query(&sql, &[&columns.task_ids, &columns.names]).await?;
        Ok(rows.iter().map(|row| (row.get("task_id"), read(row, "name"))).collect())
    }

    pub(crate) async fn record_call(&self, call: &NewCall) -> Result<StepOutcome, StoreError> {
        let mut client = self.connections.work().await?;
        loop {
            let transaction = client.transaction().await?;
            match self.record_call_in(&transaction, call).await? {
                recorded @ StepOutcome::Recorded { .. } => match transaction.commit().await {
                    Err(e) if must_repeat(&e) => {}
                    committed => {
                        committed?;
                        return Ok(recorded);
                    }
                },
                refused => {
                    transaction.rollback().await?;
                    return Ok(refused);
                }
            }
        }
    }

    /// Creates the children first: the step contains their ids. If a step of this name is
    /// recorded already, the caller rolls back.
    async fn record_call_in(
        &self,
        transaction: &PgTransaction<'_>,
        call: &NewCall,
    ) -> Result<StepOutcome, StoreError> {
        let (task, attempt) = (call.id.task_id.0, call.id.attempt);
        let fence = self.schema.sql(CALL_FENCE);
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&task, &attempt, &call.claim_id.0, &call.name];
        let fence = transaction.query_one(&fence, &parameters).await?;
        if read(&fence, "recorded") {
            return Ok(StepOutcome::Exists);
        }
        if !read::<bool>(&fence, "held") {
            return Ok(StepOutcome::AttemptOver);
        }
        let creations = self.schema.create_each_in(transaction.client(), &call.children).await?;
        let children: Vec<TaskId> = creations.into_iter().map(Creation::id).collect();
        if children.contains(&call.id.task_id) {
            return Err(StoreError::Refused(format!(
                "task {task} cannot wait for itself: a child has its unique key"
            )));
        }
        let ids: Vec<i64> = children.iter().map(|id| id.0).collect();
        let number = i32::try_from(call.number).unwrap_or(i32::MAX);
        let rows = transaction
            .query(&self.schema.sql(RECORD_CALL), &[&task, &call.name, &number, &attempt, &ids])
            .await?;
        let Some(row) = rows.first() else {
            return Ok(StepOutcome::Exists);
        };
        transaction.execute(&self.schema.sql(ADD_DEPENDENCIES), &[&task, &ids]).await?;
        // Once more: creation may have taken long, and recovery may have ended the attempt.
        let fence = self.schema.sql(CALL_FENCE);
        let fence = transaction.query_one(&fence, &parameters).await?;
        if !read::<bool>(&fence, "held") {
            return Ok(StepOutcome::AttemptOver);
        }
        let now = read(row, "recorded_at");
        Ok(StepOutcome::Recorded { now, until: None, signal: None, children })
    }

    pub(crate) async fn create_with_steps(
        &self,
        task: &NewTask,
        from: TaskId,
        before_number: u32,
    ) -> Result<TaskId, StoreError> {
        let mut client = self.connections.work().await?;
        let transaction = client.transaction().await?;
        let locked = transaction.query(&self.schema.sql(LOCK_SOURCE), &[&from.0]).await?;
        let locked: Vec<i64> = locked.iter().map(|row| row.get(0)).collect();
        if !locked.contains(&from.0) {
            return Err(StoreError::Refused(format!("there is no task {from}")));
        }
        let tasks = std::slice::from_ref(task);
        let created = self.schema.create_each_in(transaction.client(), tasks).await?;
        let Some(created) = created.first() else {
            return Err(StoreError::Refused("no task was created".to_owned()));
        };
        if !created.is_new() {
            return Err(StoreError::Refused(format!(
                "task {} has the unique key of the new task",
                created.id()
            )));
        }
        let before = i32::try_from(before_number).unwrap_or(i32::MAX);
        transaction
            .execute(&self.schema.sql(COPY_STEPS), &[&created.id().0, &from.0, &before])
            .await?;
        if locked.len() > 1 {
            transaction
                .execute(&self.schema.sql(COPY_DEPENDENCIES), &[&created.id().0, &from.0, &locked])
                .await?;
        }
        transaction.commit().await?;
        Ok(created.id())
    }
}

/// `None` for a kind that a later version of this program has written.
fn step_row(row: &Row) -> Option<StepRow> {
    Some(StepRow {
        name: read(row, "name"),
        number: u32::try_from(read::<i32>(row, "number")).unwrap_or(0),
        kind: StepKind::from_token(&read::<String>(row, "kind"))?,
        attempt: read(row, "attempt"),
        result: read(row, "json"),
        until: read(row, "until"),
        started_at: read(row, "started_at"),
        recorded_at: read(row, "recorded_at"),
    })
}

fn outcome(row: &Row) -> StepOutcome {
    let signal = read::<bool>(row, "has_signal").then(|| SignalRow {
        name: read(row, "name"),
        payload: read(row, "payload"),
        sent_at: read(row, "sent_at"),
        timed_out: read(row, "timed_out"),
    });
    let (now, until) = (read(row, "recorded_at"), read(row, "until"));
    StepOutcome::Recorded { now, until, signal, children: Vec::new() }
}

/// Steps as arrays, side by side.
struct StepColumns<'a> {
    task_ids: Vec<i64>,
    attempts: Vec<i32>,
    claim_ids: Vec<i64>,
    names: Vec<&'a str>,
    numbers: Vec<i32>,
    kinds: Vec<&'static str>,
    results: Vec<Option<Cow<'a, Json>>>,
    took: Vec<i64>,
    lasts: Vec<Option<i64>>,
    untils: Vec<Option<Timestamp>>,
}

impl<'a> StepColumns<'a> {
    fn of(steps: &'a [NewStep]) -> Self {
        Self {
            task_ids: steps.iter().map(|step| step.id.task_id.0).collect(),
            attempts: steps.iter().map(|step| step.id.attempt).collect(),
            claim_ids: steps.iter().map(|step| step.claim_id.0).collect(),
            names: steps.iter().map(|step| step.name.as_str()).collect(),
            numbers: steps.iter().map(|s| i32::try_from(s.number).unwrap_or(i32::MAX)).collect(),
            kinds: steps.iter().map(|step| step.content.kind().as_str()).collect(),
            results: steps.iter().map(|step| step.content.result()).collect(),
            took: steps.iter().map(|step| micros(step.lasted)).collect(),
            lasts: steps
                .iter()
                .map(|step| match step.content {
                    StepContent::SleepFor(time) | StepContent::Wait(time) => Some(micros(time)),
                    _ => None,
                })
                .collect(),
            untils: steps
                .iter()
                .map(|step| match step.content {
                    StepContent::SleepUntil(time) => Some(time),
                    _ => None,
                })
                .collect(),
        }
    }

    async fn run(&self, client: &PooledConnection, statement: &str) -> Result<Vec<Row>, SqlError> {
        let results: Vec<Option<JsonIn<'_>>> = self
            .results
            .iter()
            .map(|result| result.as_ref().map(|json| JsonIn(json.as_str())))
            .collect();
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 10] = [
            &self.task_ids,
            &self.attempts,
            &self.claim_ids,
            &self.names,
            &self.numbers,
            &self.kinds,
            &results,
            &self.took,
            &self.lasts,
            &self.untils,
        ];
        client.query_cached(statement, &parameters).await
    }
}

impl Schema {
    /// Records a step in a transaction of tokio-postgres, so that its effects and the record commit
    /// together.
    ///
    /// After an error the transaction is aborted. [`StoreError::AttemptOver`]: the attempt
    /// has been ended otherwise.
    pub async fn record_step_in(
        &self,
        transaction: &impl GenericClient,
        step: &NewStep,
    ) -> Result<(), StoreError> {
        let number = i32::try_from(step.number).unwrap_or(i32::MAX);
        let lasted = micros(step.lasted);
        let recorded = transaction
            .query_typed(
                &self.sql(RECORD_STEP_IN),
                &[
                    (&step.id.task_id.0, Type::INT8),
                    (&step.id.attempt, Type::INT4),
                    (&step.claim_id.0, Type::INT8),
                    (&step.name, Type::TEXT),
                    (&number, Type::INT4),
                    (&JsonIn(result_text(step)), Type::JSONB),
                    (&lasted, Type::INT8),
                ],
            )
            .await;
        match recorded {
            Ok(_) => Ok(()),
            Err(e) => Err(match e.code().map(tokio_postgres::error::SqlState::code) {
                Some(ATTEMPT_OVER) => StoreError::AttemptOver(step.id),
                Some(STEP_RECORDED) => recorded_already(step),
                _ => store_error(&e),
            }),
        }
    }

    /// Records a step like [`Schema::record_step_in`], with sqlx.
    #[cfg(feature = "sqlx")]
    pub async fn record_step_in_sqlx(
        &self,
        connection: &mut sqlx::PgConnection,
        step: &NewStep,
    ) -> Result<(), StoreError> {
        // JSON is sent as text, so no feature of sqlx is needed.
        let statement = self.sql(const { statement(SQL, "record_step_in_from_text") }).into_owned();
        let recorded = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(step.id.task_id.0)
            .bind(step.id.attempt)
            .bind(step.claim_id.0)
            .bind(step.name.clone())
            .bind(i32::try_from(step.number).unwrap_or(i32::MAX))
            .bind(result_text(step).to_owned())
            .bind(micros(step.lasted))
            .execute(connection)
            .await;
        match recorded {
            Ok(_) => Ok(()),
            Err(error) => {
                let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
                Err(match code.as_deref() {
                    Some(STEP_RECORDED) => recorded_already(step),
                    _ => crate::complete::sqlx_error(&error, step.id, "recorded"),
                })
            }
        }
    }
}

fn result_text(step: &NewStep) -> &str {
    match &step.content {
        StepContent::Value(result) => result.as_str(),
        _ => "null",
    }
}

fn recorded_already(step: &NewStep) -> StoreError {
    StoreError::Refused(format!(
        "step {:?} of task {} is recorded already; roll back: the recorded result counts",
        step.name, step.id.task_id
    ))
}
