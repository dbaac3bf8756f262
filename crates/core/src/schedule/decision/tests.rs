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
fn slots_follow_policy() {
    use Missed::{All, Last, Skip};
    use Overlap::{Allow, Wait};
    let skips = Overlap::Skip;
    for (missed, overlap, now, last_runs, fire, skipped, next) in [
        // On time.
        (Last, Allow, "03:00:00", false, &["03"][..], "", "04"),
        (Skip, Allow, "03:00:59", false, &["03"], "", "04"),
        (All(9), Allow, "03:00:01", true, &["03"], "", "04"),
        // Not due yet: the clock of an engine is ahead.
        (Last, Allow, "02:59:59", false, &[], "", "03"),
        // After some hours without an engine.
        (Skip, Allow, "03:01:00", false, &[], "1 03-03 skipped_missed", "04"),
        (Skip, Allow, "07:30:00", false, &[], "5 03-07 skipped_missed", "08"),
        (Skip, Allow, "07:00:30", false, &["07"], "4 03-06 skipped_missed", "08"),
        (Last, Allow, "07:30:00", false, &["07"], "4 03-06 skipped_missed", "08"),
        (All(9), Allow, "07:30:00", false, &["03", "04", "05", "06", "07"], "", "08"),
        (All(2), Allow, "07:30:00", false, &["06", "07"], "3 03-05 skipped_missed", "08"),
        // The task of the previous slot runs.
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
fn many_missed_slots_are_decided_quickly() {
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
        // Late by less than an interval.
        let now = first + SignedDuration::from_millis(n * 6);
        let policy = (Missed::Last, Overlap::Allow);
        let decision = decide(&timetable, policy, first, now, false);
        assert_eq!(decision.slots, [first]);
        first = decision.next_at.unwrap();
    }
    assert_eq!(timetable.next_after(anchor - SignedDuration::from_secs(1)), Some(anchor));
}
