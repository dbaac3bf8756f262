//! The errors of stores.

use task_engine_core::attempt::AttemptId;

/// An error of a store; its variant says what the caller can do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached, or the connection was lost: try again later.
    #[error("{0}")]
    Unavailable(String),
    /// Another session holds a lock that this needs, and did not release it in time: try again
    /// later.
    ///
    /// The message names the session where it is known.
    #[error("{0}")]
    Locked(String),
    /// The store refused the call, and will refuse it again until something changes: read the
    /// message.
    #[error("{0}")]
    Refused(String),
    /// A value cannot be stored: change the value that the message names.
    #[error("{0}")]
    InvalidData(String),
    /// The tables do not exist or are of another version: call `migrate`, or use the matching
    /// program.
    #[error("{0}")]
    Version(String),
    /// This process must not use the store any longer: end it, and start it again.
    #[error("{0}")]
    MustReopen(String),
    /// A live engine has this name: stop it, or choose another name.
    #[error("an engine named {0:?} is registered")]
    NameTaken(String),
    /// The engine was declared lost, so its session has ended; engines register again by
    /// themselves.
    #[error("this engine was declared lost")]
    InstanceOver,
    /// The attempt has ended already, so it cannot complete its task: roll the transaction back.
    #[error(
        "{0} has ended, or its store is not in the database of this transaction; roll the transaction back"
    )]
    AttemptOver(AttemptId),
}

impl StoreError {
    /// Returns whether the same call may succeed later.
    ///
    /// ```
    /// # extern crate task_engine_store as task_engine;
    /// use task_engine::StoreError;
    ///
    /// assert!(StoreError::Unavailable("connection refused".into()).is_temporary());
    /// assert!(!StoreError::Refused("unknown time zone".into()).is_temporary());
    /// ```
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Locked(_))
    }
}
