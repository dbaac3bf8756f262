//! What many pages need, read once for all of them: however many are open, the
//! database is asked as often as by one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use task_engine_core::filter::Filter;
use task_engine_core::instance::InstanceRow;
use task_engine_core::queue::QueueRow;
use task_engine_core::task::TaskStatus;
use task_engine_operations::errors::Failures;
use task_engine_operations::stats::{Stats, StatsSnapshot};
use task_engine_store::activity::{Activity, ActivityQuery, FailureCounts};
use task_engine_store::check::{Check, Depth};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::rollup as figures;
use task_engine_store::rollup::{RollupQuery, RollupRow};
use tokio::sync::Mutex;

use crate::series::Series;

/// So many failures are looked at for what fails most.
const FAILURES_MAX: u32 = 500;

/// What goes on now.
#[derive(Debug)]
pub(crate) struct Now {
    pub(crate) moving: Activity,
    pub(crate) figures: Stats,
    pub(crate) engines: Vec<InstanceRow>,
}

impl Now {
    /// Another one whenever a page would show something else.
    pub(crate) fn version(&self) -> String {
        let mut all = blake3::Hasher::new();
        let figures = &self.figures;
        let held = self.moving.held.iter().map(|held| {
            (held.task_id.0, held.attempt, held.progress.as_ref().map(|it| it.reported_at))
        });
        let queues = figures.queues.iter().map(|queue| {
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
            figures.newest_task,
            figures.failure_counts,
            held.collect::<Vec<_>>(),
            queues.collect::<Vec<_>>(),
            engines.collect::<Vec<_>>(),
        );
        all.update(text.as_bytes());
        all.finalize().to_hex()[..16].to_owned()
    }
}

/// Read at most once in a while.
pub(crate) struct Glance {
    store: Arc<dyn Store>,
    now: Kept<Now>,
    failure_counts: Kept<FailureCounts>,
    checks: Kept<Vec<Check>>,
    closer_checks: Kept<Vec<Check>>,
    failing: Kept<Failures>,
    day: Kept<Series>,
    last_hour: Kept<Vec<RollupRow>>,
    stats: Kept<StatsSnapshot>,
}

/// The last answer, and when it was read. Whoever comes while it is read waits
/// for the same one.
struct Kept<T> {
    last: Mutex<Option<(Instant, Arc<T>)>>,
    fresh_for: Duration,
}

impl<T> Kept<T> {
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

    async fn forget(&self) {
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
    pub(crate) fn words(self) -> &'static str {
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

    /// A bar is a minute, or a quarter of an hour.
    pub(crate) fn step(self) -> Duration {
        match self {
            Self::Hour => Duration::from_secs(60),
            Self::Day => Duration::from_secs(900),
        }
    }
}

impl Glance {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            now: Kept::new(Duration::from_millis(900)),
            failure_counts: Kept::new(Duration::from_secs(5)),
            checks: Kept::new(Duration::from_secs(15)),
            closer_checks: Kept::new(Duration::from_secs(15)),
            failing: Kept::new(Duration::from_secs(10)),
            day: Kept::new(Duration::from_secs(60)),
            last_hour: Kept::new(Duration::from_secs(3)),
            stats: Kept::new(Duration::from_secs(3)),
        }
    }

    pub(crate) async fn now(&self) -> Result<Arc<Now>, StoreError> {
        self.now.get(self.read_now()).await
    }

    async fn read_now(&self) -> Result<Now, StoreError> {
        let store = &*self.store;
        let moving = store.activity(ActivityQuery { per_lane: 1, soon: Duration::ZERO }).await?;
        let failure_counts = self.failure_counts.get(store.failure_counts()).await?;
        let queues: Vec<QueueRow> = store.queues().await?;
        let engines = store.instances(None).await?;
        let counted = self.last_hour().await?;
        let figures = Stats::of(&moving, &counted, &[], *failure_counts, queues, &engines);
        Ok(Now { moving, figures, engines })
    }

    pub(crate) async fn checks(&self) -> Result<Arc<Vec<Check>>, StoreError> {
        self.checks.get(self.store.checks(Depth::Quick)).await
    }

    /// Also what opens connections, and compares the tables with what they should
    /// be: only for who asks for it.
    pub(crate) async fn closer_checks(&self) -> Result<Arc<Vec<Check>>, StoreError> {
        self.closer_checks.get(self.store.checks(Depth::Standard)).await
    }

    /// The newest failures.
    pub(crate) async fn failing(&self) -> Result<Arc<Failures>, StoreError> {
        let filter = Filter::default().and_status(&[TaskStatus::Failed]);
        self.failing.get(Failures::find(&*self.store, filter, None, FAILURES_MAX)).await
    }

    /// What engines have counted until now, by the database's clock.
    pub(crate) async fn series(
        &self,
        over: Span,
        now: Timestamp,
    ) -> Result<Arc<Series>, StoreError> {
        match over {
            Span::Hour => Ok(Arc::new(Series::of(&self.last_hour().await?, now, over))),
            Span::Day => {
                let look = RollupQuery { over: over.over(), step: over.step() };
                let read = async { Ok(Series::of(&self.store.rollups(look).await?, now, over)) };
                self.day.get(read).await
            }
        }
    }

    /// What engines have counted in the last hour: one read for charts, metrics,
    /// statistics and events, so that they agree.
    pub(crate) async fn last_hour(&self) -> Result<Arc<Vec<RollupRow>>, StoreError> {
        self.last_hour.get(figures::last_hour(&*self.store)).await
    }

    /// The figures with what ended lately, as `task-engine stats` has them.
    pub(crate) async fn stats(&self) -> Result<Arc<StatsSnapshot>, StoreError> {
        let counted = self.last_hour().await?;
        self.stats.get(StatsSnapshot::with(&*self.store, &counted)).await
    }

    /// Somebody has just changed something, and wants to see it.
    pub(crate) async fn forget(&self) {
        self.now.forget().await;
        self.failure_counts.forget().await;
        self.failing.forget().await;
        self.checks.forget().await;
        self.closer_checks.forget().await;
        self.stats.forget().await;
    }
}
