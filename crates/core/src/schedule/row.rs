//! A schedule as a store keeps it.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::history::SkippedSlots;
use super::{InvalidDefinition, Overlap, ScheduleDefinition};
use crate::json::Json;
use crate::task::{NewTask, TaskId};

/// Which schedule, and how often it was written: every change, and every slot
/// that was dealt with, makes a new version. Whoever wants to write says which
/// version it has seen, and does nothing if there is a newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ScheduleVersion {
    /// Given once, and to no other schedule, even of the same name.
    pub id: i64,
    /// Grows with each write.
    pub version: i64,
}

/// What can be written about a schedule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScheduleState {
    /// What it says: a [`ScheduleDefinition`], if this version of the program knows it.
    pub definition: Json,
    /// What an application's code last said ([`ScheduleDefinition::to_declaration`]).
    #[serde(skip)]
    pub declared: Option<String>,
    /// The overlap rule of the definition, for the store to see.
    #[serde(skip)]
    pub overlap: Overlap,
    /// Where intervals are counted from.
    pub anchor: Timestamp,
    /// Set while somebody wants it not to fire.
    pub paused: Option<SchedulePause>,
    /// Why it cannot fire, if it cannot.
    pub error: Option<String>,
    /// The next slot that has not been dealt with. `None` while it is paused or
    /// has an error.
    pub next_at: Option<Timestamp>,
}

/// Since when a schedule is paused, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchedulePause {
    /// Since when.
    pub at: Timestamp,
    /// In somebody's words.
    pub reason: Option<String>,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScheduleRow {
    /// Its name.
    pub name: String,
    /// Which, and how often it was written.
    #[serde(flatten)]
    pub version: ScheduleVersion,
    /// What can be written about it.
    #[serde(flatten)]
    pub state: ScheduleState,
    /// The last slot that fired.
    pub last_slot: Option<Timestamp>,
    /// The task of that slot. It may have been removed since.
    pub last_task: Option<TaskId>,
    /// When it was first stored.
    pub created_at: Timestamp,
    /// When somebody last changed it; firing is no change.
    pub updated_at: Timestamp,
}

impl ScheduleRow {
    /// What it says, if this version of the program understands it.
    pub fn definition(&self) -> Result<ScheduleDefinition, InvalidDefinition> {
        ScheduleDefinition::from_json(&self.state.definition)
    }
}

/// A write of one schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleWrite {
    /// Its name.
    pub name: String,
    /// What it must still be; `None` if there must be none of this name.
    pub expected: Option<ScheduleVersion>,
    /// What it is to be.
    pub state: ScheduleState,
}

/// What is due.
#[derive(Debug, Clone)]
pub struct DueSchedules {
    /// Those that somebody can do something about now, the longest due first.
    pub rows: Vec<DueSchedule>,
    /// Whether others are due, but wait for a task to end.
    pub blocked: bool,
    /// How long it is until the next one is due that is not yet.
    pub next_in: Option<Duration>,
    /// The database's time, which `rows` are due at.
    pub now: Timestamp,
}

/// A schedule that is due.
#[derive(Debug, Clone)]
pub struct DueSchedule {
    /// The schedule.
    pub row: ScheduleRow,
    /// Whether the task of its last slot has not ended. Only looked for if its
    /// [`Overlap`] makes a difference.
    pub last_runs: bool,
}

/// What to do about a schedule that is due: create the tasks of some slots, and
/// move it on to the next.
#[derive(Debug, Clone)]
pub struct Firing {
    /// The schedule, as it was seen.
    pub schedule: ScheduleVersion,
    /// The slots to fire, in order, each with its task.
    pub slots: Vec<(Timestamp, NewTask)>,
    /// The slots before them that do not fire.
    pub skipped: Option<SkippedSlots>,
    /// The next slot to look at.
    pub next_at: Option<Timestamp>,
    /// A task that must have ended for this to happen.
    pub after: Option<TaskId>,
}

/// A slot that has fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FiredSlot {
    /// The slot.
    pub slot: Timestamp,
    /// Its task, which may have been removed since.
    pub task_id: TaskId,
    /// When it fired.
    pub fired_at: Timestamp,
}

/// How many fired slots of a schedule are kept.
pub const FIRED_SLOTS_KEPT: u32 = 100;
