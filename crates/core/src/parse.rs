//! Parses times and durations that people type.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, ToSpan, Zoned};

use crate::display::span;

const TIME_FORMS: &str = "write 2026-12-24T18:00:00Z (or another offset), \"2026-12-24 18:00\" in local time, or 18:00 for the next time it is 18:00";
const DURATION_FORMS: &str = "write it like 5s, 10m, 1h30m or \"2 days\"";

/// The longest wait. Beyond it the length of years matters, and the database's
/// calendar may end.
const DURATION_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Parses a time in the future.
pub fn future_time(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let time = time(text.trim(), now)?;
    let now = now.timestamp();
    if time < now {
        let ago = span(now.duration_since(time).unsigned_abs());
        return Err(format!(
            "this time was {ago} ago; use a time in the future, or omit the time to run it at once"
        ));
    }
    if time.duration_since(now).unsigned_abs() > DURATION_MAX {
        return Err("this is more than 100 years ahead".to_owned());
    }
    Ok(time)
}

/// Parses a time in the past or future. A time of day means the last one that has
/// passed; a duration means that long ago.
pub fn past_time(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let text = text.trim();
    if let Ok(ago) = duration_with_unit(text) {
        let ago = SignedDuration::try_from(ago).map_err(|error| error.to_string())?;
        return now.timestamp().checked_sub(ago).map_err(|error| error.to_string());
    }
    if let Ok(date) = Date::strptime("%Y-%m-%d", text) {
        return local(date.to_datetime(Time::midnight()), now.time_zone());
    }
    let is_of_day = !text.contains(['-', ' ', 'T']);
    let time = time(text, now).map_err(|_| {
        "this is not a time; write 2h (ago), 03:00, 2026-12-24, \"2026-12-24 18:00\" in local time, or 2026-12-24T18:00:00Z".to_owned()
    })?;
    if is_of_day && time > now.timestamp() {
        let before = time.to_zoned(now.time_zone().clone()).checked_sub(1.day());
        return before.map(|it| it.timestamp()).map_err(|error| error.to_string());
    }
    Ok(time)
}

fn time(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let (text, zone) = (text.replacen('T', " ", 1), now.time_zone());
    let of_day = |form| Time::strptime(form, &text).ok();
    if let Some(time) = ["%H:%M:%S", "%H:%M"].into_iter().find_map(of_day) {
        return next(time, now);
    }
    let of_date = |form| DateTime::strptime(form, &text).ok();
    match ["%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"].into_iter().find_map(of_date) {
        Some(time) => local(time, zone),
        None if Date::strptime("%Y-%m-%d", &text).is_ok() => {
            Err(format!("the time of day is missing; {TIME_FORMS}"))
        }
        None => Err(format!("this is not a time; {TIME_FORMS}")),
    }
}

/// Today at this time, or tomorrow if that has passed.
fn next(time: Time, now: &Zoned) -> Result<Timestamp, String> {
    let at = |days: i64| {
        let date = now.date().checked_add(days.days()).ok()?;
        let zoned = date.to_datetime(time).to_zoned(now.time_zone().clone()).ok()?;
        Some(zoned.timestamp()).filter(|time| *time > now.timestamp())
    };
    at(0).or_else(|| at(1)).ok_or_else(|| format!("there is no such time; {TIME_FORMS}"))
}

/// Refuses a local time that does not exist or exists twice, because of a change of
/// clocks.
fn local(time: DateTime, zone: &TimeZone) -> Result<Timestamp, String> {
    let ambiguous = zone.to_ambiguous_zoned(time);
    let name = zone.iana_name().unwrap_or("the local time zone").to_owned();
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => ambiguous
            .unambiguous()
            .map(|zoned| zoned.timestamp())
            .map_err(|_| "this time is out of range".to_owned()),
        AmbiguousOffset::Gap { .. } => {
            Err(format!("there is no {time} in {name}, because the clocks are put forward then"))
        }
        AmbiguousOffset::Fold { before, after } => Err(format!(
            "it is {time} twice in {name}, because the clocks are put back then; write {time}{before} or {time}{after}"
        )),
    }
}

/// Parses a duration. A plain number means seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let with_hint = |why: String| {
        if why == not_a_duration() { why + "; a plain number means seconds" } else { why }
    };
    let Ok(secs) = text.trim().parse::<f64>() else {
        return duration_with_unit(text).map_err(with_hint);
    };
    if secs < 0.0 {
        return Err("a duration cannot be negative".to_owned());
    }
    let long = Duration::try_from_secs_f64(secs).map_err(|_| with_hint(not_a_duration()))?;
    bounded(long)
}

/// Parses a duration that needs a unit: in input of programs, a number without one may
/// be a mistake.
pub fn duration_with_unit(text: &str) -> Result<Duration, String> {
    let parsed: Span = text.trim().parse().map_err(|_| not_a_duration())?;
    if parsed.is_negative() {
        return Err("a duration cannot be negative".to_owned());
    }
    let exact = parsed.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| {
        "months and years are not always the same length; write it in days".to_owned()
    })?;
    bounded(exact.unsigned_abs())
}

fn not_a_duration() -> String {
    format!("this is not a duration; {DURATION_FORMS}")
}

fn bounded(duration: Duration) -> Result<Duration, String> {
    if duration > DURATION_MAX {
        Err("this is more than 100 years".to_owned())
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
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
}
