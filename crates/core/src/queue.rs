//! Queues: which workers serve them, which tasks wait in them, and which are paused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::instance::InstanceRow;
use crate::task::{InvalidTask, check_name};

/// A group of an engine's workers, and which tasks they take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The queues that they take tasks from.
    pub queues: Vec<String>,
    /// How many workers.
    pub workers: i32,
    /// They take only tasks of this priority or a higher one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest_priority: Option<i32>,
    /// They take only tasks of these classes, and no other worker of their engine
    /// takes tasks of these classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<String>>,
}

impl Pool {
    /// Workers that take every task of these queues.
    #[must_use]
    pub fn new(queues: Vec<String>, workers: i32) -> Self {
        Self { queues, workers, lowest_priority: None, classes: None }
    }

    /// Returns whether these workers take tasks of a class.
    ///
    /// `pools` are all pools of their engine: a class with workers of its own is left to those.
    #[must_use]
    pub fn takes_class(&self, class: &str, pools: &[Self]) -> bool {
        let has = |pool: &Self| pool.classes.iter().flatten().any(|name| name == class);
        if self.classes.is_some() { has(self) } else { !pools.iter().any(has) }
    }
}

/// Checks the name of a queue.
pub fn check_queue_name(name: &str) -> Result<(), InvalidTask> {
    check_name("queue", name.to_owned()).map(drop)
}

/// The tasks that a claimer takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lanes {
    /// Of these queues.
    pub queues: Vec<String>,
    /// Of these classes.
    pub classes: Vec<String>,
    /// Of this priority or a higher one.
    pub lowest_priority: i32,
    /// Whether the same engine has another claimer for other classes: then tasks
    /// of other classes must not wake this one.
    pub divided_by_class: bool,
}

impl Lanes {
    /// Returns all tasks of these queues and classes.
    #[must_use]
    pub fn new(queues: Vec<String>, classes: Vec<String>) -> Self {
        Self { queues, classes, lowest_priority: i32::MIN, divided_by_class: false }
    }

    /// Returns the tasks that the workers of a pool take, of these classes.
    ///
    /// `pools` are all pools of its engine.
    #[must_use]
    pub fn of(pool: &Pool, pools: &[Pool], mut classes: Vec<String>) -> Self {
        classes.retain(|class| pool.takes_class(class, pools));
        Self {
            lowest_priority: pool.lowest_priority.unwrap_or(i32::MIN),
            divided_by_class: pools.iter().any(|pool| pool.classes.is_some()),
            ..Self::new(pool.queues.clone(), classes)
        }
    }
}

/// A request to pause a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePause {
    queue: String,
    reason: Option<String>,
}

/// The longest reason, in bytes.
pub const REASON_BYTES_MAX: usize = 1000;

/// The error of a queue that cannot be paused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPause {
    /// The name of the queue is invalid.
    #[error(transparent)]
    Queue(#[from] InvalidTask),
    /// The reason is longer than [`REASON_BYTES_MAX`] or has control characters.
    #[error(
        "a reason is a text of 1 to {REASON_BYTES_MAX} bytes without control characters; omit it if there is none"
    )]
    Reason,
}

impl QueuePause {
    /// Pauses this queue for this reason.
    pub fn new(queue: impl Into<String>, reason: Option<String>) -> Result<Self, InvalidPause> {
        let queue = check_name("queue", queue.into())?;
        let fits = |reason: &String| {
            (1..=REASON_BYTES_MAX).contains(&reason.len()) && !reason.chars().any(char::is_control)
        };
        match reason {
            Some(reason) if !fits(&reason) => Err(InvalidPause::Reason),
            reason => Ok(Self { queue, reason }),
        }
    }

    /// Returns the queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Returns the reason, if one was given.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

/// A paused queue: no engine takes tasks from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PausedQueue {
    /// Its name.
    #[serde(skip)]
    pub queue: String,
    /// The reason, if one was given.
    pub reason: Option<String>,
    /// Since when.
    pub paused_at: Timestamp,
}

/// The current state of a queue that has tasks waiting or running, is paused, or is
/// served by an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueRow {
    /// Its name.
    pub name: String,
    /// Waiting tasks that are due.
    pub due: BoundedCount,
    /// Waiting tasks that are due later.
    pub later: BoundedCount,
    /// Running tasks.
    pub running: i64,
    /// Set while it is paused.
    pub paused: Option<PausedQueue>,
}

/// A count up to a limit, so that counting many tasks stays cheap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BoundedCount {
    /// How many were counted.
    pub counted: i64,
    /// Whether there are more.
    pub and_more: bool,
}

impl BoundedCount {
    /// The most tasks that are counted in one lane.
    pub const PER_LANE_MAX: i64 = 100_000;

    /// Adds the tasks of one lane, counted up to one more than the limit.
    pub fn add(&mut self, tasks: i64) {
        self.counted += tasks.min(Self::PER_LANE_MAX);
        self.and_more |= tasks > Self::PER_LANE_MAX;
    }
}

/// Builds the list of queues from the tables of a store.
#[derive(Debug, Default)]
pub struct QueueListBuilder(BTreeMap<String, QueueRow>);

impl QueueListBuilder {
    /// The most lanes that are counted.
    pub const LANES_MAX: i32 = 10_000;

    /// Adds the waiting tasks of a lane, counted up to one more than the limit.
    pub fn waiting(&mut self, queue: &str, due: i64, later: i64) {
        let row = self.row(queue);
        row.due.add(due);
        row.later.add(later);
    }

    /// Sets how many tasks of this queue run.
    pub fn running(&mut self, queue: &str, count: i64) {
        self.row(queue).running = count;
    }

    /// Adds a queue that an engine serves.
    pub fn served(&mut self, queue: &str) {
        self.row(queue);
    }

    /// Marks a queue as paused.
    pub fn paused(&mut self, paused: PausedQueue) {
        let row = self.row(&paused.queue);
        row.paused = Some(paused);
    }

    /// Returns the queues, by name.
    #[must_use]
    pub fn into_rows(self) -> Vec<QueueRow> {
        self.0.into_values().collect()
    }

    fn row(&mut self, queue: &str) -> &mut QueueRow {
        self.0.entry(queue.to_owned()).or_insert_with(|| QueueRow {
            name: queue.to_owned(),
            due: BoundedCount::default(),
            later: BoundedCount::default(),
            running: 0,
            paused: None,
        })
    }
}

/// The workers of one engine that may take tasks from a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueService {
    /// The engine.
    pub instance: String,
    /// Workers that take its tasks of every priority.
    ///
    /// They may also serve other queues.
    pub workers: i32,
    /// Workers that take only tasks of a higher priority.
    pub reserved: i32,
}

/// Returns the live engines that serve a queue.
#[must_use]
pub fn queue_services(queue: &str, engines: &[InstanceRow]) -> Vec<QueueService> {
    let alive = engines.iter().filter(|engine| engine.is_alive());
    let services = alive.map(|engine| {
        let pools = engine.pools.iter().filter(|pool| pool.queues.iter().any(|name| name == queue));
        let (reserved, open): (Vec<_>, Vec<_>) =
            pools.partition(|pool| pool.lowest_priority.is_some());
        let sum = |pools: Vec<&Pool>| pools.iter().map(|pool| pool.workers).sum();
        QueueService { instance: engine.name.clone(), workers: sum(open), reserved: sum(reserved) }
    });
    services.filter(|service| service.workers + service.reserved > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_checks_queue_and_reason() {
        let reason = |text: &str| QueuePause::new("mail", Some(text.to_owned()));
        assert_eq!(reason("provider is down").unwrap().reason(), Some("provider is down"));
        assert_eq!(QueuePause::new("mail", None).unwrap().reason(), None);
        for bad in ["", "a\nb", "a\0b", &"x".repeat(1001)] {
            assert_eq!(reason(bad), Err(InvalidPause::Reason), "{bad:?}");
        }
        assert!(matches!(QueuePause::new("", None), Err(InvalidPause::Queue(_))));
    }

    #[test]
    fn count_stops_at_lane_limit() {
        let mut count = BoundedCount::default();
        count.add(7);
        assert_eq!(count, BoundedCount { counted: 7, and_more: false });
        count.add(BoundedCount::PER_LANE_MAX + 1);
        count.add(2);
        assert_eq!(count, BoundedCount { counted: BoundedCount::PER_LANE_MAX + 9, and_more: true });
    }
}
