//! Who holds up whom: sessions of the server with open transactions and locks.

use task_engine_model::StoreError;
use task_engine_model::lock::BlockingSession;
use tokio_postgres::Row;

use crate::error::store_error;
use crate::session::Ask as _;
use crate::store::{Inner, from_micros};

const TRANSACTIONS: &str = include_str!("../sql/checks/transactions.sql");

/// A transaction of another session.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenTransaction {
    pub(crate) session: BlockingSession,
    /// Whether vacuum must keep rows for it.
    pub(crate) holds_rows: bool,
}

impl Inner {
    /// Reads the catalog only, on a connection that waits behind no other work.
    pub(crate) async fn open_transactions(&self) -> Result<Vec<OpenTransaction>, StoreError> {
        let client = self.connections.lifeline().await?;
        let rows = client.query(TRANSACTIONS, &[&self.schema.to_string()]).await;
        let rows = rows.map_err(|e| store_error(&e))?;
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
