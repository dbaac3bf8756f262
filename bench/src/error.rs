//! Errors of the benchmark and their exit codes.

use std::process::ExitCode;

use task_engine::postgres::tokio_postgres;
use task_engine::sqlite::rusqlite;
use task_engine::{EngineError, StoreError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The measurement failed.
    #[error("{0}")]
    Failure(String),
    /// The options are invalid; nothing was measured.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("PostgreSQL: {}", cause(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl BenchError {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(if matches!(self, Self::Usage(_)) { 2 } else { 1 })
    }
}

fn cause(error: &tokio_postgres::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
