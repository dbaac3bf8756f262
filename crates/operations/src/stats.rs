//! Statistics of the current activity.
//!
//! All of it is read by keys and up to limits, however much history there is.
//!
//! There is no index by the time of an end, because it would make every task more
//! expensive. Recent endings are read near the ids of tasks that run or are next: tasks
//! that are created together end together.

mod snapshot;

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use task_engine_core::instance::InstanceRow;
use task_engine_core::queue::{BoundedCount, QueueRow};
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::activity::{Activity, EndingRow, FailureCounts};
use task_engine_store::rollup::{ClassTotal, RollupRow, TimeHistogram};

pub use snapshot::StatsSnapshot;

/// Recent statistics of a class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassStats {
    /// The class; empty for classes that engines counted together.
    pub class: String,
    /// Attempts that ended.
    pub ended: u64,
    /// Attempts that succeeded.
    pub succeeded: u64,
    /// Attempts that failed, retried or not.
    pub failed: u64,
    /// Attempts that were cancelled, released or snoozed.
    pub other: u64,
    /// The median run time, in seconds.
    pub run_secs_p50: Option<f64>,
    /// The 95th percentile of the run time, in seconds.
    pub run_secs_p95: Option<f64>,
    /// The median queue latency, in seconds.
    pub wait_secs_p50: Option<f64>,
    /// The 95th percentile of the queue latency, in seconds.
    pub wait_secs_p95: Option<f64>,
    /// The newest error among the attempts that were read: a sample.
    pub last_error: Option<String>,
}

/// Recent statistics by class, counted by engines.
///
/// Only the errors are a sample.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RecentStats {
    /// The length of the period in seconds.
    ///
    /// It starts with a whole minute.
    pub secs: f64,
    /// Attempts that ended.
    pub ended: u64,
    /// Attempts that succeeded.
    pub succeeded: u64,
    /// Attempts that failed, retried or not.
    pub failed: u64,
    /// Attempts that were cancelled, released or snoozed.
    pub other: u64,
    /// Ended attempts per second, since the first minute with one.
    pub per_sec: f64,
    /// By class, the busiest first.
    pub classes: Vec<ClassStats>,
}

impl RecentStats {
    /// Sums the minutes of the last `period`.
    ///
    /// `endings` have the last error of a class.
    #[must_use]
    pub fn of(
        rollups: &[RollupRow],
        endings: &[EndingRow],
        now: Timestamp,
        period: Duration,
    ) -> Self {
        let from = now.checked_sub(period).unwrap_or(Timestamp::MIN);
        let from = from.as_second().div_euclid(60) * 60;
        let within = || rollups.iter().filter(|row| row.at.as_second() >= from);
        let seconds_since = |at: Timestamp| now.duration_since(at).as_secs_f64().max(1.0);
        let classes: Vec<_> = ClassTotal::sum(within())
            .into_iter()
            .map(|total| {
                let last_error = last_error(endings, &total.class);
                class_stats(total, last_error)
            })
            .collect();
        let sum = |count: fn(&ClassStats) -> u64| classes.iter().map(count).sum::<u64>();
        let ended = sum(|class| class.ended);
        let first = within().map(|row| row.at).min();
        Self {
            secs: seconds_since(Timestamp::from_second(from).unwrap_or(now)),
            ended,
            succeeded: sum(|class| class.succeeded),
            failed: sum(|class| class.failed),
            other: sum(|class| class.other),
            per_sec: first.map_or(0.0, |first| to_f64(ended) / seconds_since(first)),
            classes,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // Counts are far below 2^53.
fn to_f64(count: u64) -> f64 {
    count as f64
}

fn age(time: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(time)).unwrap_or_default()
}

fn class_stats(total: ClassTotal, last_error: Option<String>) -> ClassStats {
    let secs = |times: &TimeHistogram, percent| Some(times.quantile(percent)?.as_secs_f64());
    ClassStats {
        ended: total.ended(),
        succeeded: total.ok,
        failed: total.failed,
        other: total.other,
        run_secs_p50: secs(&total.run, 50),
        run_secs_p95: secs(&total.run, 95),
        wait_secs_p50: secs(&total.wait, 50),
        wait_secs_p95: secs(&total.wait, 95),
        class: total.class,
        last_error,
    }
}

/// The last error of an attempt that an engine held. A task that was cancelled while it
/// waited has not failed.
fn last_error(endings: &[EndingRow], class: &str) -> Option<String> {
    let failures = endings.iter().filter(|ending| {
        ending.class == class
            && ending.instance_id.is_some()
            && ending.ends_task != Some(TaskStatus::Cancelled)
            && ending.error.is_some()
    });
    failures.max_by_key(|ending| ending.stopped_at).and_then(|ending| ending.error.clone())
}

/// An engine and its workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineStats {
    /// Its name.
    pub instance: String,
    /// How many workers it has.
    pub workers: i32,
    /// How many of them are busy.
    pub busy: i64,
    /// The age of its last heartbeat, in seconds.
    pub heartbeat_age_secs: f64,
}

/// A queue and the age of its oldest due task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueStats {
    /// The queue.
    #[serde(flatten)]
    pub row: QueueRow,
    /// How long its oldest due task has been due, in seconds.
    pub oldest_due_secs: Option<f64>,
}

/// All statistics at one time, for `stats`, `top` and the dashboard.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stats {
    /// The time, by the database's clock.
    pub at: Timestamp,
    /// The id of the newest task.
    pub newest_task: Option<TaskId>,
    /// Waiting tasks that are due.
    pub due: BoundedCount,
    /// Waiting tasks that are due later.
    pub later: BoundedCount,
    /// Running tasks.
    pub running: usize,
    /// Failed and cancelled tasks.
    #[serde(flatten)]
    pub failure_counts: FailureCounts,
    /// Attempts that ended in the last whole minute and since.
    pub last_minute: RecentStats,
    /// Attempts that ended in the last 60 whole minutes and since.
    pub last_hour: RecentStats,
    /// The names of the fields that come from a sample.
    pub sampled_fields: [&'static str; 1],
    /// Queues, by name.
    pub queues: Vec<QueueStats>,
    /// Engines that are alive, by name.
    pub engines: Vec<EngineStats>,
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

impl Stats {
    /// Combines rows of a store.
    ///
    /// `rollups` are those of the last hour; `endings` have the last errors.
    #[must_use]
    pub fn of(
        activity: &Activity,
        rollups: &[RollupRow],
        endings: &[EndingRow],
        failure_counts: FailureCounts,
        queues: Vec<QueueRow>,
        engines: &[InstanceRow],
    ) -> Self {
        let sum = |count: fn(&QueueRow) -> BoundedCount| {
            queues.iter().map(count).fold(BoundedCount::default(), |all, one| BoundedCount {
                counted: all.counted + one.counted,
                and_more: all.and_more || one.and_more,
            })
        };
        let (due, later) = (sum(|queue| queue.due), sum(|queue| queue.later));
        let recent = |period| RecentStats::of(rollups, endings, activity.now, period);
        let oldest = |queue: &QueueRow| {
            let of_queue = activity.next.iter().filter(|next| next.queue == queue.name);
            let oldest = of_queue.map(|next| next.due_at).min()?;
            (oldest <= activity.now).then(|| age(oldest, activity.now).as_secs_f64())
        };
        let mut engines: Vec<_> = engines
            .iter()
            .filter(|engine| engine.is_alive())
            .map(|engine| EngineStats {
                instance: engine.name.clone(),
                workers: engine.workers,
                busy: engine.held,
                heartbeat_age_secs: engine.heartbeat_age.as_secs_f64(),
            })
            .collect();
        engines.sort_by(|one, other| one.instance.cmp(&other.instance));
        Self {
            at: activity.now,
            newest_task: activity.newest,
            due,
            later,
            running: activity.held.len(),
            failure_counts,
            last_minute: recent(MINUTE),
            last_hour: recent(HOUR),
            sampled_fields: ["last_error"],
            queues: queues
                .into_iter()
                .map(|row| QueueStats { oldest_due_secs: oldest(&row), row })
                .collect(),
            engines,
        }
    }
}

#[cfg(test)]
mod tests;
