//! Creation, alone and in the application's transaction. Tasks that are unique
//! have a statement of their own; without any the path is the plain one.

use jiff::Timestamp;
use task_engine_model::task::Due;
use task_engine_model::unique::Scope;
use task_engine_model::{Creation, NewTask, StoreError, TaskId};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::error::{must_repeat, store_error};
use crate::json::JsonIn;
use crate::schema::Schema;
use crate::store::{Inner, micros};

const CREATE: &str = include_str!("../sql/create.sql");
const CREATE_UNIQUE: &str = include_str!("../sql/create_unique.sql");

/// How much goes into one statement; a call with more is several statements of
/// one transaction.
const STATEMENT_TASKS_MAX: usize = 10_000;
const STATEMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Inner {
    pub(crate) async fn create_each(&self, tasks: &[NewTask]) -> Result<Vec<Creation>, StoreError> {
        let mut client = self.connections.work().await?;
        let door = Door::of(tasks);
        if chunk_len(tasks) == tasks.len() {
            let statement = client
                .prepare_cached(&self.schema.sql(door.sql()))
                .await
                .map_err(|e| store_error(&e))?;
            loop {
                match door.run(&**client, &statement, tasks).await {
                    Err(e) if must_repeat(&e) => {}
                    answer => return answer.map_err(|e| store_error(&e)),
                }
            }
        }
        let transaction = client.transaction().await.map_err(|e| store_error(&e))?;
        let creations = self.schema.create_each_in(&*transaction, tasks).await?;
        transaction.commit().await.map_err(|e| store_error(&e))?;
        Ok(creations)
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
        let creations = self.create_each_in(transaction, tasks).await?;
        Ok(creations.into_iter().map(Creation::id).collect())
    }

    /// The same, and tells what became of each: of those that are unique, some
    /// may be there already. Such a task does not start before the transaction
    /// ends, so that it sees what the transaction has written; nor does anybody
    /// else create with that key. Two transactions that use the same keys in a
    /// different order may deadlock: one of them is to be repeated
    /// ([`StoreError::is_temporary`]). Use all keys in one call to avoid it.
    pub async fn create_each_in(
        &self,
        transaction: &impl GenericClient,
        tasks: &[NewTask],
    ) -> Result<Vec<Creation>, StoreError> {
        let door = Door::of(tasks);
        let statement = transaction
            .prepare_typed(&self.sql(door.sql()), &door.types())
            .await
            .map_err(|e| store_error(&e))?;
        let mut creations = Vec::with_capacity(tasks.len());
        let mut rest = tasks;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(chunk_len(rest));
            let some = door.run(transaction, &statement, chunk).await;
            creations.extend(some.map_err(|e| store_error(&e))?);
            rest = after;
        }
        Ok(creations)
    }

    /// Creates tasks in a transaction of the application's own, with sqlx.
    #[cfg(feature = "sqlx")]
    pub async fn create_in_sqlx(
        &self,
        connection: &mut sqlx::PgConnection,
        tasks: &[NewTask],
    ) -> Result<Vec<TaskId>, StoreError> {
        let creations = self.create_each_in_sqlx(connection, tasks).await?;
        Ok(creations.into_iter().map(Creation::id).collect())
    }

    /// The same, and tells what became of each, as [`Schema::create_each_in`].
    #[cfg(feature = "sqlx")]
    pub async fn create_each_in_sqlx(
        &self,
        connection: &mut sqlx::PgConnection,
        tasks: &[NewTask],
    ) -> Result<Vec<Creation>, StoreError> {
        use sqlx::Row as _;
        let text = |json: &str| json.to_owned();
        let door = Door::of(tasks);
        let mut creations = Vec::with_capacity(tasks.len());
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
                .sql(door.sql())
                .replace("$2::jsonb[]", "$2::text[]::jsonb[]")
                .replace("$3::timestamptz[]", "$3::text[]::timestamptz[]")
                .replace("$7::jsonb[]", "$7::text[]::jsonb[]");
            let mut query = sqlx::query(sqlx::AssertSqlSafe(statement))
                .bind(columns.classes)
                .bind(parameters)
                .bind(times)
                .bind(columns.waits)
                .bind(columns.priorities)
                .bind(columns.queues)
                .bind(contexts);
            if door == Door::Unique {
                let keys = Keys::of(chunk);
                query = query.bind(keys.keys).bind(keys.scopes).bind(keys.answers);
            }
            let rows = query.fetch_all(&mut *connection).await.map_err(|e| sqlx_error(&e))?;
            creations.extend(rows.iter().map(|row| match door {
                Door::Plain => Creation::Created(TaskId(row.get(0))),
                Door::Unique => creation(row.get(0), row.get(1)),
            }));
            rest = after;
        }
        Ok(creations)
    }
}

#[cfg(feature = "sqlx")]
fn sqlx_error(error: &sqlx::Error) -> StoreError {
    let message = format!("the tasks were not created: {error}");
    let code = error.as_database_error().and_then(|error| error.code());
    // The transaction is to be repeated; a lock was not had in time.
    if code.is_some_and(|code| code.starts_with("40") || code == "55P03") {
        StoreError::Unavailable(message)
    } else {
        StoreError::Refused(message)
    }
}

/// Which of the two statements a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Plain,
    Unique,
}

impl Door {
    fn of(tasks: &[NewTask]) -> Self {
        if tasks.iter().any(|task| task.unique.is_some()) { Self::Unique } else { Self::Plain }
    }

    fn sql(self) -> &'static str {
        match self {
            Self::Plain => CREATE,
            Self::Unique => CREATE_UNIQUE,
        }
    }

    fn types(self) -> Vec<Type> {
        let mut types = TYPES.to_vec();
        if self == Self::Unique {
            types.extend([Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY]);
        }
        types
    }

    async fn run(
        self,
        client: &impl GenericClient,
        statement: &tokio_postgres::Statement,
        tasks: &[NewTask],
    ) -> Result<Vec<Creation>, tokio_postgres::Error> {
        let columns = Columns::of(tasks);
        let parameters: Vec<_> = tasks.iter().map(|t| JsonIn(t.parameters.as_str())).collect();
        let contexts: Vec<_> = tasks.iter().map(|t| JsonIn(t.context.as_str())).collect();
        let plain: [&(dyn ToSql + Sync); 7] = [
            &columns.classes,
            &parameters,
            &columns.times,
            &columns.waits,
            &columns.priorities,
            &columns.queues,
            &contexts,
        ];
        if self == Self::Plain {
            let rows = client.query(statement, &plain).await?;
            return Ok(rows.iter().map(|row| Creation::Created(TaskId(row.get(0)))).collect());
        }
        let keys = Keys::of(tasks);
        let mut all = plain.to_vec();
        all.extend([&keys.keys as &(dyn ToSql + Sync), &keys.scopes, &keys.answers]);
        let rows = client.query(statement, &all).await?;
        Ok(rows.iter().map(|row: &Row| creation(row.get(0), row.get(1))).collect())
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

/// What makes tasks unique, side by side with their [`Columns`].
struct Keys<'a> {
    keys: Vec<Option<&'a str>>,
    scopes: Vec<Option<String>>,
    answers: Vec<Option<&'static str>>,
}

impl<'a> Keys<'a> {
    fn of(tasks: &'a [NewTask]) -> Self {
        let uniques = || tasks.iter().map(|task| task.unique.as_ref());
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
        Scope::Within(period) => format!("{} microseconds", micros(period)),
    }
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
