//! Which slots fire now.

use jiff::{SignedDuration, Timestamp};

use super::history::ScheduleEventKind::{SkippedMissed, SkippedOverlap};
use super::history::SkippedSlots;
use super::row::{DueSchedule, Firing};
use super::timetable::Timetable;
use super::{InvalidDefinition, Missed, Overlap};

/// A slot that has waited for this long was missed, and [`Missed::Skip`] lets it
/// go. Long enough for a restart of an engine or a failover of a database.
const ON_TIME: SignedDuration = SignedDuration::from_secs(60);

/// What to do about a schedule that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Decision {
    /// The slots that fire, in order.
    slots: Vec<Timestamp>,
    /// The slots before them that do not.
    skipped: Option<SkippedSlots>,
    /// The next slot to look at, if there will ever be one. It has passed
    /// already if it is to fire when the first one's task has ended.
    next_at: Option<Timestamp>,
}

/// Decides about the slots from `first`, which has not been dealt with yet, to
/// `now`. `last_runs` says whether the task of the slot before has not ended.
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
    // One at a time: the others come when the first one's task has ended.
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

/// The same for a schedule as it was found due, with the tasks of its slots; or
/// why it cannot fire at all.
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
            // A task that runs is why the slot is left out, not why it waits.
            Overlap::Skip if due.last_runs => None,
            Overlap::Allow => None,
            Overlap::Skip | Overlap::Wait => row.last_task,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::history::SLOTS_COUNTED_MAX;
    use super::*;
    use jiff::tz::TimeZone;

    fn at(text: &str) -> Timestamp {
        format!("2027-01-01T{text}Z").parse().unwrap()
    }

    fn hourly() -> Timetable {
        Timetable {
            rule: "@hourly".parse().unwrap(),
            zone: TimeZone::UTC,
            anchor: Timestamp::UNIX_EPOCH,
        }
    }

    fn decided(
        missed: Missed,
        overlap: Overlap,
        now: &str,
        last_runs: bool,
    ) -> (Vec<String>, String, String) {
        let decision = decide(&hourly(), (missed, overlap), at("03:00:00"), at(now), last_runs);
        let show = |time: &Timestamp| time.strftime("%H").to_string();
        let skipped = decision.skipped.map_or_else(String::new, |skipped| {
            let (first, last) = (show(&skipped.first), show(&skipped.last));
            format!("{} {first}-{last} {}", skipped.slots, skipped.kind)
        });
        (decision.slots.iter().map(show).collect(), skipped, show(&decision.next_at.unwrap()))
    }

    #[test]
    fn slots_by_policy() {
        use Missed::{All, Last, Skip};
        use Overlap::{Allow, Wait};
        let skips = Overlap::Skip;
        for (missed, overlap, now, last_runs, fire, skipped, next) in [
            // On time.
            (Last, Allow, "03:00:00", false, &["03"][..], "", "04"),
            (Skip, Allow, "03:00:59", false, &["03"], "", "04"),
            (All(9), Allow, "03:00:01", true, &["03"], "", "04"),
            // Not yet: somebody's clock is ahead.
            (Last, Allow, "02:59:59", false, &[], "", "03"),
            // After some hours without an engine.
            (Skip, Allow, "03:01:00", false, &[], "1 03-03 skipped_missed", "04"),
            (Skip, Allow, "07:30:00", false, &[], "5 03-07 skipped_missed", "08"),
            (Skip, Allow, "07:00:30", false, &["07"], "4 03-06 skipped_missed", "08"),
            (Last, Allow, "07:30:00", false, &["07"], "4 03-06 skipped_missed", "08"),
            (All(9), Allow, "07:30:00", false, &["03", "04", "05", "06", "07"], "", "08"),
            (All(2), Allow, "07:30:00", false, &["06", "07"], "3 03-05 skipped_missed", "08"),
            // The task before still runs.
            (Last, skips, "03:00:00", true, &[], "1 03-03 skipped_overlap", "04"),
            (All(9), skips, "07:30:00", true, &[], "5 03-07 skipped_overlap", "08"),
            (Last, Wait, "03:00:00", true, &[], "", "03"),
            (Last, Wait, "07:30:00", true, &[], "", "03"),
            // It has ended.
            (Last, skips, "03:00:00", false, &["03"], "", "04"),
            (All(9), skips, "07:30:00", false, &["07"], "4 03-06 skipped_missed", "08"),
            (Last, Wait, "07:30:00", false, &["07"], "4 03-06 skipped_missed", "08"),
            (Skip, Wait, "07:30:00", false, &[], "5 03-07 skipped_missed", "08"),
            (All(3), Wait, "07:30:00", false, &["05"], "2 03-04 skipped_missed", "06"),
        ] {
            let fire = fire.iter().map(ToString::to_string).collect();
            let expected = (fire, skipped.to_owned(), next.to_owned());
            let (got, case) = (decided(missed, overlap, now, last_runs), (missed, overlap, now));
            assert_eq!(got, expected, "{case:?}");
        }
    }

    #[test]
    fn a_year_without_engines_is_decided_at_once() {
        let begun = std::time::Instant::now();
        let long_ago: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for rule in ["* * * * * *", "every 100ms", "0 0 29 2 *", "* * 0-11 1 1 *"] {
            let timetable = Timetable { rule: rule.parse().unwrap(), ..hourly() };
            let now = at("12:00:00.05");
            let policy = (Missed::All(1000), Overlap::Allow);
            let decision = decide(&timetable, policy, long_ago, now, false);
            let expected = if rule.contains("29") { 0 } else { 1000 };
            assert_eq!(decision.slots.len(), expected, "{rule}");
            assert!(decision.slots.is_sorted());
            let skipped = decision.skipped.map_or(0, |skipped| skipped.slots);
            assert_eq!(skipped, if expected == 0 { 0 } else { SLOTS_COUNTED_MAX }, "{rule}");
            assert!(decision.next_at.unwrap() > now);
        }
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }

    #[test]
    fn intervals_do_not_drift() {
        let anchor = at("00:00:00.123");
        let timetable = Timetable { rule: "every 7s".parse().unwrap(), anchor, ..hourly() };
        let mut first = timetable.next_after(anchor).unwrap();
        for n in 1..1000 {
            assert_eq!(first, anchor + SignedDuration::from_secs(7 * n));
            // Noticed late, by less than a step.
            let now = first + SignedDuration::from_millis(n * 6);
            let policy = (Missed::Last, Overlap::Allow);
            let decision = decide(&timetable, policy, first, now, false);
            assert_eq!(decision.slots, [first]);
            first = decision.next_at.unwrap();
        }
        assert_eq!(timetable.next_after(anchor - SignedDuration::from_secs(1)), Some(anchor));
    }
}
