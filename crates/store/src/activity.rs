//! Current activity: running tasks, recent endings and the next tasks.
//!
//! All of it is read by keys and up to limits, so the size of the history does not matter.
//!
//! There is no index on the time of an end: it would cost every task something. Endings
//! are searched near tasks that were just running or next, and at ids close to theirs,
//! because tasks that are created together end together.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use task_engine_core::attempt::AttemptId;
use task_engine_core::instance::InstanceId;
use task_engine_core::progress::ProgressRow;
use task_engine_core::queue::BoundedCount;
use task_engine_core::task::{TaskId, TaskStatus};

/// The most endings that are read to find the last errors.
const ENDINGS_MAX: i64 = 5_000;
/// The most ids near which endings are searched.
const PLACES_MAX: u8 = 10;
const HOUR: Duration = Duration::from_secs(3600);

/// Running tasks and the next ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Activity {
    /// The time, by the database's clock.
    pub now: Timestamp,
    /// The newest task; none was ever created if there is none.
    pub newest: Option<TaskId>,
    /// The attempts that engines hold, oldest first.
    pub held: Vec<HeldAttempt>,
    /// The first tasks of each lane that are due, or will be soon.
    pub next: Vec<NextTask>,
}

/// The number of next tasks to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivityQuery {
    /// This many of each lane.
    pub per_lane: i64,
    /// Also tasks that are due within this time.
    pub soon: Duration,
}

impl FailureCounts {
    /// They are counted no further than this: each has to be looked at, because
    /// it may have been retried.
    pub const COUNTED_MAX: i64 = 10_000;

    /// Creates a count from a number that was counted up to one more than the limit.
    #[must_use]
    pub fn of(failed: i64, cancelled: i64) -> Self {
        let count = |seen: i64| BoundedCount {
            counted: seen.clamp(0, Self::COUNTED_MAX),
            and_more: seen > Self::COUNTED_MAX,
        };
        Self { failed: count(failed), cancelled: count(cancelled) }
    }
}

impl ActivityQuery {
    /// More lanes than these are not looked at.
    pub const LANES_MAX: i32 = 1_000;
    /// More tasks than these are not read, of all lanes together.
    pub const TASKS_MAX: i64 = 20_000;
}

/// An attempt that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldAttempt {
    /// The task.
    pub task_id: TaskId,
    /// The attempt.
    pub attempt: i32,
    /// Its class.
    pub class: String,
    /// Its queue.
    pub queue: String,
    /// Its priority.
    pub priority: i32,
    /// The engine that holds it.
    #[serde(skip)]
    pub instance_id: InstanceId,
    /// Since when.
    pub claimed_at: Timestamp,
    /// Its last reported progress.
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
    pub class: String,
    /// Its priority.
    pub priority: i32,
    /// From when on it may run.
    pub due_at: Timestamp,
}

/// The ranges in which endings are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndingsQuery {
    /// At tasks with ids from the first to the last of each of these pairs.
    pub ids: Vec<(TaskId, TaskId)>,
    /// At most this many of each pair, the highest ids first.
    pub limit: i64,
    /// Only endings that are not older than this, by the database's clock.
    pub age_max: Duration,
}

impl EndingsQuery {
    /// Creates an empty list.
    #[must_use]
    pub fn new(limit: i64, age_max: Duration) -> Self {
        Self { ids: Vec::new(), limit, age_max }
    }

    /// Adds one task.
    pub fn of(&mut self, id: TaskId) {
        self.ids.push((id, id));
    }

    /// Adds all tasks that were created after this one.
    pub fn after(&mut self, id: TaskId) {
        self.ids.push((TaskId(id.0.saturating_add(1)), TaskId(i64::MAX)));
    }

    /// Adds a search below these ids.
    ///
    /// Ids that are close to each other are searched once.
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
    pub class: String,
    /// Its queue.
    pub queue: String,
    /// The engine session that held it, if one did.
    #[serde(skip)]
    pub instance_id: Option<InstanceId>,
    /// The name of the engine.
    pub instance: Option<String>,
    /// When it began; `None` if it never did.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub stopped_at: Timestamp,
    /// The status with which it ended the task; `None`: the task continues.
    pub ends_task: Option<TaskStatus>,
    /// When the next attempt is due, if the task continues.
    pub retry_at: Option<Timestamp>,
    /// The error, if it failed: as `exception: message`, cut to 500 characters.
    ///
    /// An attempt that has none and does not end its task was snoozed.
    pub error: Option<String>,
}

impl EndingRow {
    /// Returns the id of the attempt.
    #[must_use]
    pub fn id(&self) -> AttemptId {
        AttemptId { task_id: self.task_id, attempt: self.attempt }
    }

    /// Returns how long it ran.
    #[must_use]
    pub fn lasted(&self) -> Option<Duration> {
        let started = self.started_at?;
        Some(Duration::try_from(self.stopped_at.duration_since(started)).unwrap_or_default())
    }
}

/// The number of tasks that have failed or were cancelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FailureCounts {
    /// Given up.
    pub failed: BoundedCount,
    /// Cancelled.
    pub cancelled: BoundedCount,
}

impl Activity {
    /// Returns the ranges in which recent endings are likely.
    ///
    /// They are below the newest task, below the first task of each lane, and below the running
    /// tasks.
    #[must_use]
    pub fn endings_query(&self) -> EndingsQuery {
        let mut near: Vec<TaskId> = self.newest.into_iter().collect();
        let mut lanes = BTreeMap::new();
        for next in &self.next {
            let first = lanes.entry((&next.queue, &next.class, next.priority));
            let first = first.or_insert(next.task_id);
            *first = next.task_id.min(*first);
        }
        near.extend(lanes.into_values());
        near.extend(self.held.iter().map(|held| held.task_id));
        let mut look = EndingsQuery::new(ENDINGS_MAX / i64::from(PLACES_MAX), HOUR);
        look.below(near, PLACES_MAX.into());
        look.limit = ENDINGS_MAX / i64::try_from(look.ids.len().max(1)).unwrap_or(1);
        look
    }
}
