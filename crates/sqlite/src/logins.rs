//! Logins to the dashboard.

use std::time::Duration;

use rusqlite::params;
use task_engine_store::login::{DatabaseKey, LoginId};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;

pub(crate) fn key(tx: &JobTransaction<'_>) -> Result<DatabaseKey, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("operators/logins", "database_key"))?;
    Ok(DatabaseKey(statement.query_row([], |row| row.get(0))?))
}

pub(crate) fn end(
    tx: &JobTransaction<'_>,
    login: LoginId,
    lasts: Duration,
) -> Result<(), JobError> {
    tx.db.prepare_cached(sql!("operators/logins", "login_delete_expired"))?.execute([tx.now()])?;
    let mut statement = tx.db.prepare_cached(sql!("operators/logins", "login_end"))?;
    statement.execute(params![login.0, tx.moment.after(lasts)])?;
    Ok(())
}

pub(crate) fn is_ended(tx: &JobTransaction<'_>, login: LoginId) -> Result<bool, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("operators/logins", "login_is_ended"))?;
    Ok(statement.query_row(params![login.0], |row| row.get(0))?)
}
