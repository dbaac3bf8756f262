//! One bounded step of a search, as a store answers it.

use jiff::Timestamp;

use task_engine_core::filter::{FilterTime, FoundTask};
use task_engine_core::task::{TaskId, TaskStatus};

/// One step of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// Where to look.
    pub source: ScanSource,
    /// The lowest id.
    pub from: TaskId,
    /// The lowest id above.
    pub before: TaskId,
    /// How many rows of the base may be read.
    pub rows: u32,
    /// How many of those tasks may be returned.
    pub tasks: u32,
    /// Only tasks of these classes; a store may return others, too.
    pub classes: Option<Vec<String>>,
    /// Only tasks of these queues; a store may return others, too.
    pub queues: Option<Vec<String>>,
    /// Only tasks created then; a store may return others, too.
    pub created: Vec<TimeBound>,
    /// Only tasks of which an attempt ended then; a store may return others, too.
    pub ended: Vec<TimeBound>,
    /// Only tasks of which an attempt has an error; a store may return others, too.
    pub with_error: bool,
    /// Whether parameters and context are needed.
    pub with_json: bool,
}

/// The place in which tasks are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanSource {
    /// Among all.
    All,
    /// The tasks of these statuses, which are few: never `stopped`.
    WithStatus(Vec<TaskStatus>),
    /// Among those of a flow.
    Flow(String),
    /// Among these.
    Ids(Vec<TaskId>),
}

/// A limit on a time, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeBound {
    /// The times at or after this time.
    From(FilterTime),
    /// The times at or before this time.
    Until(FilterTime),
}

/// The tasks of a step.
#[derive(Debug, Clone)]
pub struct ScanPage {
    /// Tasks, newest first.
    pub tasks: Vec<FoundTask>,
    /// All from this id on has been looked at.
    ///
    /// `None`: all there is.
    pub down_to: Option<TaskId>,
    /// The time by the database's clock.
    pub now: Timestamp,
}

impl Scan {
    /// Returns the times between which a task was created, as the database's clock is.
    #[must_use]
    pub fn created_between(&self, now: Timestamp) -> TimeRange {
        between(&self.created, now)
    }

    /// Returns the times between which one of its attempts ended.
    #[must_use]
    pub fn ended_between(&self, now: Timestamp) -> TimeRange {
        between(&self.ended, now)
    }

    /// Returns the task whose own id is the name of the flow, if it is one.
    #[must_use]
    pub fn own_task_of_flow(&self) -> Option<TaskId> {
        match &self.source {
            ScanSource::Flow(name) => {
                name.parse().ok().filter(|id: &TaskId| id.to_string() == *name)
            }
            _ => None,
        }
    }
}

/// The range from the first of these times until the second, if there is one.
pub type TimeRange = (Option<Timestamp>, Option<Timestamp>);

fn between(bounds: &[TimeBound], now: Timestamp) -> TimeRange {
    let (mut from, mut until) = (None, None);
    for bound in bounds {
        match *bound {
            TimeBound::From(time) => from = from.max(Some(time.resolve(now))),
            TimeBound::Until(time) => until = earlier(until, time.resolve(now)),
        }
    }
    (from, until)
}

fn earlier(one: Option<Timestamp>, other: Timestamp) -> Option<Timestamp> {
    Some(one.map_or(other, |one| one.min(other)))
}

/// The time of creation of some tasks.
#[derive(Debug, Clone)]
pub struct CreationTimes {
    /// For each requested id, the nearest task at or below it, if any.
    pub tasks: Vec<Option<(TaskId, Timestamp)>>,
    /// The time by the database's clock.
    pub now: Timestamp,
}
