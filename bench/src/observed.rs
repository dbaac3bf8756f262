//! A store that reports registration and recorded attempts, and delays the first
//! claim until the gate opens. All other calls are forwarded.
//!
//! Counting after the commit of a record is exact and costs the database nothing;
//! counting rows would be part of what is measured.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use task_engine::{NewTask, Store, TaskId, TaskStatus};
use task_engine_core::attempt::{AttemptId, AttemptRecord};
use task_engine_core::change::{DeleteReport, Edit, EditReport};
use task_engine_core::claim::ClaimId;
use task_engine_core::completion::SettleOutcome;
use task_engine_core::dependency::{
    AddMembersOutcome, BlockedTasks, CreatedFlow, DependencyRow, FlowRow, FlowsQuery, NewFlow,
    NewMembers,
};
use task_engine_core::flow::{FlowPage, FlowTask};
use task_engine_core::instance::{InstanceId, InstanceRow, NewInstance};
use task_engine_core::json::Json;
use task_engine_core::limit::{
    ClosedKey, DeclaredLimits, Limit, LimitChange, LimitCleared, LimitId, LimitRow, LimitUsage,
    TaskLimit,
};
use task_engine_core::progress::{LogFilter, LogRow, Report};
use task_engine_core::queue::{Lanes, PausedQueue, QueuePause, QueueRow};
use task_engine_core::recovery::{Reclaim, ReclaimedAttempt, UnendedAttempt};
use task_engine_core::schedule::history::ScheduleEvent;
use task_engine_core::schedule::row::{
    DueSchedules, FiredSlot, Firing, ScheduleRow, ScheduleWrite,
};
use task_engine_core::step::{
    ChildOutcome, NewCall, NewStep, SignalReport, SignalTarget, StepOutcome, SuspendOutcome,
    Suspension, TaskSteps, WaitOutcome,
};
use task_engine_core::task::{TaskDetails, TaskListQuery, TaskRow};
use task_engine_core::unique::Creation;
use task_engine_store::activity::{
    Activity, ActivityQuery, EndingRow, EndingsQuery, FailureCounts,
};
use task_engine_store::audit::{AuditEntry, AuditFilter, NewAuditEntry};
use task_engine_store::check::{Check, CheckDepth, Inventory, Violation};
use task_engine_store::claim::{Claim, Claimer};
use task_engine_store::contract::{
    CancelReport, DurableStore, EngineStore, FlowStore, HeartbeatReply, LimitStore, OperatorStore,
    ReadStore, RetryReport, SchemaVersion, StoreBase, StoreFuture, WakeUp,
};
use task_engine_store::export::{ExportFile, ExportFilter, ExportSink, ImportIds, ImportOutcome};
use task_engine_store::lock::BlockingSession;
use task_engine_store::login::{DatabaseKey, LoginId};
use task_engine_store::queue_position::{QueuePosition, QueuePositionQuery};
use task_engine_store::rollup::{ClassMinute, RollupQuery, RollupRow};
use task_engine_store::scan::CreationTimes;
use task_engine_store::scan::{Scan, ScanPage};
use task_engine_store::token::{NewToken, TokenHash, TokenRow};
use tokio::sync::watch;

use crate::engine::Reporter;

#[derive(Debug)]
pub(crate) struct ObservedStore {
    store: Arc<dyn Store>,
    reporter: Arc<Reporter>,
    gate: watch::Receiver<bool>,
}

impl ObservedStore {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        reporter: Arc<Reporter>,
        gate: watch::Receiver<bool>,
    ) -> Self {
        Self { store, reporter, gate }
    }
}

/// Passes calls through.
macro_rules! forward {
    ($(fn $name:ident<$a:lifetime>($($arg:ident: $type:ty),*) -> $value:ty;)*) => {$(
        fn $name<$a>(&$a self, $($arg: $type),*) -> StoreFuture<$a, $value> {
            self.store.$name($($arg),*)
        }
    )*};
}

impl StoreBase for ObservedStore {
    forward! {
        fn migrate<'a>() -> Vec<String>;
        fn schema_version<'a>() -> SchemaVersion;
    }

    fn location(&self) -> String {
        self.store.location()
    }

    fn schema_name(&self) -> &str {
        self.store.schema_name()
    }
}

impl EngineStore for ObservedStore {
    forward! {
        fn create_each<'a>(tasks: &'a [NewTask]) -> Vec<Creation>;
        fn settle<'a>(endings: &'a [AttemptRecord]) -> Vec<SettleOutcome>;
        fn reclaim<'a>(what: Reclaim) -> Vec<ReclaimedAttempt>;
        fn heartbeat<'a>(instance: InstanceId) -> HeartbeatReply;
        fn unregister<'a>(instance: InstanceId) -> ();
        fn declare_lost<'a>(instance: InstanceId, process_gone: bool) -> bool;
        fn held_attempts<'a>(instance: InstanceId) -> Vec<UnendedAttempt>;
        fn listen<'a>(hear: &'a (dyn Fn(WakeUp) + Send + Sync)) -> ();
        fn report<'a>(reports: &'a [Report]) -> Vec<AttemptId>;
        fn write_rollups<'a>(instance: InstanceId, rows: &'a [ClassMinute]) -> ();
        fn due_schedules<'a>(limit: u32) -> DueSchedules;
        fn fire_schedules<'a>(firings: &'a [Firing]) -> Vec<bool>;
        fn prune<'a>(status: TaskStatus, age: Duration, limit: u32) -> u64;
        fn prune_audit<'a>(age: Duration, limit: u32) -> u64;
        fn prune_rollups<'a>(limit: u32) -> u64;
        fn prune_instances<'a>(limit: u32) -> u64;
    }

    fn register<'a>(&'a self, instance: &'a NewInstance) -> StoreFuture<'a, InstanceId> {
        Box::pin(async move {
            let id = self.store.register(instance).await?;
            self.reporter.registered();
            Ok(id)
        })
    }

    fn claimer(&self, instance: InstanceId, lanes: Lanes) -> Box<dyn Claimer> {
        let claimer = self.store.claimer(instance, lanes);
        Box::new(GatedClaimer { claimer, gate: Some(self.gate.clone()) })
    }

    fn record<'a>(
        &'a self,
        endings: &'a [AttemptRecord],
        finished: &'a [ClaimId],
    ) -> StoreFuture<'a, Vec<AttemptId>> {
        Box::pin(async move {
            let late = self.store.record(endings, finished).await?;
            if !endings.is_empty() {
                self.reporter.recorded(endings.len());
            }
            Ok(late)
        })
    }
}

impl DurableStore for ObservedStore {
    forward! {
        fn steps<'a>(id: TaskId) -> TaskSteps;
        fn record_steps<'a>(steps: &'a [NewStep]) -> Vec<StepOutcome>;
        fn time_out<'a>(id: AttemptId, claim_id: ClaimId, name: &'a str) -> WaitOutcome;
        fn resume_parents<'a>(ended: &'a [TaskId]) -> u64;
        fn resume_missed<'a>(after: TaskId, limit: u32) -> Option<TaskId>;
        fn child_outcomes<'a>(
            children: &'a [(TaskId, Option<i32>)]
        ) -> Vec<Option<ChildOutcome>>;
        fn signal<'a>(
            target: &'a SignalTarget, name: &'a str, payload: &'a Json
        ) -> SignalReport;
        fn create_with_steps<'a>(
            task: &'a NewTask, from: TaskId, before_number: u32
        ) -> TaskId;
    }

    fn record_call<'a>(&'a self, call: &'a NewCall) -> StoreFuture<'a, StepOutcome> {
        Box::pin(async move {
            let outcome = self.store.record_call(call).await?;
            self.reporter.called();
            Ok(outcome)
        })
    }

    fn suspend<'a>(
        &'a self,
        suspensions: &'a [Suspension],
    ) -> StoreFuture<'a, Vec<SuspendOutcome>> {
        Box::pin(async move {
            let outcomes = self.store.suspend(suspensions).await?;
            for (suspension, outcome) in suspensions.iter().zip(&outcomes) {
                if matches!(outcome, SuspendOutcome::Suspended(_)) {
                    self.reporter.suspended(suspension.record.id.task_id);
                }
            }
            Ok(outcomes)
        })
    }
}

impl FlowStore for ObservedStore {
    forward! {
        fn create_flow<'a>(flow: &'a NewFlow) -> CreatedFlow;
        fn add_members<'a>(members: &'a NewMembers) -> AddMembersOutcome;
        fn dependencies<'a>(tasks: &'a [TaskId], limit: u32) -> Vec<DependencyRow>;
        fn dependents<'a>(task: TaskId, limit: u32) -> Vec<DependencyRow>;
        fn blocked_tasks<'a>(limit: u32) -> BlockedTasks;
        fn flows<'a>(query: &'a FlowsQuery) -> Vec<FlowRow>;
        fn prune_flows<'a>(limit: u32) -> u64;
    }
}

impl LimitStore for ObservedStore {
    forward! {
        fn declare_limits<'a>(declared: &'a DeclaredLimits) -> Vec<(String, LimitChange)>;
        fn set_limit<'a>(limit: &'a Limit) -> LimitChange;
        fn clear_limit<'a>(name: &'a str) -> LimitCleared;
        fn close_limit_keys<'a>(keys: &'a [ClosedKey]) -> ();
        fn open_limit_key<'a>(name: &'a str, key: &'a str) -> bool;
        fn wake_limited<'a>() -> ();
        fn prune_limit_keys<'a>(limit: u32) -> u64;
        fn limits<'a>() -> Vec<LimitRow>;
        fn limit_usage<'a>(limit: Option<LimitId>, at_most: u32) -> LimitUsage;
        fn task_limits<'a>(id: TaskId) -> Vec<TaskLimit>;
    }
}

impl ReadStore for ObservedStore {
    forward! {
        fn tasks<'a>(filter: &'a TaskListQuery) -> Vec<TaskRow>;
        fn task<'a>(id: TaskId) -> Option<TaskDetails>;
        fn scan<'a>(scan: &'a Scan) -> ScanPage;
        fn creation_times<'a>(ids: &'a [TaskId]) -> CreationTimes;
        fn logs<'a>(id: TaskId, filter: &'a LogFilter) -> Vec<LogRow>;
        fn flow<'a>(page: &'a FlowPage) -> Vec<FlowTask>;
        fn instances<'a>(name: Option<&'a str>) -> Vec<InstanceRow>;
        fn blocking_sessions<'a>() -> Vec<BlockingSession>;
        fn queues<'a>() -> Vec<QueueRow>;
        fn paused_queues<'a>() -> Vec<PausedQueue>;
        fn queue_position<'a>(query: &'a QueuePositionQuery) -> Option<QueuePosition>;
        fn schedule<'a>(name: &'a str) -> (Option<ScheduleRow>, Timestamp);
        fn schedules<'a>(after: Option<&'a str>, limit: u32) -> Vec<ScheduleRow>;
        fn fired_slots<'a>(schedule_id: i64, limit: u32) -> Vec<FiredSlot>;
        fn schedule_events<'a>(schedule_id: i64, limit: u32) -> Vec<ScheduleEvent>;
        fn activity<'a>(query: ActivityQuery) -> Activity;
        fn endings<'a>(query: &'a EndingsQuery) -> Vec<EndingRow>;
        fn failure_counts<'a>() -> FailureCounts;
        fn rollups<'a>(query: RollupQuery) -> Vec<RollupRow>;
        fn audit_page<'a>(filter: &'a AuditFilter) -> Vec<AuditEntry>;
    }
}

impl OperatorStore for ObservedStore {
    forward! {
        fn cancel<'a>(ids: &'a [TaskId]) -> Vec<CancelReport>;
        fn retry<'a>(ids: &'a [TaskId]) -> Vec<RetryReport>;
        fn edit<'a>(id: TaskId, edit: &'a Edit) -> EditReport;
        fn delete<'a>(ids: &'a [TaskId]) -> Vec<DeleteReport>;
        fn pause_queue<'a>(pause: &'a QueuePause) -> bool;
        fn resume_queue<'a>(queue: &'a str) -> bool;
        fn write_schedule<'a>(write: &'a ScheduleWrite) -> bool;
        fn remove_schedule<'a>(name: &'a str) -> bool;
        fn run_schedule<'a>(
            schedule_id: i64, task: &'a NewTask, requested_by: Option<&'a str>
        ) -> Creation;
        fn audit<'a>(entry: &'a NewAuditEntry) -> i64;
        fn add_token<'a>(token: &'a NewToken) -> i64;
        fn tokens<'a>() -> Vec<TokenRow>;
        fn revoke_token<'a>(name: &'a str) -> bool;
        fn token_by_hash<'a>(hash: &'a TokenHash) -> Option<TokenRow>;
        fn database_key<'a>() -> DatabaseKey;
        fn end_login<'a>(login: LoginId, lasts: Duration) -> ();
        fn is_login_ended<'a>(login: LoginId) -> bool;
        fn verify<'a>() -> Vec<Violation>;
        fn checks<'a>(depth: CheckDepth) -> Vec<Check>;
        fn inventory<'a>() -> Inventory;
        fn export<'a>(filter: &'a ExportFilter, to: ExportSink) -> ();
        fn import<'a>(file: ExportFile, ids: ImportIds) -> ImportOutcome;
    }
}

struct GatedClaimer {
    claimer: Box<dyn Claimer>,
    /// `None` once it has been passed.
    gate: Option<watch::Receiver<bool>>,
}

impl Claimer for GatedClaimer {
    fn claim(&mut self, id: ClaimId, limit: usize) -> StoreFuture<'_, Claim> {
        let Some(mut gate) = self.gate.take() else {
            return self.claimer.claim(id, limit);
        };
        Box::pin(async move {
            // A gate whose sender is gone is open.
            let _ = gate.wait_for(|open| *open).await;
            self.claimer.claim(id, limit).await
        })
    }

    fn invalidate(&mut self) {
        self.claimer.invalidate();
    }
}
