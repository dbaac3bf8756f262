//! A read-through cache: all open pages and API clients share one read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use task_engine_core::dependency::BlockedTasks;
use task_engine_core::filter::Filter;
use task_engine_core::instance::InstanceRow;
use task_engine_core::queue::QueueRow;
use task_engine_core::task::TaskStatus;
use task_engine_operations::checks::checks;
use task_engine_operations::errors::Failures;
use task_engine_operations::flows::{self, FlowsPage};
use task_engine_operations::limits::{self, LimitList};
use task_engine_operations::stats::{Stats, StatsSnapshot};
use task_engine_store::activity::{Activity, ActivityQuery, FailureCounts};
use task_engine_store::check::{Check, CheckDepth};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::rollup::{self, RollupQuery, RollupRow};
use tokio::sync::Mutex;

use crate::series::Series;

/// Flows on a page: the tasks of each are counted.
pub(crate) const FLOWS_SHOWN: u32 = 30;
/// The newest failures that are grouped for the overview.
const FAILURES_MAX: u32 = 500;

/// The current state, as most pages show it.
#[derive(Debug)]
pub(crate) struct LiveState {
    pub(crate) activity: Activity,
    pub(crate) stats: Stats,
    pub(crate) engines: Vec<InstanceRow>,
}

impl LiveState {
    /// A hash that changes when a page would show something else.
    pub(crate) fn version(&self) -> String {
        let mut all = blake3::Hasher::new();
        let stats = &self.stats;
        let held = self.activity.held.iter().map(|held| {
            (held.task_id.0, held.attempt, held.progress.as_ref().map(|it| it.reported_at))
        });
        let queues = stats.queues.iter().map(|queue| {
            (
                &queue.row.name,
                queue.row.due.counted,
                queue.row.later.counted,
                queue.row.paused.is_some(),
            )
        });
        let engines =
            self.engines.iter().map(|engine| (engine.id.0, engine.is_alive(), engine.held));
        let text = format!(
            "{:?} {:?} {:?} {:?} {:?}",
            stats.newest_task,
            stats.failure_counts,
            held.collect::<Vec<_>>(),
            queues.collect::<Vec<_>>(),
            engines.collect::<Vec<_>>(),
        );
        all.update(text.as_bytes());
        all.finalize().to_hex()[..16].to_owned()
    }
}

/// Caches what pages read.
pub(crate) struct DashboardCache {
    store: Arc<dyn Store>,
    now: Cached<LiveState>,
    failure_counts: Cached<FailureCounts>,
    checks: Cached<Vec<Check>>,
    standard_checks: Cached<Vec<Check>>,
    failing: Cached<Failures>,
    day: Cached<Series>,
    last_hour: Cached<Vec<RollupRow>>,
    stats: Cached<StatsSnapshot>,
    limits: Cached<LimitList>,
    flows: Cached<FlowsPage>,
    blocked_tasks: Cached<BlockedTasks>,
}

/// The last value, and when it was read. Concurrent readers wait for one read.
struct Cached<T> {
    last: Mutex<Option<(Instant, Arc<T>)>>,
    fresh_for: Duration,
}

impl<T> Cached<T> {
    fn new(fresh_for: Duration) -> Self {
        Self { last: Mutex::new(None), fresh_for }
    }

    async fn get(
        &self,
        read: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Arc<T>, StoreError> {
        let mut last = self.last.lock().await;
        if let Some((at, value)) = &*last
            && at.elapsed() < self.fresh_for
        {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(read.await?);
        *last = Some((Instant::now(), Arc::clone(&value)));
        Ok(value)
    }

    async fn invalidate(&self) {
        *self.last.lock().await = None;
    }
}

/// How much of the past a chart shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    Hour,
    Day,
}

impl Span {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    pub(crate) fn over(self) -> Duration {
        match self {
            Self::Hour => Duration::from_secs(3600),
            Self::Day => Duration::from_secs(24 * 3600),
        }
    }

    /// The width of a bar.
    pub(crate) fn step(self) -> Duration {
        match self {
            Self::Hour => Duration::from_secs(60),
            Self::Day => Duration::from_secs(900),
        }
    }
}

impl DashboardCache {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            now: Cached::new(Duration::from_millis(900)),
            failure_counts: Cached::new(Duration::from_secs(5)),
            checks: Cached::new(Duration::from_secs(15)),
            standard_checks: Cached::new(Duration::from_secs(15)),
            failing: Cached::new(Duration::from_secs(10)),
            day: Cached::new(Duration::from_secs(60)),
            last_hour: Cached::new(Duration::from_secs(3)),
            stats: Cached::new(Duration::from_secs(3)),
            limits: Cached::new(Duration::from_millis(900)),
            flows: Cached::new(Duration::from_millis(900)),
            blocked_tasks: Cached::new(Duration::from_millis(900)),
        }
    }

    pub(crate) async fn now(&self) -> Result<Arc<LiveState>, StoreError> {
        self.now.get(self.read_now()).await
    }

    async fn read_now(&self) -> Result<LiveState, StoreError> {
        let store = &*self.store;
        let activity = store.activity(ActivityQuery { per_lane: 1, soon: Duration::ZERO }).await?;
        let failure_counts = self.failure_counts.get(store.failure_counts()).await?;
        let queues: Vec<QueueRow> = store.queues().await?;
        let engines = store.instances(None).await?;
        let rollups = self.last_hour().await?;
        let stats = Stats::of(&activity, &rollups, &[], *failure_counts, queues, &engines);
        Ok(LiveState { activity, stats, engines })
    }

    pub(crate) async fn checks(&self) -> Result<Arc<Vec<Check>>, StoreError> {
        self.checks.get(checks(&*self.store, CheckDepth::Quick)).await
    }

    /// Also opens connections and compares the schema: only on request.
    pub(crate) async fn standard_checks(&self) -> Result<Arc<Vec<Check>>, StoreError> {
        self.standard_checks.get(checks(&*self.store, CheckDepth::Standard)).await
    }

    /// The newest failures.
    pub(crate) async fn failing(&self) -> Result<Arc<Failures>, StoreError> {
        let filter = Filter::default().and_status(&[TaskStatus::Failed]);
        self.failing.get(Failures::find(&*self.store, filter, None, FAILURES_MAX)).await
    }

    /// The rollups up to now, by the database's clock.
    pub(crate) async fn series(
        &self,
        over: Span,
        now: Timestamp,
    ) -> Result<Arc<Series>, StoreError> {
        match over {
            Span::Hour => Ok(Arc::new(Series::of(&self.last_hour().await?, now, over))),
            Span::Day => {
                let query = RollupQuery { over: over.over(), step: over.step() };
                let read = async { Ok(Series::of(&self.store.rollups(query).await?, now, over)) };
                self.day.get(read).await
            }
        }
    }

    /// The rollups of the last hour: one read for charts, metrics, statistics and
    /// events, so that they agree.
    pub(crate) async fn last_hour(&self) -> Result<Arc<Vec<RollupRow>>, StoreError> {
        self.last_hour.get(rollup::last_hour(&*self.store)).await
    }

    /// The same as `task-engine stats`.
    pub(crate) async fn stats(&self) -> Result<Arc<StatsSnapshot>, StoreError> {
        let rollups = self.last_hour().await?;
        self.stats.get(StatsSnapshot::with(&*self.store, &rollups)).await
    }

    /// All limits with their use.
    pub(crate) async fn limits(&self) -> Result<Arc<LimitList>, StoreError> {
        self.limits.get(limits::list(&*self.store)).await
    }

    /// The tasks that wait for others.
    pub(crate) async fn blocked_tasks(&self) -> Result<Arc<BlockedTasks>, StoreError> {
        self.blocked_tasks.get(self.store.blocked_tasks(flows::BLOCKED_COUNTED_MAX)).await
    }

    /// The newest flows with their counts.
    pub(crate) async fn flows(&self) -> Result<Arc<FlowsPage>, StoreError> {
        self.flows.get(flows::list(&*self.store, None, FLOWS_SHOWN)).await
    }

    /// After a change: the next page shows it.
    pub(crate) async fn invalidate(&self) {
        self.now.invalidate().await;
        self.failure_counts.invalidate().await;
        self.failing.invalidate().await;
        self.checks.invalidate().await;
        self.standard_checks.invalidate().await;
        self.stats.invalidate().await;
        self.limits.invalidate().await;
        self.flows.invalidate().await;
        self.blocked_tasks.invalidate().await;
    }
}
