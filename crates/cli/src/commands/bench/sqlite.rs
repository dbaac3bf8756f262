//! A throw-away file beside the database.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use task_engine::Store;
use task_engine::sqlite::SqliteStore;
use task_engine::sqlite::rusqlite::{self, Connection};

use super::arena::{Keep, Rows};
use crate::error::CliError;

/// The file is removed when this is dropped, whatever happens.
#[derive(Debug)]
pub(super) struct FileArena {
    path: PathBuf,
    /// Keeps a snapshot open for as long as it lives.
    holder: Mutex<Option<Connection>>,
}

const CLEAR_ALL: &str = include_str!("sql/sqlite_clear_all.sql");
const CLEAR_QUEUE: &str = include_str!("sql/sqlite_clear_queue.sql");
const CROWD: &str = include_str!("sql/sqlite_crowd.sql");
const FUTURE: &str = include_str!("sql/sqlite_future.sql");
const HISTORY: &str = include_str!("sql/sqlite_history.sql");
const HOLD_SNAPSHOT: &str = include_str!("sql/sqlite_hold_snapshot.sql");

/// Longer than any engine keeps the file to itself.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

impl FileArena {
    pub(super) fn beside(database: &Path) -> Result<Self, CliError> {
        let name = format!("task-engine-bench-{}.db", std::process::id());
        let path = database.with_file_name(name);
        if path.exists() {
            return Err(CliError::Conflict(format!(
                "{} is there already; remove it if no bench is running",
                path.display()
            )));
        }
        Ok(Self { path, holder: Mutex::new(None) })
    }

    pub(super) fn url(&self) -> String {
        format!("sqlite:{}", self.path.display())
    }

    pub(super) fn database(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }

    pub(super) fn store(&self) -> Result<Arc<dyn Store>, CliError> {
        Ok(Arc::new(SqliteStore::open(&self.path)?))
    }

    pub(super) async fn fill(&self, what: Rows, count: u64) -> Result<(), CliError> {
        let statements = match what {
            Rows::Past => HISTORY,
            Rows::Future => FUTURE,
            Rows::Crowd => CROWD,
        };
        self.execute(statements.replace(":count", &count.to_string())).await
    }

    pub(super) async fn settle(&self, hold_snapshot: bool) -> Result<(), CliError> {
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)".to_owned()).await?;
        if hold_snapshot {
            let holder = Connection::open(&self.path).map_err(failed)?;
            holder.execute_batch(HOLD_SNAPSHOT).map_err(failed)?;
            *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = Some(holder);
        }
        Ok(())
    }

    pub(super) async fn tidy(&self, keep: Keep) -> Result<(), CliError> {
        let clear = if keep.rows || keep.dead_rows { CLEAR_QUEUE } else { CLEAR_ALL };
        self.execute(clear.to_owned()).await
    }

    pub(super) fn remove(self) -> Result<(), CliError> {
        self.remove_files().map_err(|error| {
            CliError::Failure(format!("{} is left behind: {error}", self.path.display()))
        })
    }

    /// On a thread that may be blocked for as long as it takes.
    async fn execute(&self, statements: String) -> Result<(), CliError> {
        let path = self.path.clone();
        let work = move || {
            let connection = Connection::open(path)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.execute_batch(&statements)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => done.map_err(failed),
            Err(broken) => Err(CliError::Failure(format!("the database cannot be filled: {broken}"))),
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

impl Drop for FileArena {
    fn drop(&mut self) {
        // Whoever wants to know whether it worked has called `remove`.
        let _ = self.remove_files();
    }
}

#[allow(clippy::needless_pass_by_value)] // For `map_err`.
fn failed(error: rusqlite::Error) -> CliError {
    CliError::Failure(format!("SQLite: {error}"))
}
