//! The contract, method by method, each in the file that its name says.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
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
use task_engine_core::task::{NewTask, TaskDetails, TaskFilter, TaskId, TaskRow, TaskStatus};
use task_engine_core::unique::Creation;
use task_engine_store::activity::{
    Activity, ActivityQuery, EndingRow, EndingsQuery, FailureCounts,
};
use task_engine_store::audit::{AuditEntry, AuditFilter, NewAuditEntry};
use task_engine_store::check::{Check, Depth, Inventory};
use task_engine_store::claim::Claimer;
use task_engine_store::contract::{CancelReport, HeartbeatReply, RetryReport, Tables, WakeUp};
use task_engine_store::contract::{Store, StoreFuture};
use task_engine_store::error::StoreError;
use task_engine_store::export::{ExportFilter, File, Ids, Imported, Sink};
use task_engine_store::lock::BlockingSession;
use task_engine_store::login::{DatabaseKey, LoginId};
use task_engine_store::queue_position::{QueuePosition, QueuePositionQuery};
use task_engine_store::rollup::{ClassMinute, RollupQuery, RollupRow};
use task_engine_store::scan::CreationTimes;
use task_engine_store::scan::{Scan, ScanPage};
use task_engine_store::token::{NewToken, TokenHash, TokenRow};
use tokio::runtime::Runtime;

use crate::claim::PgClaimer;
use crate::connection::{Connections, Connector, Purpose};
use crate::failover::LogWatch;
use crate::schema::Schema;
use crate::{encoding, pooler};

/// Tasks in PostgreSQL. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PgStore {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) connections: Connections,
    pub(crate) schema: Schema,
    pub(crate) log_watch: LogWatch,
    _io: Io,
}

/// The thread that connections are driven on.
#[derive(Debug)]
struct Io(Option<Runtime>);

impl Drop for Io {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting for its end would panic inside an application's runtime.
            runtime.shutdown_background();
        }
    }
}

impl PgStore {
    /// Connects, in the default schema, and checks that the server answers.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_schema(url, Schema::default()).await
    }

    /// Connects, with the tables in another schema.
    pub async fn connect_schema(url: &str, schema: Schema) -> Result<Self, StoreError> {
        Self::connect_for(url, schema, Purpose::Work).await
    }

    /// Connects for those who look, like a dashboard: with few connections, and
    /// no statement may take longer than five seconds.
    pub async fn connect_to_watch(url: &str, schema: Schema) -> Result<Self, StoreError> {
        Self::connect_for(url, schema, Purpose::Watch).await
    }

    async fn connect_for(url: &str, schema: Schema, purpose: Purpose) -> Result<Self, StoreError> {
        let io = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("task-engine-io")
            .enable_all()
            .build()
            .map_err(|e| StoreError::Unavailable(format!("no thread for connections: {e}")))?;
        let handle = io.handle().clone();
        let io = Io(Some(io));
        let connector = Connector::new(url, handle, purpose)?;
        let behind_pooler = examine(&connector).await?;
        if behind_pooler {
            tracing::info!(
                "{} is a pooler that gives each transaction another connection: \
                 engines look for work once a second",
                connector.place()
            );
        }
        let connections = Connections::new(connector, behind_pooler)?;
        let inner = Inner { connections, schema, log_watch: LogWatch::default(), _io: io };
        drop(inner.connections.work().await?);
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Waits for an answer as long as any statement may take.
    fn limited<'a, T: 'a>(
        &'a self,
        answer: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        self.within(ANSWER_TIMEOUT, answer)
    }

    fn within<'a, T: 'a>(
        &'a self,
        limit: Duration,
        answer: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(self.inner.answer(Some(limit), answer))
    }

    /// For many statements in a row: as long as the server answers at all.
    fn unlimited<'a, T: 'a>(
        &'a self,
        answer: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(self.inner.answer(None, answer))
    }

    /// The schema of the tables, for creation in a transaction of one's own.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.inner.schema
    }
}

/// Connections have time limits of their own; this is for what is asked on them.
const EXAMINE_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks that the database can be used; returns whether there is a pooler in
/// between. Without a second connection that cannot be found out, and counts as none.
async fn examine(connector: &Connector) -> Result<bool, StoreError> {
    let place = connector.place();
    let first = connector.client().await?;
    let second = connector.client().await.ok();
    let examined = async {
        encoding::check(&first, &place).await?;
        match &second {
            Some(second) => pooler::is_between(&first, second).await,
            None => Ok(false),
        }
    };
    tokio::time::timeout(EXAMINE_TIMEOUT, examined).await.unwrap_or_else(|_| {
        Err(StoreError::Unavailable(format!(
            "{place} takes connections, but has answered nothing within {EXAMINE_TIMEOUT:?}"
        )))
    })
}

impl Store for PgStore {
    fn place(&self) -> String {
        let place = self.inner.connections.connector.place();
        if self.inner.schema == Schema::default() {
            place
        } else {
            format!("{place} (schema {})", self.inner.schema)
        }
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {
            self.inner.connections.close().await;
            Ok(())
        })
    }

    fn migrate(&self) -> StoreFuture<'_, Vec<String>> {
        self.unlimited(self.inner.migrate())
    }

    fn tables(&self) -> StoreFuture<'_, Tables> {
        self.limited(self.inner.tables())
    }

    fn create_each<'a>(&'a self, tasks: &'a [NewTask]) -> StoreFuture<'a, Vec<Creation>> {
        self.limited(self.inner.create_each(tasks))
    }

    fn claimer(&self, instance: InstanceId, lanes: Lanes) -> Box<dyn Claimer> {
        Box::new(PgClaimer::new(self.inner.clone(), instance, lanes))
    }

    fn record<'a>(
        &'a self,
        endings: &'a [Ending],
        finished: &'a [ClaimId],
    ) -> StoreFuture<'a, Vec<AttemptId>> {
        self.limited(self.inner.record(endings, finished))
    }

    fn settle<'a>(&'a self, endings: &'a [Ending]) -> StoreFuture<'a, Vec<Settled>> {
        self.limited(self.inner.settle(endings))
    }

    fn schema_name(&self) -> &str {
        self.inner.schema.name()
    }

    fn reclaim(&self, what: Reclaim) -> StoreFuture<'_, Vec<ReclaimedAttempt>> {
        self.limited(self.inner.reclaim(what))
    }

    fn register<'a>(&'a self, instance: &'a NewInstance) -> StoreFuture<'a, InstanceId> {
        self.limited(self.inner.register(instance))
    }

    fn heartbeat(&self, instance: InstanceId) -> StoreFuture<'_, HeartbeatReply> {
        self.within(BEAT_TIMEOUT, self.inner.heartbeat(instance))
    }

    fn unregister(&self, instance: InstanceId) -> StoreFuture<'_, ()> {
        self.limited(self.inner.unregister(instance))
    }

    fn declare_lost(&self, instance: InstanceId, process_gone: bool) -> StoreFuture<'_, bool> {
        self.limited(self.inner.declare_lost(instance, process_gone))
    }

    fn instances<'a>(&'a self, name: Option<&'a str>) -> StoreFuture<'a, Vec<InstanceRow>> {
        self.limited(self.inner.instances(name))
    }

    fn blocking_sessions(&self) -> StoreFuture<'_, Vec<BlockingSession>> {
        self.limited(self.inner.blocking_sessions())
    }

    fn held(&self, instance: InstanceId) -> StoreFuture<'_, Vec<HeldTask>> {
        self.limited(self.inner.held(instance))
    }

    fn cancel<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<CancelReport>> {
        self.limited(self.inner.cancel(ids))
    }

    fn retry<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<RetryReport>> {
        self.limited(self.inner.retry(ids))
    }

    fn tasks<'a>(&'a self, filter: &'a TaskFilter) -> StoreFuture<'a, Vec<TaskRow>> {
        self.limited(self.inner.tasks(filter))
    }

    fn task(&self, id: TaskId) -> StoreFuture<'_, Option<TaskDetails>> {
        self.limited(self.inner.task(id))
    }

    fn prune(&self, status: TaskStatus, age: Duration, limit: u32) -> StoreFuture<'_, u64> {
        self.limited(self.inner.prune(status, age, limit))
    }

    fn verify(&self) -> StoreFuture<'_, Vec<String>> {
        self.unlimited(self.inner.verify())
    }

    fn listen<'a>(&'a self, hear: &'a (dyn Fn(WakeUp) + Send + Sync)) -> StoreFuture<'a, ()> {
        Box::pin(self.inner.listen(hear))
    }

    fn pause_queue<'a>(&'a self, pause: &'a QueuePause) -> StoreFuture<'a, bool> {
        self.limited(self.inner.pause_queue(pause))
    }

    fn resume_queue<'a>(&'a self, queue: &'a str) -> StoreFuture<'a, bool> {
        self.limited(self.inner.resume_queue(queue))
    }

    fn paused_queues(&self) -> StoreFuture<'_, Vec<PausedQueue>> {
        self.limited(self.inner.paused_queues())
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueRow>> {
        self.limited(self.inner.queues())
    }

    fn report<'a>(&'a self, reports: &'a [Report]) -> StoreFuture<'a, Vec<AttemptId>> {
        self.limited(self.inner.report(reports))
    }

    fn logs<'a>(&'a self, id: TaskId, filter: &'a LogFilter) -> StoreFuture<'a, Vec<LogRow>> {
        self.limited(self.inner.logs(id, filter))
    }

    fn flow<'a>(&'a self, page: &'a FlowPage) -> StoreFuture<'a, Vec<FlowTask>> {
        self.limited(self.inner.flow(page))
    }

    fn schedule<'a>(&'a self, name: &'a str) -> StoreFuture<'a, (Option<ScheduleRow>, Timestamp)> {
        self.limited(self.inner.schedule(name))
    }

    fn schedules<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<ScheduleRow>> {
        self.limited(self.inner.schedules(after, limit))
    }

    fn write_schedule<'a>(&'a self, write: &'a ScheduleWrite) -> StoreFuture<'a, bool> {
        self.limited(self.inner.write_schedule(write))
    }

    fn remove_schedule<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        self.limited(self.inner.remove_schedule(name))
    }

    fn due_schedules(&self, limit: u32) -> StoreFuture<'_, DueSchedules> {
        self.limited(self.inner.due_schedules(limit))
    }

    fn fire_schedules<'a>(&'a self, firings: &'a [Firing]) -> StoreFuture<'a, Vec<bool>> {
        self.limited(self.inner.fire_schedules(firings))
    }

    fn fired_slots(&self, schedule_id: i64, limit: u32) -> StoreFuture<'_, Vec<FiredSlot>> {
        self.limited(self.inner.fired_slots(schedule_id, limit))
    }

    fn run_schedule<'a>(
        &'a self,
        schedule_id: i64,
        task: &'a NewTask,
        requested_by: Option<&'a str>,
    ) -> StoreFuture<'a, Creation> {
        self.limited(self.inner.run_schedule(schedule_id, task, requested_by))
    }

    fn schedule_events(&self, schedule_id: i64, limit: u32) -> StoreFuture<'_, Vec<ScheduleEvent>> {
        self.limited(self.inner.schedule_events(schedule_id, limit))
    }

    fn activity(&self, look: ActivityQuery) -> StoreFuture<'_, Activity> {
        self.limited(self.inner.activity(look))
    }

    fn endings<'a>(&'a self, look: &'a EndingsQuery) -> StoreFuture<'a, Vec<EndingRow>> {
        self.limited(self.inner.endings(look))
    }

    fn failure_counts(&self) -> StoreFuture<'_, FailureCounts> {
        self.limited(self.inner.failure_counts())
    }

    fn queue_position<'a>(
        &'a self,
        look: &'a QueuePositionQuery,
    ) -> StoreFuture<'a, Option<QueuePosition>> {
        self.limited(self.inner.ahead(look))
    }

    fn checks(&self, depth: Depth) -> StoreFuture<'_, Vec<Check>> {
        self.unlimited(self.inner.checks(depth))
    }

    fn inventory(&self) -> StoreFuture<'_, Inventory> {
        self.unlimited(self.inner.inventory())
    }

    fn export<'a>(&'a self, filter: &'a ExportFilter, to: Sink) -> StoreFuture<'a, ()> {
        self.unlimited(self.inner.export(filter, self.place(), to))
    }

    fn import(&self, file: File, ids: Ids) -> StoreFuture<'_, Imported> {
        self.unlimited(self.inner.import(file, ids))
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> StoreFuture<'a, ScanPage> {
        self.limited(self.inner.scan(scan))
    }

    fn creation_times<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, CreationTimes> {
        self.limited(self.inner.creation_times(ids))
    }

    fn edit<'a>(&'a self, id: TaskId, edit: &'a Edit) -> StoreFuture<'a, EditReport> {
        self.limited(self.inner.edit(id, edit))
    }

    fn remove<'a>(&'a self, ids: &'a [TaskId]) -> StoreFuture<'a, Vec<RemoveReport>> {
        self.limited(self.inner.remove(ids))
    }

    fn audit<'a>(&'a self, entry: &'a NewAuditEntry) -> StoreFuture<'a, i64> {
        self.limited(self.inner.audit(entry))
    }

    fn audit_page<'a>(&'a self, filter: &'a AuditFilter) -> StoreFuture<'a, Vec<AuditEntry>> {
        self.limited(self.inner.audit_page(filter))
    }

    fn prune_audit(&self, age: Duration, limit: u32) -> StoreFuture<'_, u64> {
        self.limited(self.inner.prune_audit(age, limit))
    }

    fn database_key(&self) -> StoreFuture<'_, DatabaseKey> {
        self.limited(self.inner.database_key())
    }

    fn end_login(&self, login: LoginId, lasts: Duration) -> StoreFuture<'_, ()> {
        self.limited(self.inner.end_login(login, lasts))
    }

    fn is_login_ended(&self, login: LoginId) -> StoreFuture<'_, bool> {
        self.limited(self.inner.is_login_ended(login))
    }

    fn add_token<'a>(&'a self, token: &'a NewToken) -> StoreFuture<'a, i64> {
        self.limited(self.inner.add_token(token))
    }

    fn tokens(&self) -> StoreFuture<'_, Vec<TokenRow>> {
        self.limited(self.inner.tokens())
    }

    fn revoke_token<'a>(&'a self, name: &'a str) -> StoreFuture<'a, bool> {
        self.limited(self.inner.revoke_token(name))
    }

    fn token_by_hash<'a>(&'a self, hash: &'a TokenHash) -> StoreFuture<'a, Option<TokenRow>> {
        self.limited(self.inner.token_by_hash(hash))
    }

    fn figures<'a>(&'a self, instance: InstanceId, rows: &'a [ClassMinute]) -> StoreFuture<'a, ()> {
        self.limited(self.inner.figures(instance, rows))
    }

    fn rollups(&self, look: RollupQuery) -> StoreFuture<'_, Vec<RollupRow>> {
        self.limited(self.inner.rollups(look))
    }

    fn prune_rollups(&self, limit: u32) -> StoreFuture<'_, u64> {
        self.limited(self.inner.prune_rollups(limit))
    }

    fn prune_instances(&self, limit: u32) -> StoreFuture<'_, u64> {
        self.limited(self.inner.prune_instances(limit))
    }
}

/// Longer than the server's own limit on a statement: only a server that has
/// stopped to answer, but not to be there, is found out by this.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(75);

/// A beat that waits any longer on one connection would miss the usual lease.
const BEAT_TIMEOUT: Duration = Duration::from_secs(10);

/// Microseconds, the unit in which durations cross the wire.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn from_micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}
