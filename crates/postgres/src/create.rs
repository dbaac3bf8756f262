//! Creation, alone or in the application's transaction. Calls with unique tasks use a
//! separate statement; calls without use the plain one.

use std::time::Duration;

use jiff::Timestamp;
use task_engine_core::task::Due;
use task_engine_core::task::{NewTask, TaskId};
use task_engine_core::unique::Creation;
use task_engine_core::unique::Scope;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::error::{must_repeat, pool_error, store_error};
use crate::executor::Executor as _;
use crate::json::JsonIn;
#[cfg(feature = "sqlx")]
use crate::locks::{LOCK_TIMEOUT, unnamed_blocker};
use crate::schema::Schema;
use crate::store::{StoreInner, micros};

const SQL: &str = include_str!("../sql/engine/create.sql");
const CREATE: &str = statement(SQL, "create");
const CREATE_UNIQUE: &str = statement(SQL, "create_unique");

/// The most tasks and bytes of one statement; larger calls are several statements in one
/// transaction.
const STATEMENT_TASKS_MAX: usize = 10_000;
const STATEMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

impl StoreInner {
    pub(crate) async fn create_each(&self, tasks: &[NewTask]) -> Result<Vec<Creation>, StoreError> {
        let mut client = self.connections.work().await?;
        let kind = InsertKind::of(tasks);
        if chunk_len(tasks) == tasks.len() {
            let statement = self.schema.sql(kind.sql());
            let columns = TaskColumns::of(tasks);
            loop {
                match client.query_cached(&statement, &columns.parameters_for(kind)).await {
                    Err(e) if must_repeat(&e) => {}
                    Err(e) => return Err(e.into()),
                    Ok(rows) => return Ok(kind.creations(&rows)),
                }
            }
        }
        let transaction = client.transaction().await?;
        let creations = self.schema.create_each_in(transaction.client(), tasks).await?;
        transaction.commit().await?;
        Ok(creations)
    }
}

impl Schema {
    /// Creates tasks in a transaction of tokio-postgres: they exist, and engines are woken, when it
    /// commits.
    ///
    /// Applications use `Create::in_tx` of the crate `task-engine`, which also runs creation hooks.
    pub async fn create_in(
        &self,
        transaction: &impl GenericClient,
        tasks: &[NewTask],
    ) -> Result<Vec<TaskId>, StoreError> {
        let creations = self.create_each_in(transaction, tasks).await?;
        Ok(creations.into_iter().map(Creation::id).collect())
    }

    /// Creates tasks like [`Schema::create_in`], and returns for each whether it was created: a
    /// unique task may exist already.
    ///
    /// Such a task does not start before the transaction ends, so that it sees what the transaction
    /// has written. Until then, no other transaction can create a task with that key. Two
    /// transactions that use the same keys in a different order may deadlock: repeat the one that
    /// fails ([`StoreError::is_temporary`]). Use all keys in one call to avoid it.
    pub async fn create_each_in(
        &self,
        transaction: &impl GenericClient,
        tasks: &[NewTask],
    ) -> Result<Vec<Creation>, StoreError> {
        let kind = InsertKind::of(tasks);
        let statement = self.sql(kind.sql());
        let mut creations = Vec::with_capacity(tasks.len());
        let mut rest = tasks;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(chunk_len(rest));
            let columns = TaskColumns::of(chunk);
            let parameters: Vec<_> =
                columns.parameters_for(kind).into_iter().zip(kind.types()).collect();
            // Not prepared: that would be another way to the server and back.
            let rows = transaction.query_typed(&statement, &parameters).await;
            creations.extend(kind.creations(&rows.map_err(|e| store_error(&e))?));
            rest = after;
        }
        Ok(creations)
    }

    /// Creates tasks, all or none, on a connection of a pool.
    pub async fn create_each_with(
        &self,
        pool: &deadpool_postgres::Pool,
        tasks: &[NewTask],
    ) -> Result<Vec<Creation>, StoreError> {
        let mut client = pool.get().await.map_err(|e| pool_error(&e))?;
        // One statement is a transaction by itself.
        if chunk_len(tasks) == tasks.len() {
            return self.create_each_in(&**client, tasks).await;
        }
        let transaction = client.transaction().await.map_err(|e| store_error(&e))?;
        let creations = self.create_each_in(&*transaction, tasks).await?;
        transaction.commit().await.map_err(|e| store_error(&e))?;
        Ok(creations)
    }

    /// Creates tasks, all or none, on a connection of a pool of sqlx.
    #[cfg(feature = "sqlx")]
    pub async fn create_each_with_sqlx(
        &self,
        pool: &sqlx::PgPool,
        tasks: &[NewTask],
    ) -> Result<Vec<Creation>, StoreError> {
        if chunk_len(tasks) == tasks.len() {
            let mut connection = pool.acquire().await.map_err(|e| sqlx_error(&e))?;
            return self.create_each_in_sqlx(&mut connection, tasks).await;
        }
        let mut transaction = pool.begin().await.map_err(|e| sqlx_error(&e))?;
        let creations = self.create_each_in_sqlx(&mut transaction, tasks).await?;
        transaction.commit().await.map_err(|e| sqlx_error(&e))?;
        Ok(creations)
    }

    /// Creates tasks in a transaction of sqlx 0.9: they exist, and engines are woken, when it
    /// commits.
    ///
    /// An application with another version of sqlx calls the SQL function `task_engine.create_task`
    /// in its transaction.
    #[cfg(feature = "sqlx")]
    pub async fn create_in_sqlx(
        &self,
        connection: &mut sqlx::PgConnection,
        tasks: &[NewTask],
    ) -> Result<Vec<TaskId>, StoreError> {
        let creations = self.create_each_in_sqlx(connection, tasks).await?;
        Ok(creations.into_iter().map(Creation::id).collect())
    }

    /// Creates tasks like [`Schema::create_each_in`], with sqlx.
    #[cfg(feature = "sqlx")]
    pub async fn create_each_in_sqlx(
        &self,
        connection: &mut sqlx::PgConnection,
        tasks: &[NewTask],
    ) -> Result<Vec<Creation>, StoreError> {
        use sqlx::Row as _;
        let kind = InsertKind::of(tasks);
        let mut creations = Vec::with_capacity(tasks.len());
        let mut rest = tasks;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(chunk_len(rest));
            let columns = TaskColumns::of(chunk);
            // Times and JSON go as text: no feature of sqlx is needed for them.
            let times: Vec<Option<String>> =
                columns.times.iter().map(|t| t.map(|t| t.to_string())).collect();
            let text =
                |column: &[JsonIn<'_>]| column.iter().map(|json| json.0.to_owned()).collect();
            let parameters: Vec<String> = text(&columns.parameters);
            let contexts: Vec<String> = text(&columns.contexts);
            let statement = self.sql(kind.sql_from_text()).into_owned();
            let mut query = sqlx::query(sqlx::AssertSqlSafe(statement))
                .bind(columns.classes)
                .bind(parameters)
                .bind(times)
                .bind(columns.waits)
                .bind(columns.priorities)
                .bind(columns.queues)
                .bind(contexts);
            if kind == InsertKind::Unique {
                let keys = columns.keys;
                query = query.bind(keys.keys).bind(keys.scopes).bind(keys.answers);
            }
            let rows = query.fetch_all(&mut *connection).await.map_err(|e| sqlx_error(&e))?;
            creations.extend(rows.iter().map(|row| match kind {
                InsertKind::Plain => Creation::Created(TaskId(row.get(0))),
                InsertKind::Unique => creation(row.get(0), row.get(1)),
            }));
            rest = after;
        }
        Ok(creations)
    }
}

#[cfg(feature = "sqlx")]
pub(crate) fn sqlx_error(error: &sqlx::Error) -> StoreError {
    let message = format!("the tasks were not created: {error}");
    let code = error.as_database_error().and_then(|error| error.code());
    match code.as_deref() {
        Some(LOCK_TIMEOUT) => StoreError::Locked(format!("{message}{}", unnamed_blocker())),
        // The transaction is to be repeated.
        Some(code) if code.starts_with("40") => StoreError::Unavailable(message),
        _ => StoreError::Refused(message),
    }
}

/// Which of the two statements a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InsertKind {
    Plain,
    Unique,
}

impl InsertKind {
    fn of(tasks: &[NewTask]) -> Self {
        if tasks.iter().any(|task| task.unique.is_some()) { Self::Unique } else { Self::Plain }
    }

    fn sql(self) -> &'static str {
        match self {
            Self::Plain => CREATE,
            Self::Unique => CREATE_UNIQUE,
        }
    }

    #[cfg(feature = "sqlx")]
    fn sql_from_text(self) -> &'static str {
        match self {
            Self::Plain => const { statement(SQL, "create_from_text") },
            Self::Unique => const { statement(SQL, "create_unique_from_text") },
        }
    }

    fn types(self) -> Vec<Type> {
        let mut types = TYPES.to_vec();
        if self == Self::Unique {
            types.extend([Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY]);
        }
        types
    }

    fn creations(self, rows: &[Row]) -> Vec<Creation> {
        let creation = |row: &Row| match self {
            Self::Plain => Creation::Created(TaskId(row.get(0))),
            Self::Unique => creation(row.get(0), row.get(1)),
        };
        rows.iter().map(creation).collect()
    }
}

fn creation(id: i64, outcome: &str) -> Creation {
    match outcome {
        "kept" => Creation::Kept(TaskId(id)),
        "replaced" => Creation::Replaced(TaskId(id)),
        _ => Creation::Created(TaskId(id)),
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

/// The unique keys of tasks, as columns.
pub(crate) struct UniqueKeyColumns<'a> {
    pub(crate) keys: Vec<Option<&'a str>>,
    pub(crate) scopes: Vec<Option<String>>,
    pub(crate) answers: Vec<Option<&'static str>>,
}

impl<'a> UniqueKeyColumns<'a> {
    fn of(tasks: &(impl Iterator<Item = &'a NewTask> + Clone)) -> Self {
        let uniques = || tasks.clone().map(|task| task.unique.as_ref());
        Self {
            keys: uniques().map(|unique| Some(unique?.key.as_str())).collect(),
            scopes: uniques().map(|unique| Some(scope(unique?.scope))).collect(),
            answers: uniques().map(|unique| Some(unique?.on_conflict.as_str())).collect(),
        }
    }
}

fn scope(scope: Scope) -> String {
    match scope {
        Scope::Waiting => "waiting".to_owned(),
        Scope::Active => "active".to_owned(),
        Scope::Within(period) => hours(period),
    }
}

/// A period as `hours:minutes:seconds`. Up to version 14, PostgreSQL refuses
/// more than 2,147,483,647 of any unit, so microseconds alone end after 35 minutes.
fn hours(period: Duration) -> String {
    let seconds = period.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours}:{minutes:02}:{seconds:02}.{:06}", period.subsec_micros())
}

pub(crate) struct TaskColumns<'a> {
    pub(crate) classes: Vec<&'a str>,
    pub(crate) parameters: Vec<JsonIn<'a>>,
    pub(crate) times: Vec<Option<Timestamp>>,
    pub(crate) waits: Vec<Option<i64>>,
    pub(crate) priorities: Vec<i32>,
    pub(crate) queues: Vec<&'a str>,
    pub(crate) contexts: Vec<JsonIn<'a>>,
    pub(crate) keys: UniqueKeyColumns<'a>,
}

impl<'a> TaskColumns<'a> {
    fn of(tasks: &'a [NewTask]) -> Self {
        Self::of_each(&tasks.iter())
    }

    pub(crate) fn of_each(tasks: &(impl Iterator<Item = &'a NewTask> + Clone)) -> Self {
        let due = |task: &NewTask| match task.due {
            Due::Now => (None, None),
            Due::At(time) => (Some(time), None),
            Due::After(wait) => (None, Some(micros(wait))),
        };
        let (times, waits) = tasks.clone().map(due).unzip();
        Self {
            classes: tasks.clone().map(|task| &*task.class).collect(),
            parameters: tasks.clone().map(|task| JsonIn(task.parameters.as_str())).collect(),
            times,
            waits,
            priorities: tasks.clone().map(|task| task.priority).collect(),
            queues: tasks.clone().map(|task| &*task.queue).collect(),
            contexts: tasks.clone().map(|task| JsonIn(task.context.as_str())).collect(),
            keys: UniqueKeyColumns::of(tasks),
        }
    }

    fn parameters_for(&self, kind: InsertKind) -> Vec<&(dyn ToSql + Sync)> {
        let mut all: Vec<&(dyn ToSql + Sync)> = vec![
            &self.classes,
            &self.parameters,
            &self.times,
            &self.waits,
            &self.priorities,
            &self.queues,
            &self.contexts,
        ];
        if kind == InsertKind::Unique {
            let UniqueKeyColumns { keys, scopes, answers } = &self.keys;
            all.extend([keys as &(dyn ToSql + Sync), scopes, answers]);
        }
        all
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
