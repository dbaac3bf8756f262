//! The history of a schedule: fired slots, skipped slots and manual runs.

use std::cmp::Reverse;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::row::{FiredSlot, ScheduleRow};
use super::timetable::Timetable;
use crate::display::{count_text, span};
use crate::parse_error::ParseError;
use crate::queue::BoundedCount;
use crate::task::TaskId;

/// The kind of an event other than firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleEventKind {
    /// Slots were missed (mostly because no engine ran), and [`Missed`](super::Missed)
    /// skipped them.
    SkippedMissed,
    /// Slots were due while the task of an earlier slot had not ended, and
    /// [`Overlap`](super::Overlap) skipped them.
    SkippedOverlap,
    /// An operator created a task outside of the slots.
    Manual,
}

enum_tokens!(ScheduleEventKind {
    SkippedMissed = "skipped_missed", SkippedOverlap = "skipped_overlap", Manual = "manual",
});

impl FromStr for ScheduleEventKind {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::from_token(text)
            .ok_or_else(|| ParseError(format!("unknown event of a schedule {text:?}")))
    }
}

/// A range of skipped slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkippedSlots {
    /// Why.
    pub kind: ScheduleEventKind,
    /// The first slot.
    pub first: Timestamp,
    /// The last slot.
    pub last: Timestamp,
    /// How many; [`SLOTS_COUNTED_MAX`] means that many or more.
    pub slots: i64,
}

/// The most slots that are counted in a range, because slots of a cron expression are
/// computed one by one.
pub const SLOTS_COUNTED_MAX: i64 = 10_000;

impl SkippedSlots {
    /// The slots from `first`, which is a slot, to `end`, included if it is one.
    pub(super) fn between(
        timetable: &Timetable,
        kind: ScheduleEventKind,
        first: Timestamp,
        end: Timestamp,
    ) -> Option<Self> {
        let last = timetable.newest(first, end, 1).pop()?;
        let slots = timetable.count(first, last, SLOTS_COUNTED_MAX);
        Some(Self { kind, first, last, slots })
    }
}

/// A stored event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScheduleEvent {
    /// What happened.
    pub kind: ScheduleEventKind,
    /// The first slot that was skipped.
    pub first_slot: Option<Timestamp>,
    /// The last slot that was skipped.
    pub last_slot: Option<Timestamp>,
    /// How many slots were skipped; [`SLOTS_COUNTED_MAX`] means that many or more.
    pub slots: i64,
    /// The task of a manual run.
    ///
    /// It may have been removed since.
    pub task_id: Option<TaskId>,
    /// The user who requested it, if known.
    pub requested_by: Option<String>,
    /// When it was recorded.
    pub recorded_at: Timestamp,
}

impl ScheduleEvent {
    /// Its time among the slots: a range counts from its first slot.
    fn at(&self) -> Timestamp {
        self.first_slot.unwrap_or(self.recorded_at)
    }
}

/// The number of events kept per schedule.
pub const SCHEDULE_EVENTS_KEPT: u32 = 100;

/// A schedule with its history.
#[derive(Debug, Clone)]
pub struct ScheduleDetails {
    /// The schedule.
    pub row: ScheduleRow,
    /// Its newest fired slots, newest first.
    pub fired: Vec<FiredSlot>,
    /// Its newest other events, newest first.
    pub events: Vec<ScheduleEvent>,
    /// The database's time.
    pub now: Timestamp,
}

/// A line of a schedule's history, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryLine {
    /// The slot, the first slot of a range, or the time of a manual run.
    pub at: Timestamp,
    /// The last slot of a range.
    pub until: Option<Timestamp>,
    /// What happened: `fired`, `18 slots skipped`, `manual run`.
    pub what: String,
    /// The task, if one was created.
    pub task_id: Option<TaskId>,
    /// More about it.
    pub detail: String,
}

impl ScheduleDetails {
    /// Returns fired slots and other events, newest first.
    #[must_use]
    pub fn history(&self) -> Vec<HistoryLine> {
        let fired = self.fired.iter().map(HistoryLine::fired);
        let mut lines: Vec<_> = fired.chain(self.events.iter().map(HistoryLine::event)).collect();
        lines.sort_by_key(|line| Reverse(line.at));
        lines
    }
}

impl HistoryLine {
    fn fired(slot: &FiredSlot) -> Self {
        let late = slot.fired_at.duration_since(slot.slot);
        Self {
            at: slot.slot,
            until: None,
            what: "fired".to_owned(),
            task_id: Some(slot.task_id),
            detail: format!("{} after its slot", span(late.unsigned_abs())),
        }
    }

    fn event(event: &ScheduleEvent) -> Self {
        let many =
            BoundedCount { counted: event.slots, and_more: event.slots >= SLOTS_COUNTED_MAX };
        let slots = if event.slots == 1 { "slot" } else { "slots" };
        let skipped = format!("{} {slots} skipped", count_text(many));
        let (what, detail) = match event.kind {
            ScheduleEventKind::SkippedMissed => (skipped, "missed: not fired in time".to_owned()),
            ScheduleEventKind::SkippedOverlap => {
                (skipped, "overlap: the previous task had not ended".to_owned())
            }
            ScheduleEventKind::Manual => (
                "manual run".to_owned(),
                event.requested_by.as_ref().map_or_else(String::new, |name| format!("by {name}")),
            ),
        };
        Self {
            at: event.at(),
            until: event.last_slot.filter(|last| *last != event.at()),
            what,
            task_id: event.task_id,
            detail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2027-01-01T{text}Z").parse().unwrap()
    }

    fn skipped(first: &str, last: &str, slots: i64) -> ScheduleEvent {
        ScheduleEvent {
            kind: ScheduleEventKind::SkippedMissed,
            first_slot: Some(at(first)),
            last_slot: Some(at(last)),
            slots,
            task_id: None,
            requested_by: None,
            recorded_at: at("09:00:00"),
        }
    }

    #[test]
    fn tokens_are_read_as_written() {
        use ScheduleEventKind::{Manual, SkippedMissed, SkippedOverlap};
        for kind in [SkippedMissed, SkippedOverlap, Manual] {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        assert!("fired".parse::<ScheduleEventKind>().is_err());
    }

    #[test]
    fn history_is_sorted_by_slot() {
        let manual = ScheduleEvent {
            kind: ScheduleEventKind::Manual,
            first_slot: None,
            last_slot: None,
            slots: 0,
            task_id: Some(TaskId(7)),
            requested_by: Some("ada".into()),
            recorded_at: at("05:30:00"),
        };
        let lines =
            [skipped("03:00:00", "03:00:00", 1), manual, skipped("06:00:00", "08:00:00", 20_000)];
        let lines: Vec<_> = lines.iter().map(HistoryLine::event).collect();
        assert_eq!((lines[0].what.as_str(), lines[0].until), ("1 slot skipped", None));
        assert_eq!((lines[1].what.as_str(), lines[1].detail.as_str()), ("manual run", "by ada"));
        assert_eq!(lines[1].at, at("05:30:00"));
        assert_eq!(lines[2].until, Some(at("08:00:00")));
        assert!(lines[2].what.contains("+ slots skipped"), "{}", lines[2].what);
    }
}
