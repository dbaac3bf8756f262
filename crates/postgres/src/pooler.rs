//! Detects a transaction pooler. Behind one, no state lasts on a connection: no setting,
//! no statement name, no LISTEN.

use task_engine_store::error::StoreError;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::error::store_error;

/// A busy pooler may return the same connections by chance, but not this often.
const ROUNDS: u32 = 4;

/// Uses two connections: without a pooler, each always has the same server process.
pub(crate) async fn is_between(first: &Client, second: &Client) -> Result<bool, StoreError> {
    let (of_first, of_second) = (process(first).await?, process(second).await?);
    let mut kept = of_first != of_second;
    for _ in 0..ROUNDS {
        // Not in alternation: a pooler with two connections in rotation would not be
        // detected.
        kept = kept
            && process(first).await? == of_first
            && process(first).await? == of_first
            && process(second).await? == of_second;
    }
    if !kept {
        // A pooler that gives each statement another connection refuses this.
        second.batch_execute("BEGIN").await.map_err(|e| store_error(&e))?;
        second.batch_execute("ROLLBACK").await.map_err(|e| store_error(&e))?;
    }
    Ok(!kept)
}

/// Which process of the server answers.
async fn process(client: &Client) -> Result<Option<String>, StoreError> {
    let messages = client.simple_query("SELECT pg_backend_pid()").await;
    let id = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    Ok(messages.map_err(|e| store_error(&e))?.iter().find_map(id))
}

/// The message about a pooler that was not detected at the start.
pub(crate) const REASON: &str = "a pooler in between gives each transaction another connection now, and forgets prepared statements; from here on they are sent without names";

/// Whether the server does not know a statement name, or knows another statement by it.
/// Only a transaction pooler causes that.
pub(crate) fn is_unknown_statement(code: &SqlState) -> bool {
    *code == SqlState::INVALID_SQL_STATEMENT_NAME || *code == SqlState::DUPLICATE_PSTATEMENT
}
