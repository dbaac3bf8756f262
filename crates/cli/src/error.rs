//! What can go wrong, and the exit code that says so.

use std::io;
use std::process::ExitCode;

use task_engine::{EngineError, StoreError};

use crate::console::quoted;

/// Why a command did not do what it was asked to. The codes are part of the
/// interface: scripts depend on them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// It was tried, and failed.
    #[error("{0}")]
    Failure(String),
    /// What was typed or configured cannot be meant. Nothing was changed.
    #[error("{0}")]
    Usage(String),
    /// What was named does not exist.
    #[error("{0}")]
    NotFound(String),
    /// What was named is not in a state for this.
    #[error("{0}")]
    Conflict(String),
    /// A check found something wrong.
    #[error("{0}")]
    Unhealthy(String),
    /// Some of it was done, and some was not.
    #[error("{0}")]
    Partial(String),
    /// The engine stopped, and not all of its tasks had ended.
    #[error("{0}")]
    Released(String),
    /// It took longer than somebody wanted to wait.
    #[error("{0}")]
    TimedOut(String),
    /// A task that was waited for did not do its work.
    #[error("{0}")]
    AwaitedFailed(String),
    /// Nobody reads the output any more.
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
                "{}. Give this one another name with --instance, or none: then it gets one that is free",
                error.without_advice()
            )),
            EngineError::LeftTasks { ref holder, .. } => Self::Conflict(format!(
                "{}\nRecover them with `task-engine recover {}`, or let engines do it: start without --recovery manual",
                error.without_advice(),
                quoted(&holder.name)
            )),
            _ => Self::Failure(error.to_string()),
        }
    }
}

/// For writing results: all other input and output has its own words.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::Failure(format!("the output cannot be written: {error}"))
        }
    }
}
