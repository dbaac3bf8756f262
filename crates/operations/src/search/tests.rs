use jiff::tz::TimeZone;

use super::*;

fn scan(text: &str) -> Scan {
    let filter = Filter::parse(text, &TimeZone::UTC).unwrap();
    Search { filter, before: None, limit: 50, timeout: TIMEOUT }.first_scan()
}

#[test]
fn filter_selects_smallest_source() {
    use TaskStatus::{Cancelled, Failed, Running, Waiting};
    for (text, base) in [
        ("", ScanSource::All),
        ("class=a", ScanSource::All),
        ("status=stopped,failed", ScanSource::All),
        ("status!=failed", ScanSource::All),
        ("status=failed", ScanSource::WithStatus(vec![Failed])),
        ("status=failed,waiting status!=waiting", ScanSource::WithStatus(vec![Failed])),
        ("status!=stopped", ScanSource::WithStatus(vec![Waiting, Running, Failed, Cancelled])),
        ("status=failed status=waiting", ScanSource::WithStatus(vec![])),
        ("correlation=a status=failed", ScanSource::Flow("a".into())),
        ("correlation=a,b", ScanSource::All),
        ("id=7,9 correlation=a", ScanSource::Ids(vec![TaskId(7), TaskId(9)])),
    ] {
        assert_eq!(scan(text).source, base, "{text}");
    }
}

#[test]
fn ids_and_times_form_a_range() {
    for (text, from, before) in [
        ("", 1, i64::MAX),
        ("id>=100 id<200", 100, 200),
        ("id>100 id<=200", 101, 201),
        ("id=7,9", 7, 10),
        ("parent=7,9", 8, i64::MAX),
        ("parent>7 id<100", 8, 100),
        ("parent<7 parent!=3", 1, i64::MAX),
        ("id<=9223372036854775807", 1, i64::MAX),
        ("id>9223372036854775807", i64::MAX, i64::MAX),
    ] {
        let scan = scan(text);
        assert_eq!((scan.from, scan.before), (TaskId(from), TaskId(before)), "{text}");
    }
    let now: Timestamp = "2026-12-24T12:00:00Z".parse().unwrap();
    let time = |text: &str| Some(text.parse::<Timestamp>().unwrap());
    for (text, from, until) in [
        ("created<now-2h", None, time("2026-12-24T10:00:00Z")),
        ("created>now-2h created>now-1h", time("2026-12-24T11:00:00Z"), None),
        (
            "created>2026-12-01 created<=2026-12-02 created<now-1d",
            time("2026-12-01T00:00:00Z"),
            time("2026-12-02T00:00:00Z"),
        ),
        ("updated<now-1h", None, time("2026-12-24T11:00:00Z")),
        ("updated>now-1h ended>2026-12-01", None, None),
    ] {
        assert_eq!(scan(text).created_between(now), (from, until), "{text}");
    }
}

#[test]
fn step_size_depends_on_filter() {
    assert_eq!((scan("").rows, scan("").tasks), (500, 51));
    assert_eq!((scan("class=a").rows, scan("class=a").tasks), (10_000, 500));
    let retried = scan("status=waiting error~x");
    assert_eq!((retried.rows, retried.with_error), (10_000, true));
    assert!(!scan("error!~x").with_error && !scan("error!=x").with_error);
    let json = scan("params.a=1");
    assert_eq!((json.rows, json.tasks, json.with_json), (100, 100, true));
}
