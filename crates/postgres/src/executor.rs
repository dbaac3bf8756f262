//! How statements are sent: on a connection of the pool or in a transaction, with a name or
//! without.
//!
//! A connection of PostgreSQL's own keeps what is set and prepared on it. Behind a pooler that
//! gives each transaction another connection, nothing of that lasts, and a name may be another
//! program's. There a statement has no name and is a transaction with its own settings. Its
//! beginning, the statement and its end are sent together, so that it is still one way to the
//! server and back.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use deadpool_postgres::Object;
use futures_util::join;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, IsolationLevel, Row, SimpleQueryMessage, Statement};

use crate::error::{SqlError, error_text};
use crate::pooler;

pub(crate) type SqlParameters<'a> = [&'a (dyn ToSql + Sync)];

/// The most statements whose types are cached; statements that are built for one call
/// would fill the cache.
const REMEMBERED_MAX: usize = 500;

/// How statements are sent.
#[derive(Debug)]
pub(crate) struct StatementMode {
    behind_pooler: AtomicBool,
    /// The settings of each connection: `SET a = b; SET …`.
    pub(crate) settings: String,
    /// The settings of each transaction behind a pooler.
    local_settings: String,
    /// The types of a statement's parameters, which only the server knows.
    types: Mutex<HashMap<String, Arc<[Type]>>>,
}

impl StatementMode {
    pub(crate) fn new(settings: String) -> Self {
        Self {
            behind_pooler: AtomicBool::new(false),
            local_settings: settings.replace("SET ", "SET LOCAL "),
            settings,
            types: Mutex::default(),
        }
    }

    pub(crate) fn is_behind_pooler(&self) -> bool {
        self.behind_pooler.load(Ordering::Relaxed)
    }

    pub(crate) fn set_behind_pooler(&self) {
        self.behind_pooler.store(true, Ordering::Relaxed);
    }

    /// A statement name was unknown: a pooler was added, or its mode was changed.
    fn notice<T>(&self, answer: Result<T, Error>) -> Result<T, SqlError> {
        if let Err(error) = &answer
            && error.code().is_some_and(pooler::is_unknown_statement)
            && !self.behind_pooler.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("{}: {}", pooler::REASON, error_text(error));
        }
        Ok(answer?)
    }

    async fn types(&self, executor: &impl Executor, sql: &str) -> Result<Arc<[Type]>, SqlError> {
        let known = || self.types.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(types) = known().get(sql) {
            return Ok(types.clone());
        }
        // In one message, which a pooler does not split. The name is removed at its end.
        let name = format!("task_engine_{:016x}", fastrand::u64(..));
        let question = format!(
            "PREPARE {name} AS {sql}\n;
             SELECT unnest(parameter_types)::oid FROM pg_prepared_statements WHERE name = '{name}';
             DEALLOCATE {name}"
        );
        // It waits for locks on tables, as the statement itself does.
        let messages = self.send(executor, executor.client().simple_query(&question)).await?;
        let oids = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        // Types of a schema's own are written as text.
        let types: Arc<[Type]> =
            oids.map(|oid| Type::from_oid(oid).unwrap_or(Type::TEXT)).collect();
        let mut known = known();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(sql.to_owned(), types.clone());
        Ok(types)
    }

    /// Sends a statement, as a transaction if it is in none. All three parts are
    /// sent before the first is answered: a caller that stops waiting leaves no open
    /// transaction behind.
    async fn send<T>(
        &self,
        executor: &impl Executor,
        statement: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, SqlError> {
        if !executor.is_autocommit() {
            return Ok(statement.await?);
        }
        let client = executor.client();
        let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {}", self.local_settings);
        let (begun, answer, ended) =
            join!(client.batch_execute(&begin), statement, client.batch_execute("COMMIT"));
        begun?;
        let answer = answer?;
        ended?;
        Ok(answer)
    }
}

fn typed<'a>(
    parameters: &'a SqlParameters<'a>,
    types: &[Type],
) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    parameters.iter().copied().zip(types.iter().cloned()).collect()
}

/// Where statements are sent: a connection, or a transaction on it.
///
/// Those that are *cached* stay prepared on a connection of PostgreSQL's own.
pub(crate) trait Executor: Sync + Sized {
    fn client(&self) -> &Client;

    fn mode(&self) -> &StatementMode;

    /// Whether there is a pooler in between.
    fn is_behind_pooler(&self) -> bool;

    /// Whether each statement is a transaction.
    fn is_autocommit(&self) -> bool;

    /// How to do it behind a pooler, if there is one.
    fn pooler_mode(&self) -> Option<&StatementMode> {
        self.is_behind_pooler().then(|| self.mode())
    }

    fn prepare_cached(&self, sql: &str) -> impl Future<Output = Result<Statement, Error>> + Send;

    fn query(
        &self,
        sql: &str,
        parameters: &SqlParameters<'_>,
    ) -> impl Future<Output = Result<Vec<Row>, SqlError>> + Send {
        async move {
            match self.pooler_mode() {
                None => self.mode().notice(self.client().query(sql, parameters).await),
                Some(mode) => {
                    let parameters = typed(parameters, &mode.types(self, sql).await?);
                    mode.send(self, self.client().query_typed(sql, &parameters)).await
                }
            }
        }
    }

    fn query_cached(
        &self,
        sql: &str,
        parameters: &SqlParameters<'_>,
    ) -> impl Future<Output = Result<Vec<Row>, SqlError>> + Send {
        async move {
            if self.is_behind_pooler() {
                return self.query(sql, parameters).await;
            }
            let statement = self.mode().notice(self.prepare_cached(sql).await)?;
            self.mode().notice(self.client().query(&statement, parameters).await)
        }
    }

    /// For statements that always have one row.
    fn query_one(
        &self,
        sql: &str,
        parameters: &SqlParameters<'_>,
    ) -> impl Future<Output = Result<Row, SqlError>> + Send {
        async move {
            match self.pooler_mode() {
                None => self.mode().notice(self.client().query_one(sql, parameters).await),
                Some(mode) => {
                    let parameters = typed(parameters, &mode.types(self, sql).await?);
                    mode.send(self, self.client().query_typed_one(sql, &parameters)).await
                }
            }
        }
    }

    fn query_opt(
        &self,
        sql: &str,
        parameters: &SqlParameters<'_>,
    ) -> impl Future<Output = Result<Option<Row>, SqlError>> + Send {
        async move { Ok(self.query(sql, parameters).await?.into_iter().next()) }
    }

    /// How many rows a statement has changed.
    fn execute(
        &self,
        sql: &str,
        parameters: &SqlParameters<'_>,
    ) -> impl Future<Output = Result<u64, SqlError>> + Send {
        async move {
            match self.pooler_mode() {
                None => self.mode().notice(self.client().execute(sql, parameters).await),
                Some(mode) => {
                    let parameters = typed(parameters, &mode.types(self, sql).await?);
                    mode.send(self, self.client().execute_typed(sql, &parameters)).await
                }
            }
        }
    }

    /// Statements without parameters, or settings.
    fn batch_execute(&self, sql: &str) -> impl Future<Output = Result<(), SqlError>> + Send {
        async move { Ok(self.client().batch_execute(sql).await?) }
    }
}

/// A connection, back in its pool when dropped.
pub(crate) struct PooledConnection {
    object: Object,
    mode: Arc<StatementMode>,
    /// As it was when the connection was taken from the pool.
    is_behind_pooler: bool,
}

impl PooledConnection {
    pub(crate) fn new(object: Object, mode: Arc<StatementMode>) -> Self {
        Self { object, is_behind_pooler: mode.is_behind_pooler(), mode }
    }

    pub(crate) async fn transaction(&mut self) -> Result<PgTransaction<'_>, SqlError> {
        self.begin(IsolationLevel::ReadCommitted, false).await
    }

    /// A transaction that only reads, all of it at one moment.
    pub(crate) async fn snapshot(&mut self) -> Result<PgTransaction<'_>, SqlError> {
        self.begin(IsolationLevel::RepeatableRead, true).await
    }

    async fn begin(
        &mut self,
        isolation: IsolationLevel,
        read_only: bool,
    ) -> Result<PgTransaction<'_>, SqlError> {
        let builder = self.object.build_transaction().isolation_level(isolation);
        let builder = if read_only { builder.read_only(true) } else { builder };
        let inner = builder.start().await?;
        if self.is_behind_pooler {
            inner.batch_execute(&self.mode.local_settings).await?;
        }
        Ok(PgTransaction {
            inner,
            mode: self.mode.clone(),
            is_behind_pooler: self.is_behind_pooler,
        })
    }
}

impl Executor for PooledConnection {
    fn client(&self) -> &Client {
        &self.object
    }

    fn mode(&self) -> &StatementMode {
        &self.mode
    }

    fn is_behind_pooler(&self) -> bool {
        self.is_behind_pooler
    }

    fn is_autocommit(&self) -> bool {
        true
    }

    fn prepare_cached(&self, sql: &str) -> impl Future<Output = Result<Statement, Error>> + Send {
        self.object.prepare_cached(sql)
    }
}

/// Rolled back when dropped.
pub(crate) struct PgTransaction<'a> {
    inner: deadpool_postgres::Transaction<'a>,
    mode: Arc<StatementMode>,
    is_behind_pooler: bool,
}

impl PgTransaction<'_> {
    pub(crate) async fn commit(self) -> Result<(), SqlError> {
        Ok(self.inner.commit().await?)
    }

    pub(crate) async fn rollback(self) -> Result<(), SqlError> {
        Ok(self.inner.rollback().await?)
    }

    pub(crate) async fn savepoint(&mut self, name: &str) -> Result<PgTransaction<'_>, SqlError> {
        let inner = self.inner.savepoint(name).await?;
        Ok(PgTransaction {
            inner,
            mode: self.mode.clone(),
            is_behind_pooler: self.is_behind_pooler,
        })
    }
}

impl Executor for PgTransaction<'_> {
    fn client(&self) -> &Client {
        self.inner.client()
    }

    fn mode(&self) -> &StatementMode {
        &self.mode
    }

    fn is_behind_pooler(&self) -> bool {
        self.is_behind_pooler
    }

    fn is_autocommit(&self) -> bool {
        false
    }

    fn prepare_cached(&self, sql: &str) -> impl Future<Output = Result<Statement, Error>> + Send {
        self.inner.prepare_cached(sql)
    }
}
