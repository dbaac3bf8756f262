//! Logins to the dashboard.

use std::time::Duration;

use rusqlite::params;
use task_engine_store::login::{DatabaseKey, LoginId};

use crate::desk::Turn;
use crate::fault::Fault;

pub(crate) fn key(turn: &Turn<'_>) -> Result<DatabaseKey, Fault> {
    let mut statement = turn.db.prepare_cached(sql!("database_key"))?;
    Ok(DatabaseKey(statement.query_row([], |row| row.get(0))?))
}

pub(crate) fn end(turn: &Turn<'_>, login: LoginId, lasts: Duration) -> Result<(), Fault> {
    turn.db.prepare_cached(sql!("login_forget"))?.execute([turn.now()])?;
    let mut statement = turn.db.prepare_cached(sql!("login_end"))?;
    statement.execute(params![login.0, turn.moment.after(lasts)])?;
    Ok(())
}

pub(crate) fn is_ended(turn: &Turn<'_>, login: LoginId) -> Result<bool, Fault> {
    let mut statement = turn.db.prepare_cached(sql!("login_is_ended"))?;
    Ok(statement.query_row(params![login.0], |row| row.get(0))?)
}
