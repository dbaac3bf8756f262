//! The contract of flows.

use task_engine_core::dependency::{
    AddMembersOutcome, BlockedTasks, CreatedFlow, DependencyRow, FlowRow, FlowsQuery, NewFlow,
    NewMembers,
};
use task_engine_core::task::TaskId;
use task_engine_store::contract::{FlowStore, StoreFuture};

use crate::store::{SqliteStore, jobs};
use crate::{dependencies, flows};

impl FlowStore for SqliteStore {
    jobs! {
        writer fn create_flow<'a>(flow: &'a NewFlow) -> CreatedFlow =>
            move |tx| flows::create(tx, &flow);
        writer fn add_members<'a>(members: &'a NewMembers) -> AddMembersOutcome =>
            move |tx| flows::add_members(tx, &members);
        reader fn dependencies<'a>(tasks: &'a [TaskId], limit: u32) -> Vec<DependencyRow> =>
            move |tx| dependencies::dependencies(tx, &tasks, limit);
        reader fn dependents<'a>(task: TaskId, limit: u32) -> Vec<DependencyRow> =>
            move |tx| dependencies::dependents(tx, task, limit);
        reader fn blocked_tasks<'a>(limit: u32) -> BlockedTasks =>
            move |tx| dependencies::blocked_tasks(tx, limit);
        reader fn flows<'a>(query: &'a FlowsQuery) -> Vec<FlowRow> =>
            move |tx| dependencies::flows(tx, &query);
        writer fn prune_flows<'a>(limit: u32) -> u64 => move |tx| dependencies::prune(tx, limit);
    }
}
