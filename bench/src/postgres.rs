//! A temporary schema in PostgreSQL, and a connection that reads server counters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use task_engine::Store;
use task_engine::postgres::tokio_postgres::config::SslMode;
use task_engine::postgres::tokio_postgres::types::{ToSql, Type};
use task_engine::postgres::tokio_postgres::{Client, Config, NoTls, Row};
use task_engine::postgres::{PgStore, Schema};
use tokio::sync::{Mutex, OnceCell};

use crate::database::{Counters, ExistingTasks, FlowOrder, Keep, OtherConnections};
use crate::error::BenchError;
use crate::proc::Server;

#[derive(Debug)]
pub(crate) struct PostgresDatabase {
    url: String,
    schema: Schema,
    config: Config,
    monitor: Client,
    version: String,
    /// `None` if the server runs on another machine, or is hidden from here.
    server: Option<Server>,
    /// Holds a snapshot open until it is dropped.
    snapshot: OnceCell<Client>,
    /// The original definitions of functions that notify.
    notifying: Mutex<Vec<String>>,
}

const FLOW_ORDER: &str = include_str!("../sql/flow_order.sql");
const FUTURE: &str = include_str!("../sql/future.sql");
const HISTORY: &str = include_str!("../sql/history.sql");
const SLEEPERS: &str = include_str!("../sql/sleepers.sql");
const UNSERVED: &str = include_str!("../sql/unserved.sql");

/// The backend is a process of this machine if both ends of the connection have
/// the same address.
const SERVER: &str = "SELECT current_setting('server_version'), pg_backend_pid(),
  inet_server_addr() IS NOT DISTINCT FROM inet_client_addr()";
/// Removes tasks that a measurement left waiting; inserted rows have other
/// priorities, or wait for days.
const CLEAR_QUEUE: &str = "DELETE FROM task_engine.waiting_tasks
WHERE priority = 0 AND due_at < now() + interval '1 day';
DELETE FROM task_engine.claims;
DELETE FROM task_engine.limits;
DELETE FROM task_engine.limited_targets;
DELETE FROM task_engine.limit_keys;
DELETE FROM task_engine.limit_starts;";
const COMMITS: &str = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
const CONNECTIONS: &str = "SELECT count(*) FROM pg_stat_activity
WHERE application_name = $1 AND pid <> pg_backend_pid()";
/// Includes rows that vacuum has removed since.
const DEAD_ROWS: &str = "SELECT coalesce(sum(n_tup_del + n_tup_upd), 0)::bigint
FROM pg_stat_user_tables WHERE schemaname = $1";
/// Like a report, a backup or a forgotten session.
const HOLD_SNAPSHOT: &str = "SET idle_in_transaction_session_timeout = 0;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT txid_current_snapshot();";
const NOTIFYING_FUNCTIONS: &str = r"SELECT pg_get_functiondef(f.oid)
FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace
WHERE n.nspname = $1 AND f.prokind = 'f' AND f.prosrc LIKE '%pg\_notify(%'";
const NO_NOTIFY: &str =
    "CREATE OR REPLACE FUNCTION task_engine.no_notify(channel text, payload text)
RETURNS void LANGUAGE sql AS $$ SELECT $$;";
/// Exact at once; the counters of pg_stat_database lag by seconds.
const COUNTERS: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8,
  txid_snapshot_xmax(txid_current_snapshot())";
const OTHER_CONNECTIONS: &str =
    "SELECT count(*), count(*) FILTER (WHERE datname = current_database())
FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name <> $1
  AND state_change > clock_timestamp() - $2::float8 * interval '1 second'";
/// Without the versions of the schema and of the limits, and the audit log, which rejects
/// deletes.
const TABLES: &str = "SELECT format('%I.%I', schemaname, tablename)
FROM pg_tables WHERE schemaname = $1 AND tablename NOT IN ('migrations', 'limits_version', 'audit')";

/// How long the server's side of a closed connection may take to go.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl PostgresDatabase {
    pub(crate) async fn connect(url: &str) -> Result<Self, BenchError> {
        let config: Result<Config, _> = url.parse();
        let config = config.ok().filter(|config| config.get_ssl_mode() != SslMode::Require);
        let Some(mut config) = config else {
            return Err(BenchError::Usage(
                "the connection that reads server counters cannot use TLS: remove sslmode from the URL".to_owned(),
            ));
        };
        let schema = format!("task_engine_bench_{}", std::process::id());
        config.application_name(&schema);
        let monitor = connect(&config).await?;
        let row = monitor.query_typed_one(SERVER, &[]).await?;
        let (version, backend, is_here): (String, i32, bool) = (row.get(0), row.get(1), row.get(2));
        let backend = u32::try_from(backend).ok().filter(|_| is_here);
        Ok(Self {
            // The last value counts, and replaces any name that the URL gives.
            url: format!(
                "{url}{}application_name={schema}",
                if url.contains('?') { '&' } else { '?' }
            ),
            schema: Schema::named(&schema)?,
            config,
            monitor,
            version,
            server: backend.and_then(Server::of_backend),
            snapshot: OnceCell::new(),
            notifying: Mutex::default(),
        })
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn schema(&self) -> String {
        self.schema.to_string()
    }

    pub(crate) fn version(&self) -> String {
        format!("PostgreSQL {}", self.version)
    }

    pub(crate) async fn store(&self) -> Result<Arc<dyn Store>, BenchError> {
        Ok(Arc::new(PgStore::connect_schema(&self.url, self.schema.clone()).await?))
    }

    pub(crate) async fn insert(&self, rows: ExistingTasks, count: u64) -> Result<(), BenchError> {
        let statement = match rows {
            ExistingTasks::History => HISTORY,
            ExistingTasks::Future => FUTURE,
            ExistingTasks::Unserved => UNSERVED,
            ExistingTasks::Sleepers => SLEEPERS,
        };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let count: [(&(dyn ToSql + Sync), Type); 1] = [(&count, Type::INT8)];
        self.monitor.execute_typed(&self.sql(statement), &count).await?;
        Ok(())
    }

    /// Vacuums, so that autovacuum does not start in the middle of a measurement.
    pub(crate) async fn settle(&self, hold_snapshot: bool) -> Result<(), BenchError> {
        let vacuum = format!("VACUUM (ANALYZE) {}", self.tables().await?.join(", "));
        self.monitor.batch_execute(&vacuum).await?;
        // Pages of inserted rows are written now, not during a measurement. Not every user
        // may do this.
        let _ = self.monitor.batch_execute("CHECKPOINT").await;
        if hold_snapshot {
            let snapshot = connect(&self.config).await?;
            snapshot.batch_execute(HOLD_SNAPSHOT).await?;
            let _ = self.snapshot.set(snapshot);
        }
        Ok(())
    }

    pub(crate) async fn clear(&self, keep: Keep) -> Result<(), BenchError> {
        if !keep.rows && !keep.dead_rows {
            let truncate = format!("TRUNCATE {}", self.tables().await?.join(", "));
            self.monitor.batch_execute(&truncate).await?;
            return Ok(());
        }
        self.monitor.batch_execute(&self.sql(CLEAR_QUEUE)).await?;
        if !keep.dead_rows {
            let vacuum = self.sql("VACUUM task_engine.waiting_tasks, task_engine.claims");
            self.monitor.batch_execute(&vacuum).await?;
        }
        Ok(())
    }

    pub(crate) async fn counters(&self) -> Result<Counters, BenchError> {
        let row = self.monitor.query_typed_one(COUNTERS, &[]).await?;
        Ok(Counters {
            cpu: self.server.and_then(Server::cpu),
            wal_bytes: row.get(0),
            writes: row.get(1),
        })
    }

    pub(crate) async fn other_connections(
        &self,
        within: Duration,
    ) -> Result<OtherConnections, BenchError> {
        let (schema, secs) = (self.schema(), within.as_secs_f64());
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&schema, Type::TEXT), (&secs, Type::FLOAT8)];
        let row = self.monitor.query_typed_one(OTHER_CONNECTIONS, &parameters).await?;
        Ok(OtherConnections { on_server: row.get(0), in_database: row.get(1) })
    }

    pub(crate) async fn flow_order(&self) -> Result<FlowOrder, BenchError> {
        let row = self.monitor.query_typed_one(&self.sql(FLOW_ORDER), &[]).await?;
        Ok(FlowOrder { succeeded: row.get(0), dependencies: row.get(1), not_respected: row.get(2) })
    }

    pub(crate) async fn dead_rows(&self) -> Result<i64, BenchError> {
        self.wait_for_disconnects().await?;
        Ok(self.of_schema(DEAD_ROWS).await?[0].get(0))
    }

    pub(crate) async fn commits(&self) -> Result<i64, BenchError> {
        self.wait_for_disconnects().await?;
        let row = self.monitor.query_typed_one(COMMITS, &[]).await?;
        Ok(row.get(0))
    }

    /// Backends publish their counts when they exit. The queries are rolled back,
    /// because commits are counted.
    async fn wait_for_disconnects(&self) -> Result<(), BenchError> {
        let deadline = Instant::now() + DISCONNECT_TIMEOUT;
        let ours = i64::from(self.snapshot.initialized());
        self.monitor.batch_execute("BEGIN").await?;
        loop {
            let others: i64 = self.of_schema(CONNECTIONS).await?[0].get(0);
            if others <= ours || Instant::now() > deadline {
                self.monitor.batch_execute("ROLLBACK").await?;
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            // Within a transaction the list is cached.
            self.monitor.batch_execute("SELECT pg_stat_clear_snapshot()").await?;
        }
    }

    /// Replaces `pg_notify` in functions by one that does nothing; the rest of
    /// creation stays the same.
    pub(crate) async fn mute_notifications(&self, mute: bool) -> Result<bool, BenchError> {
        let mut notifying = self.notifying.lock().await;
        let schema = self.schema();
        if mute {
            let rows = self.of_schema(NOTIFYING_FUNCTIONS).await?;
            *notifying = rows.iter().map(|row| row.get(0)).collect();
            self.monitor.batch_execute(&self.sql(NO_NOTIFY)).await?;
        }
        for function in notifying.iter() {
            let replacement = format!("\"{schema}\".no_notify(");
            let function =
                if mute { function.replace("pg_notify(", &replacement) } else { function.clone() };
            self.monitor.batch_execute(&function).await?;
        }
        Ok(!notifying.is_empty())
    }

    pub(crate) async fn remove(self) -> Result<(), BenchError> {
        // An interrupted statement may still run. A new connection drops the schema:
        // the cancel request may arrive late and hit the next statement.
        let _ = self.monitor.cancel_token().cancel_query(NoTls).await;
        drop((self.monitor, self.snapshot));
        let drop = format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", self.schema);
        let dropped =
            async { Ok::<_, BenchError>(connect(&self.config).await?.batch_execute(&drop).await?) };
        dropped.await.map_err(|error| {
            BenchError::Failure(format!("schema {} is left behind: {error}", self.schema))
        })
    }

    async fn tables(&self) -> Result<Vec<String>, BenchError> {
        let rows = self.of_schema(TABLES).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// A query with the schema's name. Unnamed, as all of the monitor: poolers
    /// lose prepared statements.
    async fn of_schema(&self, query: &str) -> Result<Vec<Row>, BenchError> {
        let rows = self.monitor.query_typed(query, &[(&self.schema(), Type::TEXT)]).await;
        Ok(rows?)
    }

    /// A statement for this schema.
    fn sql(&self, statement: &str) -> String {
        statement.replace("task_engine.", &format!("\"{}\".", self.schema))
    }
}

async fn connect(config: &Config) -> Result<Client, BenchError> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
