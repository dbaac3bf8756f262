//! The cached heads of the lanes of a claimer: where each lane begins, and what is due.

use std::time::{Duration, Instant};

use task_engine_core::limit::plain_queue;
use task_engine_core::queue::Lanes;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;

use crate::executor::Executor as _;
use crate::known_limits::{KnownLimits, LaneKind};
use crate::limited_lanes::{GroupId, LimitedLanes};
use crate::store::{StoreInner, from_micros};
use crate::value::{RawTime, read};

const SQL: &str = include_str!("../sql/engine/claim.sql");
const SCAN_HEADS: &str = statement(SQL, "scan_heads");
const SCAN_KNOWN_HEADS: &str = statement(SQL, "scan_known_heads");

/// Positions are kept this long under load. Rows that commit behind them (from a long
/// transaction, or a claim that was rolled back) wait no longer than this.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// A complete scan that takes longer reads dead rows, because some transaction holds an old
/// snapshot.
const CHEAP: Duration = Duration::from_millis(20);
/// After so many slow scans in a row, complete scans are limited. In between only known lanes
/// are scanned, from their positions on.
const SLOW_IN_A_ROW: u32 = 3;
/// Then the next complete scan comes after this many times the duration of the last one,
const RATION: u32 = 20;
/// but after no more than this.
const RATION_MAX: Duration = Duration::from_secs(2);
/// Tasks commit in another order than their times have: a scan from a position begins this
/// much earlier.
const MARGIN_US: i64 = 100_000;

/// The tasks of one queue, class and priority, in the order of time and id.
pub(crate) struct Lane {
    pub(crate) kind: LaneKind,
    pub(crate) queue: String,
    pub(crate) class: String,
    pub(crate) priority: i32,
    /// No task before this position is known to wait.
    pub(crate) from: (RawTime, i64),
    /// When the first one is due, counted from the scan; `None` if none waits.
    due_in: Option<Duration>,
}

/// The result of the last scan, and the progress of claims since.
pub(crate) struct QueueHeads {
    wanted: Lanes,
    lanes: Vec<Lane>,
    /// When the last scan was, and whether it was complete.
    scanned_at: Instant,
    complete: bool,
    /// Whether the heads may have changed.
    changed: bool,
    /// When the last complete scan ended, and how long it took.
    last_complete: Option<(Instant, Duration)>,
    /// How many complete scans in a row were slow.
    slow: u32,
}

impl QueueHeads {
    pub(crate) fn new(wanted: Lanes) -> Self {
        Self {
            wanted,
            lanes: Vec::new(),
            scanned_at: Instant::now(),
            complete: false,
            changed: true,
            last_complete: None,
            slow: 0,
        }
    }

    /// The queue may have changed, or a claim took fewer tasks than it wanted.
    pub(crate) fn invalidate(&mut self) {
        self.changed = true;
    }

    pub(crate) fn are_stale(&self) -> bool {
        self.changed || self.scanned_at.elapsed() > SCAN_INTERVAL
    }

    /// The priorities with due tasks, the highest first. Lanes of keys count if tasks of them
    /// may be able to start.
    pub(crate) fn due_priorities(&self, limited: &LimitedLanes) -> Vec<i32> {
        let elapsed = self.scanned_at.elapsed();
        let due = self.lanes.iter().filter(|lane| match lane.kind {
            LaneKind::Limited => limited.is_due(&lane.group()),
            LaneKind::Plain | LaneKind::Intake => lane.is_due(elapsed),
        });
        let mut priorities: Vec<i32> = due.map(|lane| lane.priority).collect();
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        priorities.dedup();
        priorities
    }

    /// The due lanes of a kind and priority.
    pub(crate) fn due_lanes(&mut self, kind: LaneKind, priority: i32) -> Vec<&mut Lane> {
        let elapsed = self.scanned_at.elapsed();
        let is_due = |lane: &&mut Lane| {
            lane.kind == kind && lane.priority == priority && lane.is_due(elapsed)
        };
        self.lanes.iter_mut().filter(is_due).collect()
    }

    /// The groups of lanes of keys.
    pub(crate) fn groups(&self) -> Vec<GroupId> {
        let limited = self.lanes.iter().filter(|lane| lane.kind == LaneKind::Limited);
        limited.map(Lane::group).collect()
    }

    /// Whether the last scan has read all lanes. Only then nothing else can be due.
    pub(crate) fn are_complete(&self) -> bool {
        self.complete
    }

    /// When the next task is due that does not wait in the lane of a key.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        let lanes = self.lanes.iter().filter(|lane| lane.kind != LaneKind::Limited);
        let first = lanes.filter_map(|lane| lane.due_in).min()?;
        Some(first.saturating_sub(self.scanned_at.elapsed()))
    }

    /// Scans all lanes if that is cheap enough, else the known ones from their positions on.
    pub(crate) async fn scan(
        &mut self,
        inner: &StoreInner,
        known: &KnownLimits,
    ) -> Result<(), StoreError> {
        self.changed = false;
        self.complete = self.until_complete().is_zero();
        self.scanned_at = Instant::now();
        if !self.complete {
            return self.scan_known_lanes(inner).await;
        }
        let took = self.scan_all_lanes(inner, known).await?;
        self.last_complete = Some((Instant::now(), took));
        self.slow = if took > CHEAP { self.slow.saturating_add(1) } else { 0 };
        Ok(())
    }

    fn until_complete(&self) -> Duration {
        match self.last_complete {
            Some((ended, took)) if self.slow >= SLOW_IN_A_ROW => {
                (took * RATION).min(RATION_MAX).saturating_sub(ended.elapsed())
            }
            _ => Duration::ZERO,
        }
    }

    async fn scan_all_lanes(
        &mut self,
        inner: &StoreInner,
        known: &KnownLimits,
    ) -> Result<Duration, StoreError> {
        let client = inner.connections.work().await?;
        let begun = Instant::now();
        let Lanes { queues, classes, lowest_priority, .. } = &self.wanted;
        let rows = client
            .query_cached(&inner.schema.sql(SCAN_HEADS), &[queues, classes, lowest_priority])
            .await?;
        let took = begun.elapsed();
        let lanes = rows.iter().map(|row| {
            let (queue, class): (String, String) = (read(row, "queue"), read(row, "task_class"));
            Lane {
                kind: known.kind(&queue, &class),
                queue,
                class,
                priority: row.get("priority"),
                from: (row.get("due_at"), row.get("task_id")),
                due_in: Some(from_micros(row.get("due_in_us"))),
            }
        });
        self.lanes = lanes.collect();
        Ok(took)
    }

    async fn scan_known_lanes(&mut self, inner: &StoreInner) -> Result<(), StoreError> {
        let client = inner.connections.work().await?;
        let queues: Vec<&str> = self.lanes.iter().map(|lane| lane.queue.as_str()).collect();
        let classes: Vec<&str> = self.lanes.iter().map(|lane| lane.class.as_str()).collect();
        let priorities: Vec<i32> = self.lanes.iter().map(|lane| lane.priority).collect();
        let before = |time: RawTime| RawTime(time.0.saturating_sub(MARGIN_US));
        let times: Vec<RawTime> = self.lanes.iter().map(|lane| before(lane.from.0)).collect();
        let tasks: Vec<i64> = vec![0; self.lanes.len()];
        let rows = client
            .query_cached(
                &inner.schema.sql(SCAN_KNOWN_HEADS),
                &[&queues, &classes, &priorities, &times, &tasks],
            )
            .await?;
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
    /// The lane from which tasks are moved to the lanes of a group, from its beginning on.
    pub(crate) fn intake((queue, class, priority): &GroupId) -> Self {
        Self {
            kind: LaneKind::Intake,
            queue: plain_queue(queue).to_owned(),
            class: class.clone(),
            priority: *priority,
            from: (RawTime(i64::MIN), 0),
            due_in: None,
        }
    }

    fn group(&self) -> GroupId {
        (self.queue.clone(), self.class.clone(), self.priority)
    }

    fn is_due(&self, elapsed: Duration) -> bool {
        self.due_in.is_some_and(|due_in| due_in <= elapsed)
    }
}
