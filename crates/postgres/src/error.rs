//! Errors of PostgreSQL as errors of a store: what the caller can do.

use std::error::Error as _;
use std::ops::Deref;

use deadpool_postgres::PoolError;
use task_engine_store::error::StoreError;
use tokio_postgres::error::SqlState;

use crate::locks::unnamed_blocker;
use crate::pooler;

/// An error of the driver, which `?` turns into what the caller can do.
#[derive(Debug)]
pub(crate) struct SqlError(tokio_postgres::Error);

impl Deref for SqlError {
    type Target = tokio_postgres::Error;

    fn deref(&self) -> &tokio_postgres::Error {
        &self.0
    }
}

impl From<tokio_postgres::Error> for SqlError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self(error)
    }
}

impl From<SqlError> for StoreError {
    fn from(error: SqlError) -> Self {
        store_error(&error)
    }
}

pub(crate) fn store_error(error: &tokio_postgres::Error) -> StoreError {
    let Some(db) = error.as_db_error() else {
        // Values that do not fit a statement are a mistake in this program.
        let text = error.to_string();
        if text.contains("serializing") {
            return StoreError::InvalidData(format!("{text}: {:?}", error.source()));
        }
        // No answer from the server: the socket, the timeout, or the protocol.
        return match error.source() {
            Some(cause) => StoreError::Unavailable(format!("{error}: {cause}")),
            None => StoreError::Unavailable(error.to_string()),
        };
    };
    let message = error_text(error);
    let code = db.code();
    if *code == SqlState::UNDEFINED_TABLE
        || *code == SqlState::UNDEFINED_FUNCTION
        || *code == SqlState::INVALID_SCHEMA_NAME
        || *code == SqlState::UNDEFINED_OBJECT
    {
        return StoreError::Version(format!(
            "the schema of Task Engine does not exist ({message}); run `task-engine migrate`"
        ));
    }
    if pooler::is_unknown_statement(code) {
        return StoreError::Unavailable(format!("{}: {message}", pooler::REASON));
    }
    if *code == SqlState::LOCK_NOT_AVAILABLE {
        return StoreError::Locked(format!("PostgreSQL: {message}{}", unnamed_blocker()));
    }
    if is_temporary(code.code()) {
        StoreError::Unavailable(format!("PostgreSQL: {message}"))
    } else if is_invalid_data(code.code()) {
        StoreError::InvalidData(format!(
            "PostgreSQL cannot store this: {message} ({})",
            code.code()
        ))
    } else {
        StoreError::Refused(format!("PostgreSQL refused: {message} ({})", code.code()))
    }
}

/// The server's message; the error itself only says "db error".
pub(crate) fn error_text(error: &tokio_postgres::Error) -> String {
    let Some(db) = error.as_db_error() else {
        return error.to_string();
    };
    let more = [db.detail(), db.hint()].into_iter().flatten();
    more.fold(db.message().to_owned(), |words, more| format!("{words}; {more}"))
}

pub(crate) fn pool_error(error: &PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => store_error(error),
        PoolError::Timeout(_) => StoreError::Unavailable(
            "no connection to PostgreSQL within the time limit: unreachable, or all in use".into(),
        ),
        other => StoreError::Unavailable(other.to_string()),
    }
}

/// Whether the same statement may succeed later.
pub(crate) fn is_temporary(code: &str) -> bool {
    let class = &code[..2];
    // Connection trouble; out of resources; operator intervention (shutdown,
    // crash, statement timeout); the transaction must be repeated; system error.
    matches!(class, "08" | "53" | "57" | "40" | "58" | "XX")
        // A standby, or a server that is read-only during a failover; a lock timeout.
        || matches!(code, "25006" | "55P03")
}

/// Whether something in the statement's values is at fault: a value that does
/// not fit, a constraint, a limit of the program.
pub(crate) fn is_invalid_data(code: &str) -> bool {
    matches!(&code[..2], "22" | "23" | "54")
}

/// Whether a statement that reads tasks may have failed because of a row that cannot be read.
///
/// The server could not print a value within its limits, its memory or its time, or found it
/// damaged.
pub(crate) fn may_be_unreadable_row(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        matches!(&code.code()[..2], "22" | "54" | "XX")
            || *code == SqlState::QUERY_CANCELED
            || *code == SqlState::OUT_OF_MEMORY
    })
}

/// Whether the server's answer means that the transaction is to be run again.
pub(crate) fn must_repeat(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE
    })
}
