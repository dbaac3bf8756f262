//! Schedules when clocks change: real changes of four time zones.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use task_engine_core::schedule::Timetable;

/// A time zone, a rule, a start, and the expected slots: local times with their offset,
/// each with a part of its note.
type Case<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, &'a str)]);

const CASES: &[Case<'_>] = &[
    // New York, forward: 2027-03-14, 02:00 becomes 03:00.
    (
        "America/New_York",
        "30 2 * * *",
        "2027-03-13T12:00:00Z",
        &[
            (
                "03-14 03:00 -04",
                "02:30 does not exist on 2027-03-14 in America/New_York; runs at 03:00",
            ),
            ("03-15 02:30 -04", ""),
        ],
    ),
    // A second time of the day does not change the slots of the first.
    (
        "America/New_York",
        "30 2,14 * * *",
        "2027-03-14T00:00:00Z",
        &[("03-14 03:00 -04", "02:30 does not exist"), ("03-14 14:30 -04", "")],
    ),
    // All times that do not exist run once.
    (
        "America/New_York",
        "*/20 0,30 2,3 * * *",
        "2027-03-14T00:00:00Z",
        &[
            ("03-14 03:00 -04", "02:00 does not exist"),
            ("03-14 03:00:20 -04", ""),
            ("03-14 03:00:40 -04", ""),
            ("03-14 03:30 -04", ""),
        ],
    ),
    (
        "America/New_York",
        "*/30 * * * *",
        "2027-03-14T06:00:00Z",
        &[
            ("03-14 01:30 -05", ""),
            ("03-14 03:00 -04", "02:00 does not exist on 2027-03-14 in America/New_York; skipped"),
            ("03-14 03:30 -04", ""),
        ],
    ),
    (
        "America/New_York",
        "0 */2 * * *",
        "2027-03-14T05:00:00Z",
        &[("03-14 04:00 -04", "02:00 does not exist"), ("03-14 06:00 -04", "")],
    ),
    // A wildcard in the minute follows the clock, and 02:xx is not on it.
    (
        "America/New_York",
        "*/30 2 * * *",
        "2027-03-14T05:00:00Z",
        &[("03-15 02:00 -04", "skipped"), ("03-15 02:30 -04", "")],
    ),
    // New York, back: 2027-11-07, 02:00 becomes 01:00.
    (
        "America/New_York",
        "30 1 * * *",
        "2027-11-07T00:00:00Z",
        &[
            (
                "11-07 01:30 -04",
                "01:30 happens twice on 2027-11-07 in America/New_York; runs at the first",
            ),
            ("11-08 01:30 -05", ""),
        ],
    ),
    ("America/New_York", "30 1 * * *", "2027-11-07T05:45:00Z", &[("11-08 01:30 -05", "")]),
    ("America/New_York", "30 1 * * *", "2027-11-07T06:15:00Z", &[("11-08 01:30 -05", "")]),
    (
        "America/New_York",
        "30 1-2 * * *",
        "2027-11-07T00:00:00Z",
        &[("11-07 01:30 -04", "first"), ("11-07 02:30 -05", ""), ("11-08 01:30 -05", "")],
    ),
    (
        "America/New_York",
        "*/30 * * * *",
        "2027-11-07T04:31:00Z",
        &[
            ("11-07 01:00 -04", "each time"),
            ("11-07 01:30 -04", "each time"),
            ("11-07 01:00 -05", "each time"),
            ("11-07 01:30 -05", "each time"),
            ("11-07 02:00 -05", ""),
        ],
    ),
    (
        "America/New_York",
        "@daily",
        "2027-11-07T00:00:00Z",
        &[("11-07 00:00 -04", ""), ("11-08 00:00 -05", "")],
    ),
    // Paris, forward: 2027-03-28, 02:00 becomes 03:00.
    (
        "Europe/Paris",
        "15 2 * * *",
        "2027-03-27T12:00:00Z",
        &[("03-28 03:00 +02", "02:15 does not exist on 2027-03-28"), ("03-29 02:15 +02", "")],
    ),
    ("Europe/Paris", "0 3 * * *", "2027-03-27T12:00:00Z", &[("03-28 03:00 +02", "")]),
    // The last instant before the change, and the first after it.
    ("Europe/Paris", "59 59 1 * * *", "2027-03-27T12:00:00Z", &[("03-28 01:59:59 +01", "")]),
    // Only on that day, not late on the day after.
    ("Europe/Paris", "15 2 28 3 *", "2027-03-28T00:59:59Z", &[("03-28 03:00 +02", "02:15")]),
    ("Europe/Paris", "15 2 28 3 *", "2027-03-28T01:00:00Z", &[("03-28 02:15 +02", "")]),
    // Paris, back: 2027-10-31, 03:00 becomes 02:00.
    (
        "Europe/Paris",
        "0 2 * * *",
        "2027-10-30T12:00:00Z",
        &[("10-31 02:00 +02", "02:00 happens twice"), ("11-01 02:00 +01", "")],
    ),
    (
        "Europe/Paris",
        "0 3 * * *",
        "2027-10-30T12:00:00Z",
        &[("10-31 03:00 +01", ""), ("11-01 03:00 +01", "")],
    ),
    (
        "Europe/Paris",
        "0 * * * *",
        "2027-10-30T23:30:00Z",
        &[
            ("10-31 02:00 +02", "each time"),
            ("10-31 02:00 +01", "each time"),
            ("10-31 03:00 +01", ""),
        ],
    ),
    // Lord Howe, half an hour. Back: 2027-04-04, 02:00 becomes 01:30.
    (
        "Australia/Lord_Howe",
        "45 1 * * *",
        "2027-04-03T00:00:00Z",
        &[("04-04 01:45 +11", "01:45 happens twice"), ("04-05 01:45 +10:30", "")],
    ),
    (
        "Australia/Lord_Howe",
        "*/15 * * * *",
        "2027-04-03T14:20:00Z",
        &[
            ("04-04 01:30 +11", "each time"),
            ("04-04 01:45 +11", "each time"),
            ("04-04 01:30 +10:30", "each time"),
            ("04-04 01:45 +10:30", "each time"),
            ("04-04 02:00 +10:30", ""),
        ],
    ),
    // Forward: 2027-10-03, 02:00 becomes 02:30.
    (
        "Australia/Lord_Howe",
        "10 2 * * *",
        "2027-10-02T00:00:00Z",
        &[("10-03 02:30 +11", "02:10 does not exist on 2027-10-03"), ("10-04 02:10 +11", "")],
    ),
    (
        "Australia/Lord_Howe",
        "*/15 * * * *",
        "2027-10-02T15:20:00Z",
        &[("10-03 02:30 +11", "02:00 does not exist"), ("10-03 02:45 +11", "")],
    ),
    // Cairo, at midnight. Forward: 2027-04-30, 00:00 becomes 01:00.
    (
        "Africa/Cairo",
        "@daily",
        "2027-04-29T12:00:00Z",
        &[
            (
                "04-30 01:00 +03",
                "00:00 does not exist on 2027-04-30 in Africa/Cairo; runs at 01:00",
            ),
            ("05-01 00:00 +03", ""),
        ],
    ),
    ("Africa/Cairo", "0 0 * * THU", "2027-04-29T12:00:00Z", &[("05-06 00:00 +03", "")]),
    // Back: 2027-10-29, 00:00 becomes 23:00 of the day before.
    (
        "Africa/Cairo",
        "30 23 * * *",
        "2027-10-28T12:00:00Z",
        &[("10-28 23:30 +03", "23:30 happens twice on 2027-10-28"), ("10-29 23:30 +02", "")],
    ),
    (
        "Africa/Cairo",
        "@daily",
        "2027-10-28T12:00:00Z",
        &[("10-29 00:00 +02", ""), ("10-30 00:00 +02", "")],
    ),
    // No clock changes, and calendars all the same.
    (
        "UTC",
        "0 0 L * *",
        "2028-02-01T00:00:00Z",
        &[("02-29 00:00 +00", ""), ("03-31 00:00 +00", "")],
    ),
    (
        "UTC",
        "0 0 * * TUE#2",
        "2027-01-01T00:00:00Z",
        &[("01-12 00:00 +00", ""), ("02-09 00:00 +00", "")],
    ),
    (
        "UTC",
        "0 0 * * 7L",
        "2027-01-01T00:00:00Z",
        &[("01-31 00:00 +00", ""), ("02-28 00:00 +00", "")],
    ),
    (
        "UTC",
        "0 0 15W * *",
        "2027-05-01T00:00:00Z",
        &[("05-14 00:00 +00", ""), ("06-15 00:00 +00", "")],
    ),
    (
        "UTC",
        "0 0 13 * FRI",
        "2027-08-01T00:00:00Z",
        &[("08-06 00:00 +00", ""), ("08-13 00:00 +00", ""), ("08-20 00:00 +00", "")],
    ),
    // Both must match if one begins with a star.
    (
        "UTC",
        "0 0 */10 * MON",
        "2027-01-01T00:00:00Z",
        &[("01-11 00:00 +00", ""), ("02-01 00:00 +00", "")],
    ),
    (
        "UTC",
        "*/10 * * * * *",
        "2027-01-01T00:00:05.5Z",
        &[("01-01 00:00:10 +00", ""), ("01-01 00:00:20 +00", "")],
    ),
];

#[test]
fn slots_around_clock_changes() {
    for (zone, rule, after, expected) in CASES {
        let timetable = Timetable {
            rule: rule.parse().unwrap(),
            zone: TimeZone::get(zone).unwrap(),
            anchor: Timestamp::UNIX_EPOCH,
        };
        let previews = timetable.preview(after.parse().unwrap(), expected.len());
        assert_eq!(previews.len(), expected.len());
        for (preview, (local, note)) in previews.iter().zip(*expected) {
            let shown = preview.local.strftime("%m-%d %H:%M:%S %:::z").to_string();
            let shown = shown.replacen(":00 ", " ", 1);
            assert_eq!(shown, *local, "{zone}, {rule}, after {after}: {previews:#?}");
            let text = preview.note.clone().unwrap_or_default();
            assert!(text.contains(note) && text.is_empty() == note.is_empty(), "{rule}: {text:?}");
        }
        // One by one from where the last was found, or all from the start.
        let all = timetable.newest(previews[0].at, previews[previews.len() - 1].at, 1000);
        assert_eq!(all, previews.iter().map(|preview| preview.at).collect::<Vec<_>>());
    }
}
