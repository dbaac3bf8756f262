//! Is there a pooler in between that gives each transaction another connection?
//! Then nothing lasts on a connection: no setting, no name, no LISTEN.

use std::time::Duration;

use task_engine_model::StoreError;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::connection::Connector;
use crate::error::store_error;

/// One try may meet the same connection by chance.
const TRIES: u32 = 3;
/// A pooler with one connection has the first client wait for the second.
const PATIENCE: Duration = Duration::from_secs(1);

/// Looks for one, with two connections of their own. Without a second one it
/// cannot be found out, and counts as none.
pub(crate) async fn is_between(connector: &Connector) -> Result<bool, StoreError> {
    let first = connector.client().await?;
    let Ok(second) = connector.client().await else {
        return Ok(false);
    };
    let mut waited = 0;
    for _ in 0..TRIES {
        match look(&first, &second).await? {
            Look::Kept => {}
            Look::Waited => waited += 1,
            Look::Lost => return Ok(true),
        }
    }
    // A server that is slow once is not a pooler.
    Ok(waited == TRIES)
}

enum Look {
    Kept,
    Lost,
    /// For the other's transaction, which locks nothing.
    Waited,
}

/// The first sets something; the second takes the server's connection away from
/// it, if it can be taken; the first looks for what it has set. Nobody else ever
/// reads it.
async fn look(first: &Client, second: &Client) -> Result<Look, StoreError> {
    let mark = format!("{:016x}", fastrand::u64(..));
    let set = format!("SET task_engine.mark = '{mark}'");
    first.batch_execute(&set).await.map_err(|e| store_error(&e))?;
    // A pooler that gives each statement another connection says so here.
    second.batch_execute("BEGIN").await.map_err(|e| store_error(&e))?;
    let look = first.simple_query("SELECT current_setting('task_engine.mark', true)");
    let found = tokio::time::timeout(PATIENCE, look).await;
    let _ = second.batch_execute("ROLLBACK").await;
    let is_there = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0) == Some(&*mark),
        _ => false,
    };
    Ok(match found {
        Ok(Ok(messages)) if messages.iter().any(is_there) => Look::Kept,
        Ok(Ok(_)) => Look::Lost,
        Ok(Err(error)) => return Err(store_error(&error)),
        Err(_) => Look::Waited,
    })
}

/// What to say of a pooler that was not there, or not so, before.
pub(crate) const REASON: &str = "a pooler in between has begun to give each transaction another connection, and forgets prepared statements; restart this program, so that it sends them without names";

/// Whether the server knows a statement by its name no longer, or another one:
/// nothing but such a pooler does that.
pub(crate) fn forgot_a_statement(code: &SqlState) -> bool {
    *code == SqlState::INVALID_SQL_STATEMENT_NAME || *code == SqlState::DUPLICATE_PSTATEMENT
}
