//! Decides which slots fire now.

use jiff::{SignedDuration, Timestamp};

use super::history::ScheduleEventKind::{SkippedMissed, SkippedOverlap};
use super::history::SkippedSlots;
use super::row::{DueSchedule, Firing};
use super::timetable::Timetable;
use super::{InvalidDefinition, Missed, Overlap};

/// A slot that is this old was missed, and [`Missed::Skip`] skips it. Long enough for a
/// restart of an engine or a failover of a database.
const ON_TIME: SignedDuration = SignedDuration::from_secs(60);

/// What happens to a schedule that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Decision {
    /// The slots that fire, in order.
    slots: Vec<Timestamp>,
    /// The slots before them that are skipped.
    skipped: Option<SkippedSlots>,
    /// The next slot to decide, if there is one. It is in the past if it fires after the
    /// task of the first slot has ended.
    next_at: Option<Timestamp>,
}

/// Decides the slots from `first`, the first undecided one, to `now`. `last_runs`: the task
/// of the previous slot has not ended.
fn decide(
    timetable: &Timetable,
    (missed, overlap): (Missed, Overlap),
    first: Timestamp,
    now: Timestamp,
    last_runs: bool,
) -> Decision {
    if last_runs && overlap == Overlap::Wait {
        return Decision { slots: Vec::new(), skipped: None, next_at: Some(first) };
    }
    let after = timetable.next_after(now.max(first));
    if first > now {
        return Decision { slots: Vec::new(), skipped: None, next_at: Some(first) };
    }
    if last_runs && overlap == Overlap::Skip {
        let skipped = SkippedSlots::between(timetable, SkippedOverlap, first, now);
        return Decision { slots: Vec::new(), skipped, next_at: after };
    }
    let mut slots = match (missed, overlap) {
        (Missed::All(number), Overlap::Allow | Overlap::Wait) => {
            timetable.newest(first, now, number as usize)
        }
        _ => timetable.newest(first, now, 1),
    };
    if missed == Missed::Skip {
        slots.retain(|slot| now.duration_since(*slot) < ON_TIME);
    }
    let end = slots.first().map_or(now, |fires| *fires - SignedDuration::from_nanos(1));
    let skipped = SkippedSlots::between(timetable, SkippedMissed, first, end);
    // One at a time: the other slots fire after the task of the first one has ended.
    let next_at = match overlap {
        Overlap::Wait if slots.len() > 1 => {
            let second = slots[1];
            slots.truncate(1);
            Some(second)
        }
        _ => after,
    };
    Decision { slots, skipped, next_at }
}

/// Decides a schedule that is due, with the tasks of its slots; fails if it cannot fire.
pub fn firing(due: &DueSchedule, now: Timestamp) -> Result<Firing, InvalidDefinition> {
    let row = &due.row;
    let definition = row.definition()?;
    let timetable = definition.timetable(row.state.anchor)?;
    let first = row.state.next_at.unwrap_or(now);
    let policy = (definition.missed, definition.overlap);
    let decision = decide(&timetable, policy, first, now, due.last_runs);
    let task = |slot| Ok::<_, InvalidDefinition>((slot, definition.task(&row.name, Some(slot))?));
    Ok(Firing {
        schedule: row.version,
        slots: decision.slots.into_iter().map(task).collect::<Result<_, _>>()?,
        skipped: decision.skipped,
        next_at: decision.next_at,
        after: match definition.overlap {
            // The running task is why the slot is skipped; it does not block.
            Overlap::Skip if due.last_runs => None,
            Overlap::Allow => None,
            Overlap::Skip | Overlap::Wait => row.last_task,
        },
    })
}

#[cfg(test)]
mod tests;
