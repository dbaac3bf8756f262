use super::*;

fn berlin(text: &str) -> Zoned {
    text.parse::<DateTime>().unwrap().in_tz("Europe/Berlin").unwrap()
}

#[test]
fn past_times_parse_in_every_form() {
    let now = berlin("2026-12-24 12:00");
    for (text, expected) in [
        ("2h", "2026-12-24T09:00:00Z"),
        ("03:00", "2026-12-24T02:00:00Z"),
        ("18:00", "2026-12-23T17:00:00Z"),
        ("2026-12-01", "2026-11-30T23:00:00Z"),
        ("2026-12-01 03:00", "2026-12-01T02:00:00Z"),
        ("2026-12-01T03:00:00Z", "2026-12-01T03:00:00Z"),
        ("2026-12-01 03:00:00.127 +00:00", "2026-12-01T03:00:00.127Z"),
        ("2026-12-01 03:00:00 -05:00", "2026-12-01T08:00:00Z"),
    ] {
        assert_eq!(past_time(text, &now).unwrap().to_string(), expected, "{text}");
    }
    assert!(past_time("soon", &now).unwrap_err().contains("03:00"));
}

#[test]
fn future_times_parse_in_every_form() {
    let now = berlin("2026-12-24T17:00");
    for (text, expected) in [
        ("2026-12-24T18:00:00Z", "2026-12-24T18:00:00Z"),
        ("2026-12-24T18:00:00+01:00", "2026-12-24T17:00:00Z"),
        ("2026-12-24 18:00", "2026-12-24T17:00:00Z"),
        ("2026-12-24T18:00", "2026-12-24T17:00:00Z"),
        (" 2026-12-24 18:00:30 ", "2026-12-24T17:00:30Z"),
        ("18:00", "2026-12-24T17:00:00Z"),
        ("17:00", "2026-12-25T16:00:00Z"),
        ("09:30:15", "2026-12-25T08:30:15Z"),
        ("2027-07-01 12:00", "2027-07-01T10:00:00Z"),
    ] {
        let expected: Timestamp = expected.parse().unwrap();
        assert_eq!(future_time(text, &now), Ok(expected), "{text}");
    }
}

#[test]
fn invalid_time_names_the_reason() {
    let now = berlin("2026-03-01T12:00");
    for (text, why) in [
        ("", "not a time"),
        ("tomorrow", "not a time"),
        ("25:00", "not a time"),
        ("2026-13-01 10:00", "not a time"),
        ("2026-12-24", "time of day is missing"),
        ("2026-03-01 11:58:30", "was 1 min 30 s ago"),
        ("2020-01-01T00:00:00Z", "omit the time"),
        ("2026-03-29 02:30", "there is no 2026-03-29T02:30:00 in Europe/Berlin"),
        ("2026-10-25 02:30", "write 2026-10-25T02:30:00+02 or 2026-10-25T02:30:00+01"),
        ("9999-01-01T00:00:00Z", "more than 100 years"),
    ] {
        let error = future_time(text, &now).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
    // The message proposes a form that parses.
    assert!(future_time("2026-10-25T02:30:00+02", &now).is_ok());
}

#[test]
fn durations_parse_in_every_form() {
    for (text, ms) in [
        ("0", 0),
        ("5", 5_000),
        ("0.25", 250),
        ("5s", 5_000),
        ("250ms", 250),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("2 days", 172_800_000),
        ("30days", 2_592_000_000),
        ("1 week", 604_800_000),
        ("PT5S", 5_000),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
    }
}

#[test]
fn duration_with_unit_needs_a_unit() {
    assert_eq!(duration_with_unit("5s"), duration("5"));
    for text in ["", "5", "0.25", "soon"] {
        let error = duration_with_unit(text).unwrap_err();
        assert!(error.contains("not a duration") && !error.contains("plain"), "{error}");
    }
}

#[test]
fn invalid_duration_names_the_reason() {
    for (text, why) in [
        ("", "not a duration"),
        ("soon", "a plain number means seconds"),
        ("5 parsecs", "not a duration"),
        ("NaN", "not a duration"),
        ("inf", "not a duration"),
        ("-5", "negative"),
        ("-5s", "negative"),
        ("5s ago", "negative"),
        ("1 month", "in days"),
        ("1e30", "not a duration"),
        ("1e15", "100 years"),
        ("99999 weeks", "100 years"),
    ] {
        let error = duration(text).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn rates_need_a_number_and_a_time() {
    let per = |max, secs| Ok(Rate::new(max, Duration::from_secs(secs)));
    for (text, read) in
        [("100/1s", per(100, 1)), ("5/min", per(5, 60)), (" 1000 / 1h30m ", per(1000, 5400))]
    {
        assert_eq!(rate(text), read, "{text}");
    }
    for text in ["", "100", "100/", "a/1s", "-1/1s", "1.5/1s", "100/soon", "100/-1s"] {
        assert!(rate(text).is_err(), "{text}");
    }
}
