//! Errors of jobs, and their messages.

use rusqlite::{Error, ErrorCode};
use task_engine_store::error::StoreError;

use crate::connection::LOG_GONE;

/// Why a job failed: the database, or a decision of the job itself.
#[derive(Debug)]
pub(crate) enum JobError {
    Sql(Error),
    Store(StoreError),
}

impl From<Error> for JobError {
    fn from(error: Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<serde_json::Error> for JobError {
    fn from(error: serde_json::Error) -> Self {
        Self::Store(StoreError::Refused(format!(
            "JSON that Task Engine keeps for itself does not have the expected form: {error}"
        )))
    }
}

impl JobError {
    pub(crate) fn explain(self, place: &str) -> StoreError {
        match self {
            Self::Sql(error) => explain(&error, place),
            Self::Store(error) => error,
        }
    }
}

/// Names the file, the problem and the remedy.
pub(crate) fn explain(error: &Error, place: &str) -> StoreError {
    use ErrorCode::*;
    let text = error.to_string();
    if text.contains("no such table: task_engine_") || text.contains("no such column") {
        return StoreError::Version(format!(
            "{place} does not have the tables of this version ({text}); run `task-engine migrate`"
        ));
    }
    if text.contains(LOG_GONE) {
        return StoreError::MustReopen(format!("{place}: {text}"));
    }
    match error.sqlite_error_code() {
        Some(DatabaseBusy | DatabaseLocked) => StoreError::Unavailable(format!(
            "{place} is locked by another connection ({text}); it is tried again, but find out who keeps a transaction open"
        )),
        Some(DiskFull) => {
            StoreError::Unavailable(format!("{place} cannot grow ({text}); make room on its disk"))
        }
        Some(SystemIoFailure | CannotOpen | FileLockingProtocolFailed) => StoreError::Unavailable(
            format!("{place} cannot be read or written ({text}); check its disk and its folder"),
        ),
        Some(OutOfMemory | OperationAborted | OperationInterrupted | SchemaChanged) => {
            StoreError::Unavailable(format!("{place}: {text}"))
        }
        Some(ReadOnly | PermissionDenied) => StoreError::Refused(format!(
            "{place} is read-only ({text}); let this user write the file and its folder"
        )),
        Some(NotADatabase) => StoreError::Refused(format!(
            "{place} is not an SQLite database ({text}); choose another file"
        )),
        Some(DatabaseCorrupt) => StoreError::Refused(format!(
            "{place} is damaged ({text}); restore it from a backup, or try `sqlite3 FILE .recover`"
        )),
        Some(ConstraintViolation | TooBig | TypeMismatch) => {
            StoreError::InvalidData(format!("{place} cannot store this: {text}"))
        }
        _ => StoreError::Refused(format!("{place} refused: {text}")),
    }
}
