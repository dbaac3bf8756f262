//! Parses times, durations and rates that people type.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, ToSpan, Zoned};

use crate::display::span;
use crate::limit::Rate;

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

/// Parses a time in the past or future.
///
/// A time of day means the last one that has passed; a duration means that long ago.
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
    // Commands print a space before the offset.
    if let Ok(time) = text.replacen(" +", "+", 1).replacen(" -", "-", 1).parse::<Timestamp>() {
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

/// Parses a duration.
///
/// A plain number means seconds.
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

/// Parses a duration that needs a unit: in the input of programs, the unit of a bare number is
/// unclear.
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

/// Parses a rate: how many starts, and in which time, like `100/1s`, `5/min` or `100/1h30m`.
pub fn rate(text: &str) -> Result<Rate, String> {
    let invalid = || {
        "this is not a rate; write the number of starts and the time, like 100/1s, 5/min or 1000/1h"
            .to_owned()
    };
    let (max, per) = text.split_once('/').ok_or_else(invalid)?;
    let max = max.trim().parse().map_err(|_| invalid())?;
    let per = per.trim();
    let has_number = per.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let per = if has_number { per.to_owned() } else { format!("1{per}") };
    let per = duration_with_unit(&per).map_err(|why| format!("{per:?}: {why}"))?;
    Ok(Rate::new(max, per))
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
mod tests;
