//! Why a store could not do something.

use task_engine_core::attempt::AttemptId;

/// An error of a store, with what the caller can do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached, or went away: try again later.
    #[error("{0}")]
    Unavailable(String),
    /// Another session holds a lock that this needs, and did not release it in time: try again
    /// later.
    ///
    /// The message names the session where it is known.
    #[error("{0}")]
    Locked(String),
    /// The store refused, and will refuse again until something changes.
    #[error("{0}")]
    Refused(String),
    /// Something in what was sent cannot be stored; without it, the rest can.
    #[error("{0}")]
    InvalidData(String),
    /// The tables are not there, or of another version.
    #[error("{0}")]
    Version(String),
    /// This process must not use the store any longer: end it, and start it again.
    #[error("{0}")]
    MustReopen(String),
    /// Another session of this name has not ended.
    #[error("an engine named {0:?} is registered")]
    NameTaken(String),
    /// The session of this engine has ended: it was declared lost.
    #[error("this engine was declared lost")]
    InstanceOver,
    /// An attempt cannot complete its task, because it is no longer its own.
    #[error(
        "{0} has ended, or its store is not in the database of this transaction; roll the transaction back"
    )]
    AttemptOver(AttemptId),
}

impl StoreError {
    /// Returns whether the same call may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Locked(_))
    }
}
