//! The contract of flows.

use task_engine_core::dependency::{
    AddMembersOutcome, BlockedTasks, CreatedFlow, DependencyRow, FlowRow, FlowsQuery, NewFlow,
    NewMembers,
};
use task_engine_core::task::TaskId;
use task_engine_store::contract::{FlowStore, StoreFuture};

use crate::store::{PgStore, STATEMENT, calls};

impl FlowStore for PgStore {
    calls! {
        STATEMENT => fn create_flow<'a>(flow: &'a NewFlow) -> CreatedFlow;
        STATEMENT => fn add_members<'a>(members: &'a NewMembers) -> AddMembersOutcome;
        STATEMENT => fn dependencies<'a>(tasks: &'a [TaskId], limit: u32) -> Vec<DependencyRow>;
        STATEMENT => fn dependents<'a>(task: TaskId, limit: u32) -> Vec<DependencyRow>;
        STATEMENT => fn blocked_tasks<'a>(limit: u32) -> BlockedTasks;
        STATEMENT => fn flows<'a>(query: &'a FlowsQuery) -> Vec<FlowRow>;
        STATEMENT => fn prune_flows<'a>(limit: u32) -> u64;
    }
}
