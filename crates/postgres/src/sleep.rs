//! Falling asleep without missing a wake-up.
//!
//! While no engine sleeps, nobody is notified: see `task_engine.wake` in the
//! migrations for why, and for the other half of this protocol. An engine says
//! that it sleeps (*mark*), waits for transactions that may have looked for
//! sleepers before that (*under way*), and then looks for work once more. Only
//! after that look it may sleep.
//!
//! An engine with several pools of workers has a claimer for each, and each goes
//! through all this by itself, with a mark of its own: that one of them wakes
//! says nothing about the others. A mark tells what it is for, so that a pool
//! that waits for rare tasks does not make everybody else's creators notify.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use task_engine_core::instance::InstanceId;
use task_engine_core::queue::Lanes;
use task_engine_store::error::StoreError;

use crate::error::store_error;
use crate::session::Ask as _;
use crate::store::Inner;

const FALL_ASLEEP: &str = include_str!("../sql/fall_asleep.sql");
const STAY_AWAKE: &str = include_str!("../sql/stay_awake.sql");
const UNDER_WAY: &str = include_str!("../sql/under_way.sql");

/// The mark is kept through short naps, so that a trickle of tasks costs no
/// writes; an engine that has not slept for this long takes it back.
const BUSY_AFTER: Duration = Duration::from_millis(200);
/// How often to look whether a transaction under way has ended.
const RECHECK_MIN: Duration = Duration::from_millis(2);
const RECHECK_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Sleep {
    /// Tells the marks of one engine apart: unique in the process, and an engine
    /// is in one process.
    claimer: i64,
    queues: Vec<String>,
    lowest_priority: i32,
    /// Only tasks of these classes wake it, if the engine has others for others.
    classes: Option<Vec<String>>,
    marked: bool,
    /// Transactions that were under way when the mark was set, and still are.
    under_way: Vec<String>,
    /// Whether the next look counts.
    prepared: bool,
    recheck: Duration,
    /// When this engine last went to sleep.
    last: Instant,
}

impl Sleep {
    pub(crate) fn new(lanes: &Lanes) -> Self {
        static CLAIMERS: AtomicI64 = AtomicI64::new(0);
        Self {
            claimer: CLAIMERS.fetch_add(1, Ordering::Relaxed),
            queues: lanes.queues.clone(),
            lowest_priority: lanes.lowest_priority,
            classes: lanes.divided_by_class.then(|| lanes.classes.clone()),
            marked: false,
            under_way: Vec::new(),
            prepared: false,
            recheck: RECHECK_MIN,
            last: Instant::now(),
        }
    }

    /// At the start of every claim: a sleeper that waits for nobody may look at
    /// once.
    pub(crate) fn start_over(&mut self) {
        self.prepared = self.marked && self.under_way.is_empty();
    }

    pub(crate) fn is_prepared(&self) -> bool {
        self.prepared
    }

    /// Makes the next look count.
    pub(crate) async fn prepare(
        &mut self,
        inner: &Inner,
        instance: InstanceId,
    ) -> Result<(), StoreError> {
        let client = inner.connections.work().await?;
        let first = !self.marked;
        if first {
            client
                .execute(
                    &inner.schema.sql(FALL_ASLEEP),
                    &[
                        &instance.0,
                        &self.claimer,
                        &self.queues,
                        &self.lowest_priority,
                        &self.classes,
                    ],
                )
                .await
                .map_err(|e| store_error(&e))?;
            self.marked = true;
            self.recheck = RECHECK_MIN;
        }
        let rows =
            client.query(&inner.schema.sql(UNDER_WAY), &[]).await.map_err(|e| store_error(&e))?;
        let now: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        if first {
            self.under_way = now;
        } else {
            // Those that began later have seen the mark.
            self.under_way.retain(|transaction| now.contains(transaction));
        }
        self.prepared = true;
        Ok(())
    }

    /// The engine goes to sleep, until the next task is due at the latest; or,
    /// if somebody is still under way, not for long.
    pub(crate) fn begin(&mut self, next_in: Option<Duration>) -> Option<Duration> {
        self.last = Instant::now();
        if self.under_way.is_empty() {
            return next_in;
        }
        let recheck = self.recheck;
        self.recheck = (recheck * 2).min(RECHECK_MAX);
        Some(next_in.map_or(recheck, |next| next.min(recheck)))
    }

    /// The engine has work. Nothing depends on the mark being gone, so that an
    /// error only means that it is tried again.
    pub(crate) async fn interrupt(&mut self, inner: &Inner, instance: InstanceId) {
        if !self.marked || self.last.elapsed() < BUSY_AFTER {
            return;
        }
        if let Ok(client) = inner.connections.work().await
            && client
                .execute(&inner.schema.sql(STAY_AWAKE), &[&instance.0, &self.claimer])
                .await
                .is_ok()
        {
            self.marked = false;
            self.under_way.clear();
        }
    }
}
