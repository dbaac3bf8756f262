//! The contract of every store, split by user: [engines](EngineStore), [durable
//! tasks](DurableStore), [limits](LimitStore), [flows](FlowStore), [readers](ReadStore) and
//! [operators](OperatorStore).
//!
//! It is small, batch-first, and decides nothing.
//!
//! Each method is one atomic step. *Committed when it returns* is part of the contract, and
//! so is *safe to repeat*: an engine that has lost the answer sends the same call again.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::error::StoreError;

mod durable;
mod engine;
mod flows;
mod limits;
mod operators;
mod readers;

pub use durable::DurableStore;
pub use engine::{EngineStore, HeartbeatReply, WakeUp};
pub use flows::FlowStore;
pub use limits::LimitStore;
pub use operators::{CancelReport, OperatorStore, RetryReport};
pub use readers::ReadStore;

/// The type that the methods of a store return.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A database with tasks: PostgreSQL (`PgStore`), SQLite (`SqliteStore`), or another
/// implementation of the contract.
///
/// An application passes it to its engine and its client. It may also read, for instance
/// [one task](ReadStore::task), [many](ReadStore::tasks) or
/// [engines](ReadStore::instances).
///
/// The six traits may get methods: see
/// [Versions](https://github.com/task-engine/task-engine/blob/main/docs/versions.md).
pub trait Store:
    EngineStore + DurableStore + LimitStore + FlowStore + ReadStore + OperatorStore
{
}

impl<S> Store for S where
    S: EngineStore + DurableStore + LimitStore + FlowStore + ReadStore + OperatorStore + ?Sized
{
}

/// The methods that every user of a store needs: its location, its schema and its end.
pub trait StoreBase: fmt::Debug + Send + Sync + 'static {
    /// Returns where this is, without secrets: for logs and messages.
    fn location(&self) -> String;

    /// Creates or upgrades the schema.
    ///
    /// Returns the applied migrations.
    fn migrate(&self) -> StoreFuture<'_, Vec<String>>;

    /// Returns the version of the schema, and the one this program needs.
    fn schema_version(&self) -> StoreFuture<'_, SchemaVersion>;

    /// Returns the schema that the tables are in, or the prefix of their names: for statements in a
    /// transaction of the application.
    fn schema_name(&self) -> &str {
        "task_engine"
    }

    /// Closes idle connections in good order; the store is not used after that.
    ///
    /// Programs that are about to end call it, so that a server does not log broken connections.
    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// The version of the schema, and of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaVersion {
    /// The version in the database.
    ///
    /// `None`: there is no schema.
    pub applied: Option<i64>,
    /// The newest that this program knows.
    pub known: i64,
}

impl SchemaVersion {
    /// Checks whether this program can use the schema.
    ///
    /// It can use newer ones: migrations remove nothing that the version before needs, so that an
    /// engine can restart in the middle of an upgrade.
    pub fn check(self) -> Result<(), StoreError> {
        let known = self.known;
        match self.applied {
            Some(applied) if applied >= known => Ok(()),
            Some(applied) => Err(StoreError::Version(format!(
                "the schema has version {applied}, and this program needs version {known}; run `task-engine migrate`"
            ))),
            None => Err(StoreError::Version(
                "the schema of Task Engine does not exist; run `task-engine migrate`".to_owned(),
            )),
        }
    }
}
