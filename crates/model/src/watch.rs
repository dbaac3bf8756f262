//! What goes on now: what stores are asked for by those who watch, and what can
//! be said about it. All of it is read by keys and up to limits, however much
//! history there is.
//!
//! There is no index by the time of an end: it would cost every task something,
//! for the sake of those who look. So endings are looked for where they must be:
//! at tasks that were just seen to run or to be next, and at those whose ids are
//! near to theirs, because tasks that are created together end together.

mod look;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::attempt::AttemptId;
use crate::instance::{InstanceId, InstanceRow};
use crate::queue::{Count, QueueRow};
use crate::report::ProgressRow;
use crate::task::{TaskId, TaskStatus};

pub use look::Look;

/// What is under way, and what comes next.
#[derive(Debug, Clone, PartialEq)]
pub struct Moving {
    /// The time, by the database's clock.
    pub now: Timestamp,
    /// The newest task; none was ever created if there is none.
    pub newest: Option<TaskId>,
    /// What engines hold, the oldest first.
    pub held: Vec<HeldRow>,
    /// The first tasks of each lane that are due, or will be soon.
    pub next: Vec<NextTask>,
}

/// How much of what comes next is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovingLook {
    /// So many of each lane.
    pub per_lane: i64,
    /// Those that will be due within this time, too.
    pub soon: Duration,
}

impl Unhappy {
    /// They are counted no further than this: each has to be looked at, because
    /// somebody may have sent it back.
    pub const COUNTED_MAX: i64 = 10_000;

    /// From what was counted, one more than the limit at the most.
    #[must_use]
    pub fn of(failed: i64, cancelled: i64) -> Self {
        let count = |seen: i64| Count {
            counted: seen.clamp(0, Self::COUNTED_MAX),
            and_more: seen > Self::COUNTED_MAX,
        };
        Self { failed: count(failed), cancelled: count(cancelled) }
    }
}

impl MovingLook {
    /// More lanes than these are not looked at.
    pub const LANES_MAX: i32 = 1_000;
    /// More tasks than these are not read, of all lanes together.
    pub const TASKS_MAX: i64 = 20_000;
}

/// An attempt that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldRow {
    /// The task.
    pub task_id: TaskId,
    /// The attempt.
    pub attempt: i32,
    /// Its class.
    pub task_class: String,
    /// Its queue.
    pub queue: String,
    /// Its priority.
    pub priority: i32,
    /// Who holds it.
    #[serde(skip)]
    pub instance_id: InstanceId,
    /// Since when.
    pub claimed_at: Timestamp,
    /// How far it was when it last said so.
    pub progress: Option<ProgressRow>,
}

/// A task that waits at the beginning of its lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextTask {
    /// The task.
    pub task_id: TaskId,
    /// Its queue.
    pub queue: String,
    /// Its class.
    pub task_class: String,
    /// Its priority.
    pub priority: i32,
    /// From when on it may run.
    pub due_at: Timestamp,
}

/// Where endings are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndingsLook {
    /// At tasks with ids from the first to the last of each of these pairs.
    pub ids: Vec<(TaskId, TaskId)>,
    /// So many of each pair, the highest ids first.
    pub limit: i64,
    /// Only those that are not older than this, by the database's clock.
    pub age_max: Duration,
}

impl EndingsLook {
    /// Nowhere yet.
    #[must_use]
    pub fn new(limit: i64, age_max: Duration) -> Self {
        Self { ids: Vec::new(), limit, age_max }
    }

    /// At one task, too.
    pub fn of(&mut self, id: TaskId) {
        self.ids.push((id, id));
    }

    /// At all tasks that came after this one, too.
    pub fn after(&mut self, id: TaskId) {
        self.ids.push((TaskId(id.0.saturating_add(1)), TaskId(i64::MAX)));
    }

    /// Below these, too. Those that are near to each other are looked at once.
    pub fn below(&mut self, mut ids: Vec<TaskId>, places_max: usize) {
        ids.sort_by(|one, other| other.cmp(one));
        let mut last = i64::MAX;
        ids.retain(|id| {
            let apart = last == i64::MAX || last - id.0 >= self.limit;
            last = if apart { id.0 } else { last };
            apart
        });
        self.ids.extend(ids.into_iter().take(places_max).map(|id| (TaskId(0), id)));
    }
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EndingRow {
    /// The task.
    pub task_id: TaskId,
    /// The attempt.
    pub attempt: i32,
    /// Its class.
    pub task_class: String,
    /// Its queue.
    pub queue: String,
    /// The life that held it, if one did.
    #[serde(skip)]
    pub instance_id: Option<InstanceId>,
    /// The name of the engine.
    pub instance: Option<String>,
    /// When it began; `None` if it never did.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub stopped_at: Timestamp,
    /// The status that it ended the task with; `None`: the task goes on.
    pub ends_task: Option<TaskStatus>,
    /// When the next attempt is due, if the task goes on.
    pub retry_at: Option<Timestamp>,
    /// The error, if it failed: as `exception: message`, cut to 500 characters.
    /// An attempt that has none and does not end its task was snoozed.
    pub error: Option<String>,
}

impl EndingRow {
    /// Which attempt.
    #[must_use]
    pub fn id(&self) -> AttemptId {
        AttemptId { task_id: self.task_id, attempt: self.attempt }
    }

    /// How long it ran.
    #[must_use]
    pub fn lasted(&self) -> Option<Duration> {
        let started = self.started_at?;
        Some(Duration::try_from(self.stopped_at.duration_since(started)).unwrap_or_default())
    }
}

/// What came of the attempts of a class lately.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassFigures {
    /// The class.
    pub task_class: String,
    /// Attempts that ended.
    pub ended: usize,
    /// Those of them that failed.
    pub failed: usize,
    /// Half of them took no longer, in seconds.
    pub run_secs_p50: Option<f64>,
    /// Of twenty, nineteen took no longer, in seconds.
    pub run_secs_p95: Option<f64>,
    /// The last error.
    pub last_error: Option<String>,
}

/// What ended within a time, by class.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Lately {
    /// The time that this is about, in seconds.
    pub secs: f64,
    /// Attempts that ended, and were found.
    pub ended: usize,
    /// Those of them that failed.
    pub failed: usize,
    /// There may be more: the limit of what is read was met.
    pub and_more: bool,
    /// About how many end in a second.
    pub per_sec: f64,
    /// The same by class, the busiest first.
    pub classes: Vec<ClassFigures>,
}

impl Lately {
    /// Sums up what ended not longer ago than this. `limit` is how many were
    /// looked for at each place.
    #[must_use]
    pub fn of(endings: &[EndingRow], now: Timestamp, time: Duration, limit: i64) -> Self {
        let mut by_class: BTreeMap<&str, Vec<&EndingRow>> = BTreeMap::new();
        let (mut found, mut oldest) = (0_u32, Duration::ZERO);
        for ending in endings {
            let age = age(ending.stopped_at, now);
            if age <= time {
                by_class.entry(&ending.task_class).or_default().push(ending);
                found += 1;
                oldest = oldest.max(age);
            }
        }
        let and_more = i64::from(found) >= limit;
        // What was found of more is the newest, and began with the oldest of it.
        let covered = if and_more { oldest.max(Duration::from_millis(1)) } else { time };
        let mut classes: Vec<_> =
            by_class.into_iter().map(|(class, endings)| figures(class, &endings)).collect();
        classes.sort_by_key(|class| std::cmp::Reverse(class.ended));
        Self {
            secs: time.as_secs_f64(),
            ended: found as usize,
            failed: classes.iter().map(|class| class.failed).sum(),
            and_more,
            per_sec: f64::from(found) / covered.as_secs_f64(),
            classes,
        }
    }
}

fn age(time: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(time)).unwrap_or_default()
}

fn figures(class: &str, endings: &[&EndingRow]) -> ClassFigures {
    let mut times: Vec<f64> =
        endings.iter().filter_map(|ending| Some(ending.lasted()?.as_secs_f64())).collect();
    times.sort_by(f64::total_cmp);
    let failures = || endings.iter().filter(|ending| ending.error.is_some());
    let last = failures().max_by_key(|ending| ending.stopped_at);
    ClassFigures {
        task_class: class.to_owned(),
        ended: endings.len(),
        failed: failures().count(),
        run_secs_p50: quantile(&times, 50),
        run_secs_p95: quantile(&times, 95),
        last_error: last.and_then(|ending| ending.error.clone()),
    }
}

/// The smallest value that so many of a hundred do not exceed.
fn quantile(sorted: &[f64], percent: usize) -> Option<f64> {
    let at = (sorted.len() * percent).div_ceil(100);
    sorted.get(at.saturating_sub(1)).copied()
}

/// How many tasks ended badly, and wait for somebody's decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Unhappy {
    /// Given up.
    pub failed: Count,
    /// Cancelled.
    pub cancelled: Count,
}

/// An engine and its workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineFigures {
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
pub struct QueueFigures {
    /// The queue.
    #[serde(flatten)]
    pub row: QueueRow,
    /// How long the one that has waited longest has been due, in seconds.
    pub oldest_due_secs: Option<f64>,
}

/// All figures at one time. The same for `stats`, `top` and a dashboard.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
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
    pub unhappy: Unhappy,
    /// What ended in the last minute.
    pub last_minute: Lately,
    /// What ended in the last hour.
    pub last_hour: Lately,
    /// Queues, by name.
    pub queues: Vec<QueueFigures>,
    /// Engines that are alive, by name.
    pub engines: Vec<EngineFigures>,
}

/// So many endings are read at the most, for figures of what ended lately.
const ENDINGS_MAX: i64 = 5_000;
/// Around so many places they are looked for.
const PLACES_MAX: u8 = 10;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

impl Moving {
    /// Where what has just ended is likely to be: below the newest task, below
    /// the first task of each lane, and below what runs.
    pub(crate) fn look_for_endings(&self) -> EndingsLook {
        let mut near: Vec<TaskId> = self.newest.into_iter().collect();
        let mut lanes = BTreeMap::new();
        for next in &self.next {
            let first = lanes.entry((&next.queue, &next.task_class, next.priority));
            let first = first.or_insert(next.task_id);
            *first = next.task_id.min(*first);
        }
        near.extend(lanes.into_values());
        near.extend(self.held.iter().map(|held| held.task_id));
        let mut look = EndingsLook::new(ENDINGS_MAX / i64::from(PLACES_MAX), HOUR);
        look.below(near, PLACES_MAX.into());
        look.limit = ENDINGS_MAX / i64::try_from(look.ids.len().max(1)).unwrap_or(1);
        look
    }
}

impl Figures {
    /// Puts together what a store was asked for; `per_place` is how many endings
    /// were looked for at each place.
    #[must_use]
    pub fn of(
        moving: &Moving,
        endings: &[EndingRow],
        per_place: i64,
        unhappy: Unhappy,
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
        let lately = |time| Lately::of(endings, moving.now, time, per_place);
        let oldest = |queue: &QueueRow| {
            let of_queue = moving.next.iter().filter(|next| next.queue == queue.name);
            let oldest = of_queue.map(|next| next.due_at).min()?;
            (oldest <= moving.now).then(|| age(oldest, moving.now).as_secs_f64())
        };
        let mut engines: Vec<_> = engines
            .iter()
            .filter(|engine| engine.is_alive())
            .map(|engine| EngineFigures {
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
            unhappy,
            last_minute: lately(MINUTE),
            last_hour: lately(HOUR),
            queues: queues
                .into_iter()
                .map(|row| QueueFigures { oldest_due_secs: oldest(&row), row })
                .collect(),
            engines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(id: i64, class: &str, ago_secs: i64, ran_ms: i64, error: Option<&str>) -> EndingRow {
        let stopped = Timestamp::from_second(1_000_000 - ago_secs).unwrap();
        EndingRow {
            task_id: TaskId(id),
            attempt: 1,
            task_class: class.to_owned(),
            queue: "default".to_owned(),
            instance_id: None,
            instance: None,
            started_at: Some(stopped - jiff::SignedDuration::from_millis(ran_ms)),
            stopped_at: stopped,
            ends_task: None,
            retry_at: None,
            error: error.map(str::to_owned),
        }
    }

    #[test]
    fn figures_of_what_ended_lately() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let mut endings: Vec<_> = (1..=20).map(|n| ending(n, "a", 5, n * 100, None)).collect();
        endings.push(ending(21, "b", 50, 10, Some("old")));
        endings.push(ending(22, "b", 40, 10, Some("new")));
        endings.push(ending(23, "b", 100, 10, None));
        let lately = Lately::of(&endings, now, Duration::from_secs(60), 100);
        assert_eq!((lately.ended, lately.failed, lately.and_more), (22, 2, false));
        assert!((lately.per_sec - 22.0 / 60.0).abs() < 1e-9);
        let [a, b] = &lately.classes[..] else { panic!("two classes, not {lately:?}") };
        assert_eq!((a.ended, a.failed, a.last_error.as_deref()), (20, 0, None));
        assert_eq!((a.run_secs_p50, a.run_secs_p95), (Some(1.0), Some(1.9)));
        assert_eq!((b.ended, b.failed, b.last_error.as_deref()), (2, 2, Some("new")));
        let cut = Lately::of(&endings, now, Duration::from_secs(60), 22);
        assert!(cut.and_more && (cut.per_sec - 22.0 / 50.0).abs() < 1e-9, "{cut:?}");
        let nothing = Lately::of(&[], now, Duration::from_secs(60), 100);
        assert_eq!((nothing.ended, nothing.classes.len()), (0, 0));
    }

    #[test]
    fn places_that_are_near_to_each_other_are_one() {
        let mut look = EndingsLook::new(100, MINUTE);
        look.below([5, 950, 1000, 900, 850].map(TaskId).to_vec(), 9);
        let places: Vec<_> = look.ids.iter().map(|(from, to)| (from.0, to.0)).collect();
        assert_eq!(places, [(0, 1000), (0, 900), (0, 5)]);
        look.ids.clear();
        look.below((0..9).map(|n| TaskId(n * 1000)).collect(), 3);
        assert_eq!(look.ids.len(), 3);
    }

    #[test]
    fn quantiles_of_few() {
        assert_eq!(quantile(&[], 50), None);
        assert_eq!(quantile(&[3.0], 50), Some(3.0));
        assert_eq!(quantile(&[3.0], 95), Some(3.0));
        assert_eq!(quantile(&[1.0, 2.0], 50), Some(1.0));
        assert_eq!(quantile(&[1.0, 2.0], 95), Some(2.0));
    }
}
