//! What a claimer knows of the queue: where each lane begins, and what is due.

use std::time::{Duration, Instant};

use task_engine_core::queue::Lanes;
use task_engine_store::error::StoreError;

use crate::error::store_error;
use crate::session::Ask as _;
use crate::store::{Inner, from_micros};
use crate::value::{RawTime, read};

const LOOK: &str = include_str!("../sql/look.sql");
const LOOK_AGAIN: &str = include_str!("../sql/look_again.sql");

/// Positions are kept this long under load. What commits behind them (a long
/// transaction, a claim that was rolled back) waits no longer than this.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Whole looks that take longer, several in a row, read dead rows: somebody
/// holds an old snapshot. Then they are rationed to this part of the time, and
/// in between only known lanes are looked at, from their positions on.
const CHEAP: Duration = Duration::from_millis(20);
const SLOW_IN_A_ROW: u32 = 3;
const RATION: u32 = 20;
const RATION_MAX: Duration = Duration::from_secs(2);
/// Tasks commit in another order than their times have; so far back a look from
/// a position begins.
const MARGIN_US: i64 = 100_000;

/// The tasks of one queue, class and priority, in the order of time and id.
pub(crate) struct Lane {
    pub(crate) queue: String,
    pub(crate) class: String,
    pub(crate) priority: i32,
    /// Nothing before this is known to wait.
    pub(crate) from: (RawTime, i64),
    /// When the first one is due, counted from the look; `None` if none waits.
    due_in: Option<Duration>,
}

/// What the last look saw, and how far the claims have come since.
pub(crate) struct Outlook {
    wanted: Lanes,
    lanes: Vec<Lane>,
    /// When the last look was, and whether it was a whole one.
    at: Instant,
    whole: bool,
    /// Whether what was seen may have changed.
    changed: bool,
    /// When the last whole look ended, and how long it took.
    last_whole: Option<(Instant, Duration)>,
    /// How many whole looks in a row were slow.
    slow: u32,
}

impl Outlook {
    pub(crate) fn new(wanted: Lanes) -> Self {
        Self {
            wanted,
            lanes: Vec::new(),
            at: Instant::now(),
            whole: false,
            changed: true,
            last_whole: None,
            slow: 0,
        }
    }

    /// Somebody says that the queue has changed, or a claim came back short.
    pub(crate) fn has_changed(&mut self) {
        self.changed = true;
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.changed || self.at.elapsed() > LOOK_INTERVAL
    }

    /// The priorities of which something is due, the highest first.
    pub(crate) fn due_priorities(&self) -> Vec<i32> {
        let elapsed = self.at.elapsed();
        let due = self.lanes.iter().filter(|lane| lane.is_due(elapsed));
        let mut priorities: Vec<i32> = due.map(|lane| lane.priority).collect();
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        priorities.dedup();
        priorities
    }

    pub(crate) fn due_lanes(&mut self, priority: i32) -> Vec<&mut Lane> {
        let elapsed = self.at.elapsed();
        let is_due = |lane: &&mut Lane| lane.priority == priority && lane.is_due(elapsed);
        self.lanes.iter_mut().filter(is_due).collect()
    }

    /// Whether the last look could see everything: a ground to sleep on.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// When the next task is due.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        let first = self.lanes.iter().filter_map(|lane| lane.due_in).min()?;
        Some(first.saturating_sub(self.at.elapsed()))
    }

    /// Looks: whole if that may be, else from the positions on.
    pub(crate) async fn look(&mut self, inner: &Inner) -> Result<(), StoreError> {
        self.changed = false;
        self.whole = self.until_whole().is_zero();
        self.at = Instant::now();
        if !self.whole {
            return self.look_again(inner).await;
        }
        let took = self.look_whole(inner).await?;
        self.last_whole = Some((Instant::now(), took));
        self.slow = if took > CHEAP { self.slow.saturating_add(1) } else { 0 };
        Ok(())
    }

    fn until_whole(&self) -> Duration {
        match self.last_whole {
            Some((ended, took)) if self.slow >= SLOW_IN_A_ROW => {
                (took * RATION).min(RATION_MAX).saturating_sub(ended.elapsed())
            }
            _ => Duration::ZERO,
        }
    }

    async fn look_whole(&mut self, inner: &Inner) -> Result<Duration, StoreError> {
        let client = inner.connections.work().await?;
        let begun = Instant::now();
        let Lanes { queues, classes, lowest_priority, .. } = &self.wanted;
        let rows = client
            .query_cached(&inner.schema.sql(LOOK), &[queues, classes, lowest_priority])
            .await
            .map_err(|e| store_error(&e))?;
        let took = begun.elapsed();
        let lanes = rows.iter().map(|row| Lane {
            queue: read(row, "queue"),
            class: read(row, "task_class"),
            priority: row.get("priority"),
            from: (row.get("due_at"), row.get("task_id")),
            due_in: Some(from_micros(row.get("due_in_us"))),
        });
        self.lanes = lanes.collect();
        Ok(took)
    }

    async fn look_again(&mut self, inner: &Inner) -> Result<(), StoreError> {
        let client = inner.connections.work().await?;
        let queues: Vec<&str> = self.lanes.iter().map(|lane| lane.queue.as_str()).collect();
        let classes: Vec<&str> = self.lanes.iter().map(|lane| lane.class.as_str()).collect();
        let priorities: Vec<i32> = self.lanes.iter().map(|lane| lane.priority).collect();
        let before = |time: RawTime| RawTime(time.0.saturating_sub(MARGIN_US));
        let times: Vec<RawTime> = self.lanes.iter().map(|lane| before(lane.from.0)).collect();
        let tasks: Vec<i64> = vec![0; self.lanes.len()];
        let rows = client
            .query_cached(
                &inner.schema.sql(LOOK_AGAIN),
                &[&queues, &classes, &priorities, &times, &tasks],
            )
            .await
            .map_err(|e| store_error(&e))?;
        for (lane, row) in self.lanes.iter_mut().zip(&rows) {
            lane.due_in = row.get::<_, Option<i64>>("due_in_us").map(from_micros);
            if let Some(due_at) = row.get("due_at") {
                lane.from = (due_at, row.get("task_id"));
            }
        }
        Ok(())
    }
}

impl Lane {
    fn is_due(&self, elapsed: Duration) -> bool {
        self.due_in.is_some_and(|due_in| due_in <= elapsed)
    }
}
