//! A store that says what an engine has registered and recorded, and keeps its
//! first claim back until the gate opens. Everything else goes straight
//! through.
//!
//! Counting here, where a record has been committed, is exact and costs the
//! database nothing; counting rows would be a part of what is measured.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use task_engine::{NewTask, Store, TaskId, TaskStatus};
use task_engine_core::attempt::{AttemptId, Ending};
use task_engine_core::change::{Edit, EditReport, RemoveReport};
use task_engine_core::claim::ClaimId;
use task_engine_core::completion::Settled;
use task_engine_core::flow::{FlowPage, FlowTask};
use task_engine_core::instance::{InstanceId, InstanceRow, NewInstance};
use task_engine_core::queue::{Lanes, PausedQueue, QueuePause, QueueRow};
use task_engine_core::recovery::{HeldTask, Reclaim, ReclaimedAttempt};
use task_engine_core::report::{LogFilter, LogRow, Report};
use task_engine_core::schedule::history::ScheduleEvent;
use task_engine_core::schedule::row::{
    DueSchedules, FiredSlot, Firing, ScheduleRow, ScheduleWrite,
};
use task_engine_core::task::{TaskDetails, TaskFilter, TaskRow};
use task_engine_core::unique::Creation;
use task_engine_store::activity::{
    Activity, ActivityQuery, EndingRow, EndingsQuery, FailureCounts,
};
use task_engine_store::audit::{AuditEntry, AuditFilter, NewAuditEntry};
use task_engine_store::check::{Check, Depth, Inventory};
use task_engine_store::claim::{Claim, Claimer};
use task_engine_store::contract::{CancelReport, HeartbeatReply, RetryReport, Tables};
use task_engine_store::contract::{StoreFuture, WakeUp};
use task_engine_store::export::{ExportFilter, File, Ids, Imported, Sink};
use task_engine_store::lock::BlockingSession;
use task_engine_store::login::{DatabaseKey, LoginId};
use task_engine_store::queue_position::{QueuePosition, QueuePositionQuery};
use task_engine_store::rollup::{ClassMinute, RollupQuery, RollupRow};
use task_engine_store::scan::CreationTimes;
use task_engine_store::scan::{Scan, ScanPage};
use task_engine_store::token::{NewToken, TokenHash, TokenRow};
use tokio::sync::watch;

use super::engine::Reporter;

#[derive(Debug)]
pub(super) struct Witnessed {
    store: Arc<dyn Store>,
    reporter: Arc<Reporter>,
    gate: watch::Receiver<bool>,
}

impl Witnessed {
    pub(super) fn new(
        store: Arc<dyn Store>,
        reporter: Arc<Reporter>,
        gate: watch::Receiver<bool>,
    ) -> Self {
        Self { store, reporter, gate }
    }
}

impl Store for Witnessed {
    fn register<'a>(&'a self, instance: &'a NewInstance) -> StoreFuture<'a, InstanceId> {
        Box::pin(async move {
            let id = self.store.register(instance).await?;
            self.reporter.alive();
            Ok(id)
        })
    }

    fn claimer(&self, instance: InstanceId, lanes: Lanes) -> Box<dyn Claimer> {
        let claimer = self.store.claimer(instance, lanes);
        Box::new(GatedClaimer { claimer, gate: Some(self.gate.clone()) })
    }

    fn record<'a>(
        &'a self,
        endings: &'a [Ending],
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

    fn settle<'a>(&'a self, endings: &'a [Ending]) -> StoreFuture<'a, Vec<Settled>> {
        self.store.settle(endings)
    }

    fn schema_name(&self) -> &str {
        self.store.schema_name()
    }

    fn place(&self) -> String {
        self.store.place()
    }

    fn migrate(&self) -> StoreFuture<'_, Vec<String>> {
        self.store.migrate()
    }

    fn tables(&self) -> StoreFuture<'_, Tables> {
        self.store.tables()
    }

    fn create_each<'a>(&'a self, tasks: &'a [NewTask]) -> StoreFuture<'a, Vec<Creation>> {
        self.store.create_each(tasks)
    }

    fn reclaim(&self, what: Reclaim) -> StoreFuture<'_, Vec<ReclaimedAttempt>> {
        self.store.reclaim(what)
    }

    fn heartbeat(&self, instance: InstanceId) -> StoreFuture<'_, HeartbeatReply> {
        self.store.heartbeat(instance)
    }

    fn unregister(&self, instance: InstanceId) -> StoreFuture<'_, ()> {
        self.store.unregister(instance)
    }

    fn declare_lost(&self, instance: InstanceId, process_gone: bool) -> StoreFuture<'_, bool> {
        self.store.declare_lost(instance, process_gone)
    }

    fn instances<'a>(&'a self, name: Option<&'a str>) -> StoreFuture<'a, Vec<InstanceRow>> {
        self.store.instances(name)
    }

    fn blocking_sessions(&self) -> StoreFuture<'_, Vec<BlockingSession>> {
        self.store.blocking_sessions()
    }

    fn held(&self, instance: InstanceId) -> StoreFuture<'_, Vec<HeldTask>> {
        self.store.held(instance)
    }

    fn cancel<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<CancelReport>> {
        self.store.cancel(ids)
    }

    fn retry<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<RetryReport>> {
        self.store.retry(ids)
    }

    fn tasks<'a>(&'a self, filter: &'a TaskFilter) -> StoreFuture<'a, Vec<TaskRow>> {
        self.store.tasks(filter)
    }

    fn task(&self, id: TaskId) -> StoreFuture<'_, Option<TaskDetails>> {
        self.store.task(id)
    }

    fn prune(&self, status: TaskStatus, age: Duration, limit: u32) -> StoreFuture<'_, u64> {
        self.store.prune(status, age, limit)
    }

    fn verify(&self) -> StoreFuture<'_, Vec<String>> {
        self.store.verify()
    }

    fn listen<'a>(&'a self, hear: &'a (dyn Fn(WakeUp) + Send + Sync)) -> StoreFuture<'a, ()> {
        self.store.listen(hear)
    }

    fn pause_queue<'a>(&'a self, pause: &'a QueuePause) -> StoreFuture<'a, bool> {
        self.store.pause_queue(pause)
    }

    fn resume_queue<'a>(&'a self, queue: &'a str) -> StoreFuture<'a, bool> {
        self.store.resume_queue(queue)
    }

    fn paused_queues(&self) -> StoreFuture<'_, Vec<PausedQueue>> {
        self.store.paused_queues()
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueRow>> {
        self.store.queues()
    }

    fn report<'a>(&'a self, reports: &'a [Report]) -> StoreFuture<'a, Vec<AttemptId>> {
        self.store.report(reports)
    }

    fn logs<'a>(&'a self, id: TaskId, filter: &'a LogFilter) -> StoreFuture<'a, Vec<LogRow>> {
        self.store.logs(id, filter)
    }

    fn flow<'a>(&'a self, page: &'a FlowPage) -> StoreFuture<'a, Vec<FlowTask>> {
        self.store.flow(page)
    }

    fn schedule<'a>(&'a self, name: &'a str) -> StoreFuture<'a, (Option<ScheduleRow>, Timestamp)> {
        self.store.schedule(name)
    }

    fn schedules<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<ScheduleRow>> {
        self.store.schedules(after, limit)
    }

    fn write_schedule<'a>(&'a self, write: &'a ScheduleWrite) -> StoreFuture<'a, bool> {
        self.store.write_schedule(write)
    }

    fn remove_schedule<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        self.store.remove_schedule(name)
    }

    fn due_schedules(&self, limit: u32) -> StoreFuture<'_, DueSchedules> {
        self.store.due_schedules(limit)
    }

    fn fire_schedules<'a>(&'a self, firings: &'a [Firing]) -> StoreFuture<'a, Vec<bool>> {
        self.store.fire_schedules(firings)
    }

    fn fired_slots(&self, schedule_id: i64, limit: u32) -> StoreFuture<'_, Vec<FiredSlot>> {
        self.store.fired_slots(schedule_id, limit)
    }

    fn run_schedule<'a>(
        &'a self,
        schedule_id: i64,
        task: &'a NewTask,
        requested_by: Option<&'a str>,
    ) -> StoreFuture<'a, Creation> {
        self.store.run_schedule(schedule_id, task, requested_by)
    }

    fn schedule_events(&self, schedule_id: i64, limit: u32) -> StoreFuture<'_, Vec<ScheduleEvent>> {
        self.store.schedule_events(schedule_id, limit)
    }

    fn activity(&self, look: ActivityQuery) -> StoreFuture<'_, Activity> {
        self.store.activity(look)
    }

    fn endings<'a>(&'a self, look: &'a EndingsQuery) -> StoreFuture<'a, Vec<EndingRow>> {
        self.store.endings(look)
    }

    fn failure_counts(&self) -> StoreFuture<'_, FailureCounts> {
        self.store.failure_counts()
    }

    fn queue_position<'a>(
        &'a self,
        look: &'a QueuePositionQuery,
    ) -> StoreFuture<'a, Option<QueuePosition>> {
        self.store.queue_position(look)
    }

    fn checks(&self, depth: Depth) -> StoreFuture<'_, Vec<Check>> {
        self.store.checks(depth)
    }

    fn inventory(&self) -> StoreFuture<'_, Inventory> {
        self.store.inventory()
    }

    fn export<'a>(&'a self, filter: &'a ExportFilter, to: Sink) -> StoreFuture<'a, ()> {
        self.store.export(filter, to)
    }

    fn import(&self, file: File, ids: Ids) -> StoreFuture<'_, Imported> {
        self.store.import(file, ids)
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> StoreFuture<'a, ScanPage> {
        self.store.scan(scan)
    }

    fn creation_times<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, CreationTimes> {
        self.store.creation_times(ids)
    }

    fn edit<'a>(&'a self, id: TaskId, edit: &'a Edit) -> StoreFuture<'a, EditReport> {
        self.store.edit(id, edit)
    }

    fn remove<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<RemoveReport>> {
        self.store.remove(ids)
    }

    fn audit<'a>(&'a self, entry: &'a NewAuditEntry) -> StoreFuture<'a, i64> {
        self.store.audit(entry)
    }

    fn audit_page<'a>(&'a self, filter: &'a AuditFilter) -> StoreFuture<'a, Vec<AuditEntry>> {
        self.store.audit_page(filter)
    }

    fn prune_audit(&self, age: Duration, limit: u32) -> StoreFuture<'_, u64> {
        self.store.prune_audit(age, limit)
    }

    fn database_key(&self) -> StoreFuture<'_, DatabaseKey> {
        self.store.database_key()
    }

    fn end_login(&self, login: LoginId, lasts: Duration) -> StoreFuture<'_, ()> {
        self.store.end_login(login, lasts)
    }

    fn is_login_ended(&self, login: LoginId) -> StoreFuture<'_, bool> {
        self.store.is_login_ended(login)
    }

    fn add_token<'a>(&'a self, token: &'a NewToken) -> StoreFuture<'a, i64> {
        self.store.add_token(token)
    }

    fn tokens(&self) -> StoreFuture<'_, Vec<TokenRow>> {
        self.store.tokens()
    }

    fn revoke_token<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        self.store.revoke_token(name)
    }

    fn token_by_hash<'a>(&'a self, hash: &'a TokenHash) -> StoreFuture<'a, Option<TokenRow>> {
        self.store.token_by_hash(hash)
    }

    fn figures<'a>(&'a self, instance: InstanceId, rows: &'a [ClassMinute]) -> StoreFuture<'a, ()> {
        self.store.figures(instance, rows)
    }

    fn rollups(&self, look: RollupQuery) -> StoreFuture<'_, Vec<RollupRow>> {
        self.store.rollups(look)
    }

    fn prune_rollups(&self, limit: u32) -> StoreFuture<'_, u64> {
        self.store.prune_rollups(limit)
    }

    fn prune_instances(&self, limit: u32) -> StoreFuture<'_, u64> {
        self.store.prune_instances(limit)
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
            // A gate without a keeper is open.
            let _ = gate.wait_for(|open| *open).await;
            self.claimer.claim(id, limit).await
        })
    }

    fn wake(&mut self) {
        self.claimer.wake();
    }
}
