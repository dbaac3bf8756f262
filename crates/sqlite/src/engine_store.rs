//! The contract of engines and clients.

use std::sync::Arc;
use std::time::Duration;
use task_engine_core::attempt::{AttemptId, AttemptRecord};
use task_engine_core::claim::ClaimId;
use task_engine_core::completion::SettleOutcome;
use task_engine_core::instance::{InstanceId, NewInstance};
use task_engine_core::progress::Report;
use task_engine_core::queue::Lanes;
use task_engine_core::recovery::{Reclaim, ReclaimedAttempt, UnendedAttempt};
use task_engine_core::schedule::row::{DueSchedules, Firing};
use task_engine_core::task::{NewTask, TaskStatus};
use task_engine_core::unique::Creation;
use task_engine_store::claim::Claimer;
use task_engine_store::contract::{EngineStore, HeartbeatReply, StoreFuture, WakeUp};
use task_engine_store::rollup::ClassMinute;

use crate::claim::{ClaimRequest, SqliteClaimer};
use crate::store::{SqliteStore, jobs};
use crate::{
    audit, complete, create, instances, listen, progress, record, recover, rollups, schedules,
    task_operations,
};

impl EngineStore for SqliteStore {
    jobs! {
        writer fn create_each<'a>(tasks: &'a [NewTask]) -> Vec<Creation> =>
            move |tx| create::create(tx, &tasks);
        writer fn record<'a>(
            endings: &'a [AttemptRecord], finished: &'a [ClaimId]
        ) -> Vec<AttemptId> =>
            move |tx| record::record(tx, &endings, &finished);
        writer fn reclaim<'a>(what: Reclaim) -> Vec<ReclaimedAttempt> =>
            move |tx| recover::reclaim(tx, &what);
        writer fn register<'a>(instance: &'a NewInstance) -> InstanceId =>
            move |tx| instances::register(tx, &instance);
        writer fn heartbeat<'a>(instance: InstanceId) -> HeartbeatReply =>
            move |tx| instances::heartbeat(tx, instance);
        writer fn unregister<'a>(instance: InstanceId) -> () =>
            move |tx| instances::unregister(tx, instance);
        writer fn declare_lost<'a>(instance: InstanceId, process_gone: bool) -> bool =>
            move |tx| instances::declare_lost(tx, instance, process_gone);
        reader fn held_attempts<'a>(instance: InstanceId) -> Vec<UnendedAttempt> =>
            move |tx| instances::held_attempts(tx, instance);
        writer fn report<'a>(reports: &'a [Report]) -> Vec<AttemptId> =>
            move |tx| progress::report(tx, &reports);
        writer fn write_rollups<'a>(instance: InstanceId, rows: &'a [ClassMinute]) -> () =>
            move |tx| rollups::write(tx, instance, &rows);
        reader fn due_schedules<'a>(limit: u32) -> DueSchedules =>
            move |tx| schedules::due(tx, limit);
        writer fn fire_schedules<'a>(firings: &'a [Firing]) -> Vec<bool> =>
            move |tx| schedules::fire(tx, &firings);
        writer fn prune<'a>(status: TaskStatus, age: Duration, limit: u32) -> u64 =>
            move |tx| task_operations::prune(tx, status, age, limit);
        writer fn prune_audit<'a>(age: Duration, limit: u32) -> u64 =>
            move |tx| audit::prune(tx, age, limit);
        writer fn prune_rollups<'a>(limit: u32) -> u64 => move |tx| rollups::prune(tx, limit);
        writer fn prune_instances<'a>(limit: u32) -> u64 => move |tx| instances::prune(tx, limit);
    }

    fn claimer(&self, instance: InstanceId, lanes: Lanes) -> Box<dyn Claimer> {
        let wanted = Arc::new(ClaimRequest::new(instance, lanes));
        Box::new(SqliteClaimer { store: self.clone(), wanted, turns: Arc::default() })
    }

    fn settle<'a>(&'a self, endings: &'a [AttemptRecord]) -> StoreFuture<'a, Vec<SettleOutcome>> {
        Box::pin(async move {
            let (to_read, endings) = (endings.to_vec(), endings.to_vec());
            // Reading costs no write, and is usually enough.
            let read = self.reader().run(move |tx| complete::all_completed(tx, &to_read));
            if read.await? {
                return Ok(vec![SettleOutcome::Completed; endings.len()]);
            }
            self.writer().run(move |tx| complete::settle(tx, &endings)).await
        })
    }

    fn listen<'a>(&'a self, hear: &'a (dyn Fn(WakeUp) + Send + Sync)) -> StoreFuture<'a, ()> {
        let shared = &self.shared;
        let path = shared.path.as_deref();
        Box::pin(listen::listen(&shared.wake_ups, path, &shared.location, hear))
    }
}
