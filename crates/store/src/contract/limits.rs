//! What limits need: declarations, changes by operators, and their use.

use task_engine_core::limit::{
    ClosedKey, DeclaredLimits, Limit, LimitChange, LimitCleared, LimitId, LimitRow, LimitUsage,
    TaskLimit,
};
use task_engine_core::task::TaskId;

use super::{StoreBase, StoreFuture};

/// The methods of a store for limits.
///
/// Claims respect limits by themselves: see
/// [`ClaimedTask::limited`](crate::claim::ClaimedTask::limited). Tasks without limits call none of
/// this.
pub trait LimitStore: StoreBase {
    /// Stores the limits that an engine declares.
    ///
    /// The engine that declares last decides; what an operator has set stays. Returns the outcome
    /// for each limit of the declaration, and for each one that was removed, with its name.
    fn declare_limits<'a>(
        &'a self,
        declared: &'a DeclaredLimits,
    ) -> StoreFuture<'a, Vec<(String, LimitChange)>>;

    /// Adds a limit, or changes its options, for an operator.
    ///
    /// Every claim that begins after the commit respects it; running attempts count, and continue.
    ///
    /// A limit keeps its target: to change it, clear the limit first
    /// ([`StoreError::Refused`](crate::StoreError::Refused)).
    fn set_limit<'a>(&'a self, limit: &'a Limit) -> StoreFuture<'a, LimitChange>;

    /// Removes a limit, or what an operator has set if engines declare it.
    fn clear_limit<'a>(&'a self, name: &'a str) -> StoreFuture<'a, LimitCleared>;

    /// Closes keys: no attempt of them starts for some time.
    ///
    /// The longer time counts if a key is closed already.
    fn close_limit_keys<'a>(&'a self, keys: &'a [ClosedKey]) -> StoreFuture<'a, ()>;

    /// Opens a closed key.
    ///
    /// False if it was not closed.
    fn open_limit_key<'a>(&'a self, name: &'a str, key: &'a str) -> StoreFuture<'a, bool>;

    /// Wakes idle engines after attempts with limits have ended: their keys may be free.
    fn wake_limited(&self) -> StoreFuture<'_, ()>;

    /// Removes up to `limit` keys that are not in use, and everything about removed limits.
    ///
    /// Returns how many.
    fn prune_limit_keys(&self, limit: u32) -> StoreFuture<'_, u64>;

    /// Returns all limits, by name.
    fn limits(&self) -> StoreFuture<'_, Vec<LimitRow>>;

    /// Returns the use of one limit, or of all: up to `at_most` lanes with waiting tasks, and up to
    /// `at_most` keys with holders.
    fn limit_usage(&self, limit: Option<LimitId>, at_most: u32) -> StoreFuture<'_, LimitUsage>;

    /// Returns the limits of a task, with the state of their keys.
    ///
    /// Empty for an unknown task.
    fn task_limits(&self, id: TaskId) -> StoreFuture<'_, Vec<TaskLimit>>;
}
