//! The contract of engines and clients.

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

use crate::claim::PgClaimer;
use crate::store::{HEARTBEAT, PgStore, STATEMENT, calls};

impl EngineStore for PgStore {
    calls! {
        STATEMENT => fn create_each<'a>(tasks: &'a [NewTask]) -> Vec<Creation>;
        STATEMENT => fn record<'a>(
            endings: &'a [AttemptRecord], finished: &'a [ClaimId]
        ) -> Vec<AttemptId>;
        STATEMENT => fn settle<'a>(endings: &'a [AttemptRecord]) -> Vec<SettleOutcome>;
        STATEMENT => fn reclaim<'a>(what: Reclaim) -> Vec<ReclaimedAttempt>;
        STATEMENT => fn register<'a>(instance: &'a NewInstance) -> InstanceId;
        HEARTBEAT => fn heartbeat<'a>(instance: InstanceId) -> HeartbeatReply;
        STATEMENT => fn unregister<'a>(instance: InstanceId) -> ();
        STATEMENT => fn declare_lost<'a>(instance: InstanceId, process_gone: bool) -> bool;
        STATEMENT => fn held_attempts<'a>(instance: InstanceId) -> Vec<UnendedAttempt>;
        STATEMENT => fn report<'a>(reports: &'a [Report]) -> Vec<AttemptId>;
        STATEMENT => fn write_rollups<'a>(instance: InstanceId, rows: &'a [ClassMinute]) -> ();
        STATEMENT => fn due_schedules<'a>(limit: u32) -> DueSchedules;
        STATEMENT => fn fire_schedules<'a>(firings: &'a [Firing]) -> Vec<bool>;
        STATEMENT => fn prune<'a>(status: TaskStatus, age: Duration, limit: u32) -> u64;
        STATEMENT => fn prune_audit<'a>(age: Duration, limit: u32) -> u64;
        STATEMENT => fn prune_rollups<'a>(limit: u32) -> u64;
        STATEMENT => fn prune_instances<'a>(limit: u32) -> u64;
    }

    fn claimer(&self, instance: InstanceId, lanes: Lanes) -> Box<dyn Claimer> {
        Box::new(PgClaimer::new(self.inner.clone(), instance, lanes))
    }

    fn listen<'a>(&'a self, hear: &'a (dyn Fn(WakeUp) + Send + Sync)) -> StoreFuture<'a, ()> {
        Box::pin(self.inner.listen(hear))
    }
}
