//! A schedule as it is stored.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::history::SkippedSlots;
use super::{InvalidDefinition, Overlap, ScheduleDefinition};
use crate::json::Json;
use crate::task::{NewTask, TaskId};

/// A schedule and its version.
///
/// Every change and every decided slot makes a new version. A write names the version it read and
/// fails if there is a newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ScheduleVersion {
    /// Unique even among schedules of the same name.
    pub id: i64,
    /// Grows with each write.
    pub version: i64,
}

/// The fields of a schedule that can be written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScheduleState {
    /// Its [`ScheduleDefinition`], if this version of the program can read it.
    pub definition: Json,
    /// The last declaration of an application ([`ScheduleDefinition::to_declaration`]).
    #[serde(skip)]
    pub declared: Option<String>,
    /// The overlap rule of the definition, in a column of its own.
    #[serde(skip)]
    pub overlap: Overlap,
    /// The start of intervals.
    pub anchor: Timestamp,
    /// Set while it is paused.
    pub paused: Option<SchedulePause>,
    /// Why it cannot fire, if so.
    pub error: Option<String>,
    /// The next slot to decide.
    ///
    /// `None` while it is paused or has an error.
    pub next_at: Option<Timestamp>,
}

/// Since when a schedule is paused, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchedulePause {
    /// Since when.
    pub at: Timestamp,
    /// The reason, if one was given.
    pub reason: Option<String>,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScheduleRow {
    /// Its name.
    pub name: String,
    /// Its id and version.
    #[serde(flatten)]
    pub version: ScheduleVersion,
    /// The fields that can be written.
    #[serde(flatten)]
    pub state: ScheduleState,
    /// The last slot that fired.
    pub last_slot: Option<Timestamp>,
    /// The task of that slot.
    ///
    /// It may have been removed since.
    pub last_task: Option<TaskId>,
    /// When it was first stored.
    pub created_at: Timestamp,
    /// When it was last changed.
    ///
    /// Firing is not a change.
    pub updated_at: Timestamp,
}

impl ScheduleRow {
    /// Returns its definition, if this version of the program can read it.
    pub fn definition(&self) -> Result<ScheduleDefinition, InvalidDefinition> {
        ScheduleDefinition::from_json(&self.state.definition)
    }
}

/// A write of one schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleWrite {
    /// Its name.
    pub name: String,
    /// The version it must have; `None` if it must not exist.
    pub expected: Option<ScheduleVersion>,
    /// The new state.
    pub state: ScheduleState,
}

/// The schedules that are due.
#[derive(Debug, Clone)]
pub struct DueSchedules {
    /// Schedules to fire now, the longest due first.
    pub rows: Vec<DueSchedule>,
    /// Whether other schedules are due but wait for a task to end.
    pub blocked: bool,
    /// The time until the next schedule is due.
    pub next_in: Option<Duration>,
    /// The database's time.
    pub now: Timestamp,
}

/// A schedule that is due.
#[derive(Debug, Clone)]
pub struct DueSchedule {
    /// The schedule.
    pub row: ScheduleRow,
    /// Whether the task of its last slot has not ended.
    ///
    /// Only read if its [`Overlap`] depends on it.
    pub last_runs: bool,
}

/// Fires a schedule that is due: creates the tasks of some slots and advances to the
/// next slot.
#[derive(Debug, Clone)]
pub struct Firing {
    /// The schedule, in the version that was read.
    pub schedule: ScheduleVersion,
    /// The slots to fire, in order, each with its task.
    pub slots: Vec<(Timestamp, NewTask)>,
    /// The slots before them that are skipped.
    pub skipped: Option<SkippedSlots>,
    /// The next slot to decide.
    pub next_at: Option<Timestamp>,
    /// A task that must have ended before.
    pub after: Option<TaskId>,
}

/// A slot that has fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FiredSlot {
    /// The slot.
    pub slot: Timestamp,
    /// Its task.
    ///
    /// It may have been removed since.
    pub task_id: TaskId,
    /// When it fired.
    pub fired_at: Timestamp,
}

/// The number of fired slots kept per schedule.
pub const FIRED_SLOTS_KEPT: u32 = 100;
