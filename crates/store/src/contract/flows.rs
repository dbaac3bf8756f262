//! What flows need: tasks that depend on others, and their dependencies.

use task_engine_core::dependency::{
    AddMembersOutcome, BlockedTasks, CreatedFlow, DependencyRow, FlowRow, FlowsQuery, NewFlow,
    NewMembers,
};
use task_engine_core::task::TaskId;

use super::{StoreBase, StoreFuture};

/// The methods of a store for flows.
///
/// Tasks without dependencies call none of this.
///
/// A task whose dependencies have not ended is *blocked*: it waits, and no claim sees it.
/// [`DurableStore::resume_parents`](super::DurableStore::resume_parents) starts or cancels it
/// after they have ended.
pub trait FlowStore: StoreBase {
    /// Creates the tasks of a flow, all or none, and wakes engines.
    ///
    /// Refused if a task that it depends on does not exist
    /// ([`StoreError::Refused`](crate::StoreError::Refused)).
    fn create_flow<'a>(&'a self, flow: &'a NewFlow) -> StoreFuture<'a, CreatedFlow>;

    /// Creates tasks that the dependents of a running task wait for, too, in one transaction.
    fn add_members<'a>(&'a self, members: &'a NewMembers) -> StoreFuture<'a, AddMembersOutcome>;

    /// Returns what these tasks depend on, ordered by task and by the task that it depends on; at
    /// most `limit` rows.
    ///
    /// Child tasks of durable calls are not among them.
    fn dependencies<'a>(
        &'a self,
        tasks: &'a [TaskId],
        limit: u32,
    ) -> StoreFuture<'a, Vec<DependencyRow>>;

    /// Returns which tasks depend on this one, the lowest ids first; at most `limit` rows.
    ///
    /// The name and the status are those of this task.
    fn dependents(&self, task: TaskId, limit: u32) -> StoreFuture<'_, Vec<DependencyRow>>;

    /// Returns the tasks that wait for others, counted up to `limit`: first those that wait for the
    /// lowest ids.
    fn blocked_tasks(&self, limit: u32) -> StoreFuture<'_, BlockedTasks>;

    /// Returns a page of flows, the newest first.
    fn flows<'a>(&'a self, query: &'a FlowsQuery) -> StoreFuture<'a, Vec<FlowRow>>;

    /// Removes up to `limit` flows whose tasks have all been removed.
    ///
    /// Returns how many.
    fn prune_flows(&self, limit: u32) -> StoreFuture<'_, u64>;
}
