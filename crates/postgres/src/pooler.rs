//! A pooler that gives each transaction another connection, and does not carry
//! prepared statements over, is refused: a name that one program has prepared
//! could mean another program's statement there.

use std::time::Duration;

use deadpool_postgres::Object;
use task_engine_model::StoreError;
use tokio_postgres::error::SqlState;

use crate::connection::Connections;

/// One try may meet the same connection by chance.
const TRIES: u32 = 3;
/// With one connection in the pool, the first client waits for the second.
const PATIENCE: Duration = Duration::from_secs(1);

/// Fails if statements that were prepared are not there later. What cannot be
/// found out is no reason to fail.
pub(crate) async fn check(connections: &Connections) -> Result<(), StoreError> {
    let (Ok(first), Ok(second)) = (connections.work().await, connections.work().await) else {
        return Ok(());
    };
    let mut kept = true;
    for _ in 0..TRIES {
        kept = kept && keeps_statements(&first, &second).await;
    }
    // One was enough for whoever asked to be connected.
    drop(Object::take(second));
    if kept {
        return Ok(());
    }
    Err(StoreError::Refused(format!("{}: {REASON}", connections.connector.place())))
}

/// What to say, and what to do about it.
pub(crate) const REASON: &str = "there is a pooler in between that forgets prepared statements (pgbouncer in transaction mode, older than 1.21 or with max_prepared_statements = 0); connect to PostgreSQL itself, or set pool_mode = session";

/// Whether the server knows a statement by its name no longer, or another one:
/// nothing but such a pooler does that.
pub(crate) fn forgot_a_statement(code: &SqlState) -> bool {
    *code == SqlState::INVALID_SQL_STATEMENT_NAME || *code == SqlState::DUPLICATE_PSTATEMENT
}

/// The first prepares a statement; the second takes the server's connection
/// away from it, if it can be taken; the first uses the statement.
async fn keeps_statements(first: &Object, second: &Object) -> bool {
    // Others may prepare one of the same name at the same moment.
    let mark = fastrand::u64(..).to_string();
    let Ok(statement) = first.prepare(&format!("SELECT '{mark}'::text")).await else {
        return true;
    };
    if second.batch_execute("BEGIN").await.is_err() {
        return true;
    }
    let used = tokio::time::timeout(PATIENCE, first.query_one(&statement, &[])).await;
    let _ = second.batch_execute("ROLLBACK").await;
    match used {
        Ok(Ok(row)) => row.try_get::<_, String>(0).is_ok_and(|text| text == mark),
        // The server says that it knows no such statement, or another one.
        Ok(Err(error)) => error.as_db_error().is_none(),
        Err(_) => true,
    }
}
