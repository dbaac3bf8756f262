//! What goes on now: what stores are asked for by those who watch, and what can
//! be said about it. All of it is read by keys and up to limits, however much
//! history there is.
//!
//! There is no index by the time of an end: it would cost every task something,
//! for the sake of those who look. So endings are looked for where they must be:
//! at tasks that were just seen to run or to be next, and at those whose ids are
//! near to theirs, because tasks that are created together end together.

mod snapshot;

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use task_engine_core::instance::InstanceRow;
use task_engine_core::queue::{Count, QueueRow};
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::activity::{Activity, EndingRow, FailureCounts};
use task_engine_store::rollup::{ClassTotal, RollupRow, TimeHistogram};

pub use snapshot::StatsSnapshot;

/// What engines have counted of a class recent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassStats {
    /// The class; empty for all that engines did not tell apart.
    pub class: String,
    /// Attempts that ended.
    pub ended: u64,
    /// Those of them that did their work.
    pub succeeded: u64,
    /// Those of them that failed, whether or not they are retried.
    pub failed: u64,
    /// Those of them that did neither: cancelled, given back or snoozed.
    pub other: u64,
    /// Half of them took no longer, in seconds.
    pub run_secs_p50: Option<f64>,
    /// Of twenty, nineteen took no longer, in seconds.
    pub run_secs_p95: Option<f64>,
    /// Half of them had been due no longer, in seconds.
    pub wait_secs_p50: Option<f64>,
    /// Of twenty, nineteen had been due no longer, in seconds.
    pub wait_secs_p95: Option<f64>,
    /// The newest error among the attempts that a bounded look has found: a sample.
    pub last_error: Option<String>,
}

/// What engines have counted within a time, by class. Nothing of it is a sample but
/// the errors.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RecentStats {
    /// The time that this is about, in seconds: from the beginning of a minute.
    pub secs: f64,
    /// Attempts that ended.
    pub ended: u64,
    /// Those of them that did their work.
    pub succeeded: u64,
    /// Those of them that failed, whether or not they are retried.
    pub failed: u64,
    /// Those of them that did neither: cancelled, given back or snoozed.
    pub other: u64,
    /// How many ended in a second, since the first minute in which one did.
    pub per_sec: f64,
    /// The same by class, the busiest first.
    pub classes: Vec<ClassStats>,
}

impl RecentStats {
    /// Sums up the minutes from this long ago until now. `endings` are where the
    /// last error of a class is looked for.
    #[must_use]
    pub fn of(
        counted: &[RollupRow],
        endings: &[EndingRow],
        now: Timestamp,
        time: Duration,
    ) -> Self {
        let from = now.checked_sub(time).unwrap_or(Timestamp::MIN);
        let from = from.as_second().div_euclid(60) * 60;
        let within = || counted.iter().filter(|row| row.at.as_second() >= from);
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
            per_sec: first.map_or(0.0, |first| number(ended) / seconds_since(first)),
            classes,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // Counts are far below 2^53.
fn number(count: u64) -> f64 {
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

/// Of attempts that an engine held: what was cancelled before it began has not failed.
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
    /// How long ago it was heard of, in seconds.
    pub heartbeat_age_secs: f64,
}

/// A queue, and how long its oldest task has been due.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueStats {
    /// The queue.
    #[serde(flatten)]
    pub row: QueueRow,
    /// How long the one that has waited longest has been due, in seconds.
    pub oldest_due_secs: Option<f64>,
}

/// All figures at one time. The same for `stats`, `top` and a dashboard.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stats {
    /// The time, by the database's clock.
    pub at: Timestamp,
    /// The id of the newest task: as many were created at the most.
    pub newest_task: Option<TaskId>,
    /// Waiting tasks whose time has come.
    pub due: Count,
    /// Waiting tasks whose time is still to come.
    pub later: Count,
    /// Tasks in engines' hands.
    pub running: usize,
    /// Tasks that ended badly.
    #[serde(flatten)]
    pub failure_counts: FailureCounts,
    /// What ended in the last whole minute, and since.
    pub last_minute: RecentStats,
    /// What ended in the last 60 whole minutes, and since.
    pub last_hour: RecentStats,
    /// The names of the fields that were found by a bounded look, not counted.
    pub sampled_fields: [&'static str; 1],
    /// Queues, by name.
    pub queues: Vec<QueueStats>,
    /// Engines that are alive, by name.
    pub engines: Vec<EngineStats>,
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

impl Stats {
    /// Puts together what a store was asked for: what engines have counted in the
    /// last hour, and endings among which to find the last errors.
    #[must_use]
    pub fn of(
        moving: &Activity,
        counted: &[RollupRow],
        endings: &[EndingRow],
        failure_counts: FailureCounts,
        queues: Vec<QueueRow>,
        engines: &[InstanceRow],
    ) -> Self {
        let sum = |count: fn(&QueueRow) -> Count| {
            queues.iter().map(count).fold(Count::default(), |all, one| Count {
                counted: all.counted + one.counted,
                and_more: all.and_more || one.and_more,
            })
        };
        let (due, later) = (sum(|queue| queue.due), sum(|queue| queue.later));
        let recent = |time| RecentStats::of(counted, endings, moving.now, time);
        let oldest = |queue: &QueueRow| {
            let of_queue = moving.next.iter().filter(|next| next.queue == queue.name);
            let oldest = of_queue.map(|next| next.due_at).min()?;
            (oldest <= moving.now).then(|| age(oldest, moving.now).as_secs_f64())
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
            at: moving.now,
            newest_task: moving.newest,
            due,
            later,
            running: moving.held.len(),
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
mod tests {
    use task_engine_core::instance::InstanceId;
    use task_engine_store::activity::EndingsQuery;

    use super::*;

    fn ending(id: i64, class: &str, ago_secs: i64, error: Option<&str>) -> EndingRow {
        let stopped = Timestamp::from_second(1_000_000 - ago_secs).unwrap();
        EndingRow {
            task_id: TaskId(id),
            attempt: 1,
            class: class.to_owned(),
            queue: "default".to_owned(),
            instance_id: Some(InstanceId(1)),
            instance: None,
            started_at: Some(stopped),
            stopped_at: stopped,
            ends_task: None,
            retry_at: None,
            error: error.map(str::to_owned),
        }
    }

    fn counted(class: &str, ago_secs: i64, ok: u64, failed: u64) -> RollupRow {
        let second = (1_000_020 - ago_secs).div_euclid(60) * 60;
        let mut run = TimeHistogram::default();
        (0..ok + failed).for_each(|n| run.add(Duration::from_millis(n * 10)));
        RollupRow {
            at: Timestamp::from_second(second).unwrap(),
            class: class.to_owned(),
            ok,
            failed,
            other: 1,
            run_secs_sum: 0.0,
            run,
            wait: TimeHistogram::default(),
        }
    }

    #[test]
    fn sums_the_minutes_of_each_class() {
        // Twenty seconds into a minute.
        let now = Timestamp::from_second(1_000_040).unwrap();
        let rows = [
            counted("a", 200, 50, 0),
            counted("b", 60, 9, 10),
            counted("a", 60, 300, 0),
            counted("a", 0, 40, 0),
        ];
        let endings = [ending(1, "b", 50, Some("old")), ending(2, "b", 40, Some("new"))];
        let recent = RecentStats::of(&rows, &endings, now, Duration::from_secs(60));
        assert_eq!((recent.ended, recent.succeeded, recent.failed), (362, 349, 10));
        assert!((recent.secs - 80.0).abs() < 1e-9, "{}", recent.secs);
        assert!((recent.per_sec - 362.0 / 80.0).abs() < 1e-9, "{}", recent.per_sec);
        let [a, b] = &recent.classes[..] else { panic!("two classes, not {recent:?}") };
        assert_eq!((a.ended, a.failed, a.last_error.as_deref()), (342, 0, None));
        assert_eq!((b.ended, b.failed, b.other, b.last_error.as_deref()), (20, 10, 1, Some("new")));
        assert!(a.run_secs_p95.unwrap() <= 3.0, "{a:?}");
        let minutes = RecentStats::of(&rows, &[], now, Duration::from_secs(240));
        assert_eq!((minutes.ended, minutes.classes[0].ended), (413, 393));
        let nothing = RecentStats::of(&[], &[], now, Duration::from_secs(60));
        assert_eq!((nothing.ended, nothing.per_sec, nothing.classes.len()), (0, 0.0, 0));
    }

    #[test]
    fn rate_counts_from_the_first_ending() {
        let now = Timestamp::from_second(1_000_040).unwrap();
        let recent = RecentStats::of(&[counted("a", 0, 199, 0)], &[], now, HOUR);
        assert!((recent.per_sec - 10.0).abs() < 1e-9, "{}", recent.per_sec);
    }

    #[test]
    fn cancelled_waiting_tasks_are_no_errors() {
        let mut cancelled = ending(1, "a", 5, Some("Cancelled: by hand"));
        cancelled.instance_id = None;
        assert_eq!(last_error(&[cancelled], "a"), None);
    }

    #[test]
    fn places_that_are_near_to_each_other_are_one() {
        let mut look = EndingsQuery::new(100, MINUTE);
        look.below([5, 950, 1000, 900, 850].map(TaskId).to_vec(), 9);
        let places: Vec<_> = look.ids.iter().map(|(from, to)| (from.0, to.0)).collect();
        assert_eq!(places, [(0, 1000), (0, 900), (0, 5)]);
        look.ids.clear();
        look.below((0..9).map(|n| TaskId(n * 1000)).collect(), 3);
        assert_eq!(look.ids.len(), 3);
    }
}
