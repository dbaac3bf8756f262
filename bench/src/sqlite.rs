//! A temporary file beside the database.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use task_engine::Store;
use task_engine::sqlite::SqliteStore;
use task_engine::sqlite::rusqlite::{self, Connection};

use crate::database::{ExistingTasks, FlowOrder, Keep};
use crate::error::BenchError;

/// The file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SqliteDatabase {
    path: PathBuf,
    /// Holds a snapshot open until it is dropped.
    snapshot: Mutex<Option<Connection>>,
}

/// The statement for PostgreSQL, with the names of the tables here.
const FLOW_ORDER: &str = include_str!("../sql/flow_order.sql");
const CLEAR_ALL: &str = include_str!("../sql/sqlite_clear_all.sql");
const CLEAR_QUEUE: &str = include_str!("../sql/sqlite_clear_queue.sql");
const SLEEPERS: &str = include_str!("../sql/sqlite_sleepers.sql");
const UNSERVED: &str = include_str!("../sql/sqlite_unserved.sql");
const FUTURE: &str = include_str!("../sql/sqlite_future.sql");
const HISTORY: &str = include_str!("../sql/sqlite_history.sql");
/// A reader that keeps the log from being written back beyond what it sees.
const HOLD_SNAPSHOT: &str = "BEGIN; SELECT count(*) FROM sqlite_schema;";

/// Longer than any engine holds the write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

impl SqliteDatabase {
    pub(crate) fn beside(database: &Path) -> Result<Self, BenchError> {
        let name = format!("task-engine-bench-{}.db", std::process::id());
        let path = database.with_file_name(name);
        if path.exists() {
            return Err(BenchError::Failure(format!(
                "{} exists already: remove it if no benchmark is running",
                path.display()
            )));
        }
        Ok(Self { path, snapshot: Mutex::new(None) })
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path.display())
    }

    pub(crate) fn version(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }

    pub(crate) fn store(&self) -> Result<Arc<dyn Store>, BenchError> {
        Ok(Arc::new(SqliteStore::open(&self.path)?))
    }

    pub(crate) async fn insert(&self, rows: ExistingTasks, count: u64) -> Result<(), BenchError> {
        let statements = match rows {
            ExistingTasks::History => HISTORY,
            ExistingTasks::Future => FUTURE,
            ExistingTasks::Unserved => UNSERVED,
            ExistingTasks::Sleepers => SLEEPERS,
        };
        self.execute(statements.replace(":count", &count.to_string())).await
    }

    pub(crate) async fn settle(&self, hold_snapshot: bool) -> Result<(), BenchError> {
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)".to_owned()).await?;
        if hold_snapshot {
            let snapshot = Connection::open(&self.path)?;
            snapshot.execute_batch(HOLD_SNAPSHOT)?;
            *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
        }
        Ok(())
    }

    pub(crate) async fn clear(&self, keep: Keep) -> Result<(), BenchError> {
        let clear = if keep.rows || keep.dead_rows { CLEAR_QUEUE } else { CLEAR_ALL };
        self.execute(clear.to_owned()).await
    }

    pub(crate) async fn flow_order(&self) -> Result<FlowOrder, BenchError> {
        let statement = FLOW_ORDER.replace("task_engine.", "task_engine_");
        self.with_connection(move |connection| {
            connection.query_row(&statement, [], |row| {
                Ok(FlowOrder {
                    succeeded: row.get(0)?,
                    dependencies: row.get(1)?,
                    not_respected: row.get(2)?,
                })
            })
        })
        .await
    }

    pub(crate) fn remove(self) -> Result<(), BenchError> {
        self.remove_files().map_err(|error| {
            BenchError::Failure(format!("{} is left behind: {error}", self.path.display()))
        })
    }

    async fn execute(&self, statements: String) -> Result<(), BenchError> {
        self.with_connection(move |connection| connection.execute_batch(&statements)).await
    }

    /// On a thread that may block.
    async fn with_connection<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, BenchError> {
        let path = self.path.clone();
        let work = move || {
            let connection = Connection::open(path)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            work(&connection)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => Ok(done?),
            Err(error) => Err(BenchError::Failure(format!("cannot use the database: {error}"))),
        }
    }

    fn remove_files(&self) -> std::io::Result<()> {
        for ending in ["", "-wal", "-shm"] {
            let mut path = self.path.clone().into_os_string();
            path.push(ending);
            match std::fs::remove_file(PathBuf::from(path)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for SqliteDatabase {
    fn drop(&mut self) {
        // Errors are reported by `remove`.
        let _ = self.remove_files();
    }
}
