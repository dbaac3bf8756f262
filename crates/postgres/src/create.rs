//! Creation, alone and in the application's transaction.

use jiff::Timestamp;
use task_engine_model::task::Due;
use task_engine_model::{NewTask, StoreError, TaskId};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::error::store_error;
use crate::json::JsonIn;
use crate::schema::Schema;
use crate::store::{Inner, micros};

const CREATE: &str = include_str!("../sql/create.sql");

/// How much goes into one statement; a call with more is several statements of
/// one transaction.
const STATEMENT_TASKS_MAX: usize = 10_000;
const STATEMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Inner {
    pub(crate) async fn create(&self, tasks: &[NewTask]) -> Result<Vec<TaskId>, StoreError> {
        let mut client = self.connections.work().await?;
        if chunk_len(tasks) == tasks.len() {
            let statement = client
                .prepare_cached(&self.schema.sql(CREATE))
                .await
                .map_err(|e| store_error(&e))?;
            return run(&**client, &statement, tasks).await;
        }
        let transaction = client.transaction().await.map_err(|e| store_error(&e))?;
        let ids = self.schema.create_in(&*transaction, tasks).await?;
        transaction.commit().await.map_err(|e| store_error(&e))?;
        Ok(ids)
    }
}

impl Schema {
    /// Creates tasks in a transaction of the application's own, with
    /// tokio-postgres: they are there, and engines are woken, when it commits.
    pub async fn create_in(
        &self,
        transaction: &impl GenericClient,
        tasks: &[NewTask],
    ) -> Result<Vec<TaskId>, StoreError> {
        let statement = transaction
            .prepare_typed(&self.sql(CREATE), &TYPES)
            .await
            .map_err(|e| store_error(&e))?;
        let mut ids = Vec::with_capacity(tasks.len());
        let mut rest = tasks;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(chunk_len(rest));
            ids.extend(run(transaction, &statement, chunk).await?);
            rest = after;
        }
        Ok(ids)
    }

    /// Creates tasks in a transaction of the application's own, with sqlx.
    #[cfg(feature = "sqlx")]
    pub async fn create_in_sqlx(
        &self,
        connection: &mut sqlx::PgConnection,
        tasks: &[NewTask],
    ) -> Result<Vec<TaskId>, StoreError> {
        let text = |json: &str| json.to_owned();
        let mut ids = Vec::with_capacity(tasks.len());
        let mut rest = tasks;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(chunk_len(rest));
            let columns = Columns::of(chunk);
            // Times and JSON go as text: no feature of sqlx is needed for them.
            let times: Vec<Option<String>> =
                columns.times.iter().map(|t| t.map(|t| t.to_string())).collect();
            let parameters: Vec<String> =
                chunk.iter().map(|t| text(t.parameters.as_str())).collect();
            let contexts: Vec<String> = chunk.iter().map(|t| text(t.context.as_str())).collect();
            let statement = self
                .sql(CREATE)
                .replace("$2::jsonb[]", "$2::text[]::jsonb[]")
                .replace("$3::timestamptz[]", "$3::text[]::timestamptz[]")
                .replace("$7::jsonb[]", "$7::text[]::jsonb[]");
            let created: Vec<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(statement))
                .bind(columns.classes)
                .bind(parameters)
                .bind(times)
                .bind(columns.waits)
                .bind(columns.priorities)
                .bind(columns.queues)
                .bind(contexts)
                .fetch_all(&mut *connection)
                .await
                .map_err(|e| StoreError::Refused(format!("the tasks were not created: {e}")))?;
            ids.extend(created.into_iter().map(TaskId));
            rest = after;
        }
        Ok(ids)
    }
}

const TYPES: [Type; 7] = [
    Type::TEXT_ARRAY,
    Type::JSONB_ARRAY,
    Type::TIMESTAMPTZ_ARRAY,
    Type::INT8_ARRAY,
    Type::INT4_ARRAY,
    Type::TEXT_ARRAY,
    Type::JSONB_ARRAY,
];

async fn run(
    client: &impl GenericClient,
    statement: &tokio_postgres::Statement,
    tasks: &[NewTask],
) -> Result<Vec<TaskId>, StoreError> {
    let columns = Columns::of(tasks);
    let parameters: Vec<_> = tasks.iter().map(|t| JsonIn(t.parameters.as_str())).collect();
    let contexts: Vec<_> = tasks.iter().map(|t| JsonIn(t.context.as_str())).collect();
    let rows = client
        .query(
            statement,
            &[
                &columns.classes,
                &parameters,
                &columns.times,
                &columns.waits,
                &columns.priorities,
                &columns.queues,
                &contexts,
            ],
        )
        .await
        .map_err(|e| store_error(&e))?;
    Ok(rows.iter().map(|row| TaskId(row.get(0))).collect())
}

struct Columns<'a> {
    classes: Vec<&'a str>,
    times: Vec<Option<Timestamp>>,
    waits: Vec<Option<i64>>,
    priorities: Vec<i32>,
    queues: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn of(tasks: &'a [NewTask]) -> Self {
        let mut columns = Self {
            classes: Vec::with_capacity(tasks.len()),
            times: Vec::with_capacity(tasks.len()),
            waits: Vec::with_capacity(tasks.len()),
            priorities: Vec::with_capacity(tasks.len()),
            queues: Vec::with_capacity(tasks.len()),
        };
        for task in tasks {
            let (time, wait) = match task.due {
                Due::Now => (None, None),
                Due::At(time) => (Some(time), None),
                Due::After(wait) => (None, Some(micros(wait))),
            };
            columns.classes.push(&task.class);
            columns.times.push(time);
            columns.waits.push(wait);
            columns.priorities.push(task.priority);
            columns.queues.push(&task.queue);
        }
        columns
    }
}

/// How many of these tasks fit into one statement; at least one.
fn chunk_len(tasks: &[NewTask]) -> usize {
    let mut bytes = 0;
    for (i, task) in tasks.iter().take(STATEMENT_TASKS_MAX).enumerate() {
        bytes += task.parameters.as_str().len() + task.context.as_str().len() + task.class.len();
        if bytes > STATEMENT_BYTES_MAX && i > 0 {
            return i;
        }
    }
    tasks.len().min(STATEMENT_TASKS_MAX)
}
