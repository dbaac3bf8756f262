//! A throw-away schema in PostgreSQL, and a connection that watches the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use task_engine::Store;
use task_engine::postgres::tokio_postgres::config::SslMode;
use task_engine::postgres::tokio_postgres::types::{ToSql, Type};
use task_engine::postgres::tokio_postgres::{Client, Config, NoTls, Row};
use task_engine::postgres::{PgStore, Schema};
use tokio::sync::{Mutex, OnceCell};

use super::arena::{Keep, Reading, Rows, Strangers};
use super::proc::Server;
use crate::error::CliError;

#[derive(Debug)]
pub(super) struct PgArena {
    url: String,
    schema: Schema,
    config: Config,
    watcher: Client,
    version: String,
    /// `None` if the server runs on another machine, or is hidden from here.
    server: Option<Server>,
    /// Keeps a snapshot open for as long as it lives.
    holder: OnceCell<Client>,
    /// The functions that notify, as they were before they were silenced.
    noisy: Mutex<Vec<String>>,
}

const ABOUT_SERVER: &str = include_str!("sql/about_server.sql");
const CLEAR_QUEUE: &str = include_str!("sql/clear_queue.sql");
const COMMITS: &str = include_str!("sql/commits.sql");
const CONNECTIONS: &str = include_str!("sql/connections.sql");
const CROWD: &str = include_str!("sql/crowd.sql");
const DEAD_ROWS: &str = include_str!("sql/dead_rows.sql");
const FUTURE: &str = include_str!("sql/future.sql");
const HISTORY: &str = include_str!("sql/history.sql");
const HOLD_SNAPSHOT: &str = include_str!("sql/hold_snapshot.sql");
const NOTIFYING_FUNCTIONS: &str = include_str!("sql/notifying_functions.sql");
const READING: &str = include_str!("sql/reading.sql");
const STRANGERS: &str = include_str!("sql/strangers.sql");
const STAY_SILENT: &str = include_str!("sql/stay_silent.sql");
const TABLES: &str = include_str!("sql/tables.sql");

/// How long the server's side of a closed connection may take to go.
const GOODBYE: Duration = Duration::from_secs(5);

impl PgArena {
    pub(super) async fn connect(url: &str) -> Result<Self, CliError> {
        let config: Result<Config, _> = url.parse();
        let config = config.ok().filter(|config| config.get_ssl_mode() != SslMode::Require);
        let Some(mut config) = config else {
            return Err(CliError::Usage(
                "bench watches the server over a connection of its own, which cannot use TLS: leave sslmode out of the URL, and measure over a network that may be trusted".to_owned(),
            ));
        };
        let schema = format!("task_engine_bench_{}", std::process::id());
        config.application_name(&schema);
        let watcher = connect(&config).await?;
        let row = watcher.query_typed_one(ABOUT_SERVER, &[]).await.map_err(failed)?;
        let (version, backend, is_here): (String, i32, bool) = (row.get(0), row.get(1), row.get(2));
        let backend = u32::try_from(backend).ok().filter(|_| is_here);
        Ok(Self {
            // The last one counts, so whatever name the URL gives is replaced.
            url: format!(
                "{url}{}application_name={schema}",
                if url.contains('?') { '&' } else { '?' }
            ),
            schema: Schema::named(&schema)?,
            config,
            watcher,
            version,
            server: backend.and_then(Server::of_backend),
            holder: OnceCell::new(),
            noisy: Mutex::default(),
        })
    }

    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    pub(super) fn schema(&self) -> String {
        self.schema.to_string()
    }

    pub(super) fn database(&self) -> String {
        format!("PostgreSQL {}", self.version)
    }

    pub(super) async fn store(&self) -> Result<Arc<dyn Store>, CliError> {
        Ok(Arc::new(PgStore::connect_schema(&self.url, self.schema.clone()).await?))
    }

    pub(super) async fn fill(&self, what: Rows, count: u64) -> Result<(), CliError> {
        let statement = match what {
            Rows::Past => HISTORY,
            Rows::Future => FUTURE,
            Rows::Crowd => CROWD,
        };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let count: [(&(dyn ToSql + Sync), Type); 1] = [(&count, Type::INT8)];
        self.watcher.execute_typed(&self.sql(statement), &count).await.map_err(failed)?;
        Ok(())
    }

    /// A table that has been there for a while has been vacuumed; otherwise the
    /// server would begin to do so in the middle of a measurement.
    pub(super) async fn settle(&self, hold_snapshot: bool) -> Result<(), CliError> {
        let vacuum = format!("VACUUM (ANALYZE) {}", self.tables().await?.join(", "));
        self.watcher.batch_execute(&vacuum).await.map_err(failed)?;
        if hold_snapshot {
            let holder = connect(&self.config).await?;
            holder.batch_execute(HOLD_SNAPSHOT).await.map_err(failed)?;
            let _ = self.holder.set(holder);
        }
        Ok(())
    }

    pub(super) async fn tidy(&self, keep: Keep) -> Result<(), CliError> {
        if !keep.rows && !keep.dead_rows {
            let truncate = format!("TRUNCATE {}", self.tables().await?.join(", "));
            return self.watcher.batch_execute(&truncate).await.map_err(failed);
        }
        self.watcher.batch_execute(&self.sql(CLEAR_QUEUE)).await.map_err(failed)?;
        if !keep.dead_rows {
            let vacuum = self.sql("VACUUM task_engine.waiting_tasks, task_engine.claims");
            self.watcher.batch_execute(&vacuum).await.map_err(failed)?;
        }
        Ok(())
    }

    pub(super) async fn read(&self) -> Result<Reading, CliError> {
        let row = self.watcher.query_typed_one(READING, &[]).await.map_err(failed)?;
        Ok(Reading {
            cpu: self.server.and_then(Server::cpu),
            wal_bytes: row.get(0),
            writes: row.get(1),
        })
    }

    pub(super) async fn strangers(&self, within: Duration) -> Result<Strangers, CliError> {
        let (schema, secs) = (self.schema(), within.as_secs_f64());
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&schema, Type::TEXT), (&secs, Type::FLOAT8)];
        let row = self.watcher.query_typed_one(STRANGERS, &parameters).await.map_err(failed)?;
        Ok(Strangers { on_server: row.get(0), in_database: row.get(1) })
    }

    pub(super) async fn dead_rows(&self) -> Result<i64, CliError> {
        self.wait_for_unregistration().await?;
        Ok(self.of_schema(DEAD_ROWS).await?[0].get(0))
    }

    pub(super) async fn commits(&self) -> Result<i64, CliError> {
        self.wait_for_unregistration().await?;
        let row = self.watcher.query_typed_one(COMMITS, &[]).await.map_err(failed)?;
        Ok(row.get(0))
    }

    /// Backends publish what they have counted at the latest when they end.
    /// Waiting is rolled back, because commits are what is counted.
    async fn wait_for_unregistration(&self) -> Result<(), CliError> {
        let deadline = Instant::now() + GOODBYE;
        let ours = i64::from(self.holder.initialized());
        self.watcher.batch_execute("BEGIN").await.map_err(failed)?;
        loop {
            let others: i64 = self.of_schema(CONNECTIONS).await?[0].get(0);
            if others <= ours || Instant::now() > deadline {
                return self.watcher.batch_execute("ROLLBACK").await.map_err(failed);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            // Within a transaction the list would stay what it was.
            self.watcher.batch_execute("SELECT pg_stat_clear_snapshot()").await.map_err(failed)?;
        }
    }

    /// Whatever function notifies calls one that does not instead, so that all
    /// else about creation stays as it is.
    pub(super) async fn silence(&self, silent: bool) -> Result<bool, CliError> {
        let mut noisy = self.noisy.lock().await;
        let schema = self.schema();
        if silent {
            let rows = self.of_schema(NOTIFYING_FUNCTIONS).await?;
            *noisy = rows.iter().map(|row| row.get(0)).collect();
            self.watcher.batch_execute(&self.sql(STAY_SILENT)).await.map_err(failed)?;
        }
        for function in noisy.iter() {
            let instead = format!("\"{schema}\".stay_silent(");
            let function =
                if silent { function.replace("pg_notify(", &instead) } else { function.clone() };
            self.watcher.batch_execute(&function).await.map_err(failed)?;
        }
        Ok(!noisy.is_empty())
    }

    pub(super) async fn remove(self) -> Result<(), CliError> {
        // What was interrupted may still be at work. A connection of its own for
        // the rest: an order to cancel may arrive when the next statement runs.
        let _ = self.watcher.cancel_token().cancel_query(NoTls).await;
        drop((self.watcher, self.holder));
        let drop = format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", self.schema);
        let dropped =
            async { connect(&self.config).await?.batch_execute(&drop).await.map_err(failed) };
        dropped
            .await
            .map_err(|why| CliError::Failure(format!("schema {} is left behind: {why}", self.schema)))
    }

    async fn tables(&self) -> Result<Vec<String>, CliError> {
        let rows = self.of_schema(TABLES).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// A question with the schema's name. Like all that the watcher asks it has no
    /// name of its own: a pooler would forget it.
    async fn of_schema(&self, question: &str) -> Result<Vec<Row>, CliError> {
        let asked = self.watcher.query_typed(question, &[(&self.schema(), Type::TEXT)]).await;
        asked.map_err(failed)
    }

    /// A statement for this schema.
    fn sql(&self, statement: &str) -> String {
        statement.replace("task_engine.", &format!("\"{}\".", self.schema))
    }
}

async fn connect(config: &Config) -> Result<Client, CliError> {
    let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
    tokio::spawn(connection);
    Ok(client)
}

#[allow(clippy::needless_pass_by_value)] // For `map_err`.
fn failed(error: task_engine::postgres::tokio_postgres::Error) -> CliError {
    let cause = std::error::Error::source(&error);
    let cause = cause.map_or_else(|| error.to_string(), ToString::to_string);
    CliError::Failure(format!("PostgreSQL: {cause}"))
}
