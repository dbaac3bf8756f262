//! What operators do: change tasks, queues and schedules, manage access, check, export and
//! import.

use std::time::Duration;

use task_engine_core::change::{DeleteReport, Edit, EditReport};
use task_engine_core::queue::QueuePause;
use task_engine_core::schedule::row::ScheduleWrite;
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_core::unique::Creation;

use super::{StoreBase, StoreFuture};
use crate::audit::NewAuditEntry;
use crate::check::{Check, CheckDepth, Inventory, Violation};
use crate::export::{ExportFile, ExportFilter, ExportSink, ImportIds, ImportOutcome};
use crate::login::{DatabaseKey, LoginId};
use crate::token::{NewToken, TokenHash, TokenRow};

/// The methods of a store for operators.
pub trait OperatorStore: StoreBase {
    /// Cancels tasks: at once if they wait, by request if they run.
    fn cancel<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<CancelReport>>;

    /// Requeues ended tasks, and lets waiting ones run at once; but not those that wait for tasks
    /// that they depend on.
    ///
    /// Tasks that were cancelled because a retried one had not succeeded
    /// ([`DEPENDENCY_FAILED`](task_engine_core::attempt::TaskError::DEPENDENCY_FAILED)) wait for it
    /// again, and so do those that depend on them.
    fn retry<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<RetryReport>>;

    /// Changes a waiting task, and wakes engines.
    ///
    /// A claimed task stays as it is.
    fn edit<'a>(&'a self, id: TaskId, edit: &'a Edit) -> StoreFuture<'a, EditReport>;

    /// Deletes ended tasks, with everything recorded about them; but not those that a task
    /// depends on that has not succeeded.
    fn delete<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<DeleteReport>>;

    /// Pauses a queue: no claim that begins after this has returned takes from it; running tasks
    /// continue.
    ///
    /// False if it was paused before; a new reason then replaces the old one.
    fn pause_queue<'a>(&'a self, pause: &'a QueuePause) -> StoreFuture<'a, bool>;

    /// Ends a pause and wakes engines.
    ///
    /// False if there was none.
    fn resume_queue<'a>(&'a self, queue: &'a str) -> StoreFuture<'a, bool>;

    /// Writes a schedule if it has not changed since the writer read it, and wakes engines.
    ///
    /// False, and nothing is changed, if it has.
    fn write_schedule<'a>(&'a self, write: &'a ScheduleWrite) -> StoreFuture<'a, bool>;

    /// Removes a schedule and its history.
    ///
    /// False if there is none of this name.
    fn remove_schedule<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool>;

    /// Creates a task of a schedule outside of its slots, and records that and who requested
    /// it, in one transaction.
    fn run_schedule<'a>(
        &'a self,
        schedule_id: i64,
        task: &'a NewTask,
        requested_by: Option<&'a str>,
    ) -> StoreFuture<'a, Creation>;

    /// Records an operation in the audit log; returns the id of the entry.
    ///
    /// Sent again, it is a second entry. Entries never change.
    fn audit<'a>(&'a self, entry: &'a NewAuditEntry) -> StoreFuture<'a, i64>;

    /// Adds a token; returns its id.
    ///
    /// [`StoreError::Refused`](crate::StoreError::Refused) if a token that is not revoked has this
    /// name, even if it has expired.
    fn add_token<'a>(&'a self, token: &'a NewToken) -> StoreFuture<'a, i64>;

    /// Returns all tokens, also revoked and expired ones; the newest first.
    fn tokens(&self) -> StoreFuture<'_, Vec<TokenRow>>;

    /// Revokes a token.
    ///
    /// False if there is no valid one of this name.
    fn revoke_token<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool>;

    /// Returns the token of this hash, if it is valid now by the database's clock.
    ///
    /// Its use is recorded, at most once a minute.
    fn token_by_hash<'a>(&'a self, hash: &'a TokenHash) -> StoreFuture<'a, Option<TokenRow>>;

    /// Returns the key of this database: always the same.
    fn database_key(&self) -> StoreFuture<'_, DatabaseKey>;

    /// Ends a login, which would have lasted for up to this time from now on.
    fn end_login(&self, login: LoginId, lasts: Duration) -> StoreFuture<'_, ()>;

    /// Returns whether a login was ended, by any dashboard of this database.
    fn is_login_ended(&self, login: LoginId) -> StoreFuture<'_, bool>;

    /// Checks the invariants, and returns every violation.
    ///
    /// Reads everything: not for routine use.
    fn verify(&self) -> StoreFuture<'_, Vec<Violation>>;

    /// Checks the health of the database.
    ///
    /// A fact that cannot be determined is a check, too: this fails only if the database does not
    /// answer at all.
    fn checks(&self, depth: CheckDepth) -> StoreFuture<'_, Vec<Check>>;

    /// Counts everything.
    ///
    /// Reads everything, as [`OperatorStore::verify`] does.
    fn inventory(&self) -> StoreFuture<'_, Inventory>;

    /// Passes everything to `to`, line by line, as of one snapshot; the first line is the header,
    /// the last the end.
    ///
    /// Memory does not grow with the number of tasks.
    fn export<'a>(&'a self, filter: &'a ExportFilter, to: ExportSink) -> StoreFuture<'a, ()>;

    /// Imports a file, all of it or nothing.
    ///
    /// An invalid file is [`StoreError::InvalidData`](crate::StoreError::InvalidData).
    ///
    /// Attempts that ran when it was written are held by ended sessions: reclaim them
    /// ([`Reclaim::Lost`](task_engine_core::recovery::Reclaim::Lost)) like those of any lost
    /// engine.
    fn import(&self, file: ExportFile, ids: ImportIds) -> StoreFuture<'_, ImportOutcome>;
}

/// The outcome of a request to cancel a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CancelReport {
    /// The task waited, and is cancelled.
    Cancelled,
    /// The task runs, and its engine gets a cancel request.
    Requested,
    /// The task had ended before, in this status.
    Ended(TaskStatus),
    /// There is no such task.
    NotFound,
}

/// The outcome of a request to retry a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetryReport {
    /// It had ended, and waits again, due at once.
    Waiting,
    /// It waited for a later time, and is due at once.
    Advanced,
    /// It was due already.
    AlreadyDue,
    /// It waits for tasks that it depends on.
    Blocked,
    /// It runs.
    Running,
    /// It succeeded; there is nothing to retry.
    Stopped,
    /// There is no such task.
    NotFound,
}
