//! The errors of commands, and their exit codes.

use std::io;
use std::process::ExitCode;

use task_engine::{EngineError, StoreError};
use task_engine_operations::OperationError;

use crate::console::quoted;
use crate::escape::escape;

/// Why a command failed. Scripts depend on the exit codes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The command failed.
    #[error("{0}")]
    Failure(String),
    /// Wrong arguments or settings. Nothing was changed.
    #[error("{0}")]
    Usage(String),
    /// A named task, engine or file does not exist.
    #[error("{0}")]
    NotFound(String),
    /// A task or engine is not in a state for this.
    #[error("{0}")]
    Conflict(String),
    /// A check found something wrong.
    #[error("{0}")]
    Unhealthy(String),
    /// Only a part was done.
    #[error("{0}")]
    Partial(String),
    /// The engine stopped before all of its tasks had ended.
    #[error("{0}")]
    Released(String),
    /// The time limit ended first.
    #[error("{0}")]
    TimedOut(String),
    /// An awaited task failed or was cancelled.
    #[error("{0}")]
    AwaitedFailed(String),
    /// The reader of the output has closed it.
    #[error("the output was closed")]
    OutputClosed,
}

impl CliError {
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::OutputClosed => 0,
            Self::Failure(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Conflict(_) => 4,
            Self::Unhealthy(_) => 6,
            Self::TimedOut(_) => 8,
            Self::Partial(_) => 5,
            Self::Released(_) => 9,
            Self::AwaitedFailed(_) => 10,
        })
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NameTaken(_) => Self::Conflict(error.to_string()),
            error => Self::Failure(error.to_string()),
        }
    }
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => error.into(),
            EngineError::Setting(_) => Self::Usage(error.to_string()),
            EngineError::NameTaken(_) => Self::Conflict(format!(
                "{}. Pass another name with --instance, or none to get a free one",
                error.without_advice()
            )),
            EngineError::LeftTasks { ref holder, .. } => Self::Conflict(format!(
                "{}\nRecover them with `task-engine recover {}`, or start without --recovery manual",
                error.without_advice(),
                quoted(&holder.name)
            )),
            _ => Self::Failure(error.to_string()),
        }
    }
}

/// For writing results; other input and output has its own messages.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::Failure(format!("cannot write the output: {error}"))
        }
    }
}

impl From<OperationError> for CliError {
    fn from(error: OperationError) -> Self {
        let text = escape(&error.to_string()).into_owned();
        match error {
            OperationError::Invalid { pointer, .. } if pointer.starts_with("/parameters") => {
                Self::Usage(format!("parameters: {text}"))
            }
            OperationError::Invalid { .. } => Self::Usage(text),
            OperationError::Parameters { .. } => Self::Usage(format!(
                "{text}\nNothing was changed. Pass --no-check to skip this check."
            )),
            OperationError::NotFound(_) => Self::NotFound(text),
            OperationError::Conflict(_) | OperationError::KeyReused(_) => Self::Conflict(text),
            OperationError::Store(error) => error.into(),
            OperationError::Partial { .. } => Self::Partial(text),
            _ => Self::Failure(text),
        }
    }
}
