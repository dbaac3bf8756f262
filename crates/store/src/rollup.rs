//! Per-minute counters: how many attempts end, how long they run, and how long their
//! tasks have waited.
//!
//! Engines count by minute and class, and send the whole counts of a minute, never a
//! difference, so that a repeated row counts once. Charts read these few rows and no
//! history.
//!
//! An attempt that was lost with its engine is not counted: it has no run time.

mod histogram;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::contract::Store;
use crate::error::StoreError;
use task_engine_core::attempt::{AttemptRecord, NextState};
use task_engine_core::task::TaskStatus;

pub use histogram::{BOUNDS_MS, BUCKETS, TimeHistogram, bucket};

/// The most classes that an engine counts separately within a minute.
pub const CLASSES_MAX: usize = 50;
/// The name under which all other classes are summed.
pub const OTHER_CLASSES: &str = "";
/// The time for which rollups are kept: a day, and the part of an hour before it that a chart
/// shows.
pub const KEPT: Duration = Duration::from_secs(25 * 3600);

const MINUTE: Duration = Duration::from_secs(60);

/// The kind under which an attempt is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptKind {
    /// It did its work.
    Ok,
    /// It failed, whether or not it is tried again.
    Failed,
    /// It was cancelled, released or snoozed.
    Other,
}

impl AttemptKind {
    /// Returns the kind under which this record is counted.
    #[must_use]
    pub fn of(ending: &AttemptRecord) -> Self {
        match ending.next {
            NextState::End(TaskStatus::Stopped) => Self::Ok,
            NextState::End(TaskStatus::Failed) => Self::Failed,
            // Released or snoozed: no retry is used.
            NextState::Wait { retry_number, .. } if retry_number == ending.retry_number => {
                Self::Other
            }
            NextState::Wait { .. } => Self::Failed,
            NextState::End(_) => Self::Other,
        }
    }
}

/// The counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RollupCounts {
    /// Attempts that did their work.
    pub ok: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were cancelled, released or snoozed.
    pub other: u64,
    /// How long all of them ran together, in microseconds.
    pub run_us: u64,
    /// How long each of those ran that did.
    pub run: TimeHistogram,
    /// The queue latency of each of those: the time since the task was due.
    pub wait: TimeHistogram,
}

impl RollupCounts {
    /// Returns the number of ended attempts.
    ///
    /// It grows with every count.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ok + self.failed + self.other
    }

    /// Counts one attempt, with its run time and queue latency if it ran.
    pub fn add(&mut self, kind: AttemptKind, ran: Option<(Duration, Duration)>) {
        match kind {
            AttemptKind::Ok => self.ok += 1,
            AttemptKind::Failed => self.failed += 1,
            AttemptKind::Other => self.other += 1,
        }
        if let Some((lasted, waited)) = ran {
            self.run_us += u64::try_from(lasted.as_micros()).unwrap_or(u64::MAX >> 20);
            self.run.add(lasted);
            self.wait.add(waited);
        }
    }
}

/// The counters of an engine for one class in one minute, so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassMinute {
    /// The minute of the database's clock, in minutes since 1970.
    pub minute: i64,
    /// How often that clock was set back: a repeated minute is another row.
    pub generation: i32,
    /// The class, or [`OTHER_CLASSES`].
    pub class: String,
    /// The numbers.
    pub counts: RollupCounts,
}

/// A query for rollups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollupQuery {
    /// From the minute that was so long ago until now; no longer than [`KEPT`].
    pub over: Duration,
    /// In steps of this length: whole minutes, at least one.
    pub step: Duration,
}

impl RollupQuery {
    /// Returns the time that is looked at, in seconds.
    #[must_use]
    pub fn over_secs(&self) -> i64 {
        i64::try_from(self.over.min(KEPT).as_secs()).unwrap_or(0)
    }

    /// Returns the length of a step, in seconds.
    #[must_use]
    pub fn step_secs(&self) -> i64 {
        let minutes = self.step.min(KEPT).as_secs().div_ceil(MINUTE.as_secs()).max(1);
        i64::try_from(minutes * MINUTE.as_secs()).unwrap_or(60)
    }
}

/// The counters of all engines for one class in one step of time.
#[derive(Debug, Clone, PartialEq)]
pub struct RollupRow {
    /// The start of the step.
    pub at: Timestamp,
    /// The class, or [`OTHER_CLASSES`].
    pub class: String,
    /// Attempts that did their work.
    pub ok: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were cancelled, released or snoozed.
    pub other: u64,
    /// How long all of them ran together, in seconds.
    pub run_secs_sum: f64,
    /// How long each of those ran that did.
    pub run: TimeHistogram,
    /// The queue latency of each of those: the time since the task was due.
    pub wait: TimeHistogram,
}

/// The counters of all engines for one class over a whole time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClassTotal {
    /// The class, or [`OTHER_CLASSES`].
    pub class: String,
    /// Attempts that did their work.
    pub ok: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were cancelled, released or snoozed.
    pub other: u64,
    /// How long all of them ran together, in seconds.
    pub run_secs_sum: f64,
    /// How long each of those ran that did.
    pub run: TimeHistogram,
    /// The queue latency of each of those: the time since the task was due.
    pub wait: TimeHistogram,
}

impl ClassTotal {
    /// Returns how many attempts have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ok + self.failed + self.other
    }

    /// Returns one total for each class, the busiest first.
    ///
    /// Every page, command and endpoint sums rows here, so that they agree.
    #[must_use]
    pub fn sum<'a>(rows: impl IntoIterator<Item = &'a RollupRow>) -> Vec<Self> {
        let mut totals: BTreeMap<&str, Self> = BTreeMap::new();
        for row in rows {
            let total = totals.entry(&row.class).or_default();
            total.ok += row.ok;
            total.failed += row.failed;
            total.other += row.other;
            total.run_secs_sum += row.run_secs_sum;
            total.run.merge(&row.run);
            total.wait.merge(&row.wait);
        }
        let mut totals: Vec<_> = totals
            .into_iter()
            .map(|(class, total)| Self { class: class.to_owned(), ..total })
            .collect();
        totals.sort_by_key(|total| std::cmp::Reverse(total.ended()));
        totals
    }
}

/// Returns the counters since the start of the minute that was an hour ago: the same rows for
/// `stats`, `top`, metrics and the chart of the hour.
pub async fn last_hour(store: &dyn Store) -> Result<Vec<RollupRow>, StoreError> {
    let hour = Duration::from_secs(3600);
    store.rollups(RollupQuery { over: hour, step: MINUTE }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_covers_whole_minutes() {
        let look = |over, step| {
            let look =
                RollupQuery { over: Duration::from_secs(over), step: Duration::from_secs(step) };
            (look.over_secs(), look.step_secs())
        };
        assert_eq!(look(3600, 60), (3600, 60));
        assert_eq!(look(0, 0), (0, 60));
        assert_eq!(look(3600, 61), (3600, 120));
        assert_eq!(look(u64::MAX, u64::MAX), (90_000, 90_000));
    }

    #[test]
    fn counts_and_times_are_summed() {
        let mut counts = RollupCounts::default();
        let ran =
            |lasted, waited| Some((Duration::from_millis(lasted), Duration::from_millis(waited)));
        counts.add(AttemptKind::Ok, ran(5, 0));
        counts.add(AttemptKind::Failed, ran(2000, 40));
        counts.add(AttemptKind::Other, None);
        assert_eq!((counts.ok, counts.failed, counts.other, counts.ended()), (1, 1, 1, 3));
        assert_eq!(counts.run_us, 2_005_000);
        assert_eq!((counts.run.counts[3], counts.run.counts[11], counts.run.total()), (1, 1, 2));
        assert_eq!((counts.wait.counts[0], counts.wait.counts[5], counts.wait.total()), (1, 1, 2));
        assert_eq!((counts.run.max_us, counts.wait.max_us), (2_000_000, 40_000));
    }
}
