//! Blocking sessions: open transactions and locks of the server.

use std::time::Duration;

use task_engine_store::error::StoreError;
use task_engine_store::lock::{BlockingSession, blocked_by, suspects};
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::executor::Executor as _;
use crate::store::{StoreInner, from_micros};

const TRANSACTIONS: &str = statement(include_str!("../sql/operators/checks.sql"), "transactions");

/// A statement that has waited for a lock in vain is not held up for much longer.
const NAMING_TIMEOUT: Duration = Duration::from_secs(2);

/// A transaction of another session.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenTransaction {
    pub(crate) session: BlockingSession,
    /// Whether vacuum must keep rows for it.
    pub(crate) holds_rows: bool,
}

impl StoreInner {
    /// Reads the catalog only, on a connection that waits behind no other work.
    pub(crate) async fn open_transactions(&self) -> Result<Vec<OpenTransaction>, StoreError> {
        let client = self.connections.lifeline().await?;
        let rows = client.query(TRANSACTIONS, &[&self.schema.to_string()]).await?;
        let open = |row: &Row| OpenTransaction {
            session: blocking_session(row),
            holds_rows: row.get("holds_rows"),
        };
        Ok(rows.iter().map(open).collect())
    }

    pub(crate) async fn blocking_sessions(&self) -> Result<Vec<BlockingSession>, StoreError> {
        let open = self.open_transactions().await?;
        Ok(open.into_iter().map(|transaction| transaction.session).collect())
    }

    /// The error of a lock timeout, with the session that holds the lock, if it can be seen.
    pub(crate) async fn name_blockers(&self, message: &str) -> StoreError {
        let sessions = tokio::time::timeout(NAMING_TIMEOUT, self.blocking_sessions()).await;
        let sessions = sessions.ok().and_then(Result::ok).unwrap_or_default();
        let message = message.strip_suffix(&unnamed_blocker()).unwrap_or(message);
        StoreError::Locked(format!("{message}; {}", blocked_by(&suspects(sessions))))
    }
}

/// The server's error code for a lock timeout.
#[cfg(feature = "sqlx")]
pub(crate) const LOCK_TIMEOUT: &str = "55P03";

/// How the message of a lock timeout ends where the session cannot be named.
pub(crate) fn unnamed_blocker() -> String {
    format!("; {}", blocked_by(&[]))
}

pub(crate) fn blocking_session(row: &Row) -> BlockingSession {
    BlockingSession {
        pid: row.get("pid"),
        user: row.get("username"),
        application: row.get("application"),
        state: row.get("state"),
        since: row.get("since"),
        open_for: row.get::<_, Option<i64>>("age_us").map(from_micros),
        query_since: row.get("query_since"),
        locks: row.get("locks"),
        waiting: row.get("waiting"),
    }
}
