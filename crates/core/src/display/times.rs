//! Durations and times for people.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Returns a duration in its two largest units: `35 ms`, `1.2 s`, `3 min 20 s`.
#[must_use]
pub fn span(time: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    if time.is_zero() {
        return "0 s".to_owned();
    }
    if time < Duration::from_millis(1) {
        return "less than 1 ms".to_owned();
    }
    if time < Duration::from_secs(1) {
        return format!("{} ms", time.as_millis());
    }
    if time < Duration::from_millis(9_950) {
        let text = format!("{:.1}", time.as_secs_f64());
        return format!("{} s", text.strip_suffix(".0").unwrap_or(&text));
    }
    let secs = (time + Duration::from_millis(500)).as_secs();
    let two = |large: u64, one: &str, small: u64, other: &str| {
        if small == 0 { format!("{large} {one}") } else { format!("{large} {one} {small} {other}") }
    };
    match secs {
        0..MINUTE => format!("{secs} s"),
        MINUTE..HOUR => two(secs / MINUTE, "min", secs % MINUTE, "s"),
        HOUR..DAY => two(secs / HOUR, "h", secs % HOUR / MINUTE, "min"),
        _ => {
            let days = secs / DAY;
            two(days, if days == 1 { "day" } else { "days" }, secs % DAY / HOUR, "h")
        }
    }
}

/// Returns a time relative to now: `in 57 s`, `3 min 20 s ago`, `now`.
#[must_use]
pub fn relative(time: Timestamp, now: Timestamp) -> String {
    let distance = time.duration_since(now);
    let (long, ahead) = (distance.unsigned_abs(), distance.is_positive());
    // Whole seconds: clocks differ by tenths of a second.
    let whole = Duration::from_secs((long + Duration::from_millis(500)).as_secs());
    match (whole.is_zero(), ahead) {
        (true, _) => "now".to_owned(),
        (false, true) => format!("in {}", span(whole)),
        (false, false) => format!("{} ago", span(whole)),
    }
}

/// Returns a time in this time zone, with its offset.
#[must_use]
pub fn clock(time: Timestamp, zone: &TimeZone) -> String {
    time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S.%3f %:z").to_string()
}

/// Returns a time, absolute and relative: `2026-12-24 18:00:00.000 +01:00 (in 57 s)`.
#[must_use]
pub fn clock_and_relative(time: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    format!("{} ({})", clock(time, zone), relative(time, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_at_most_two_units() {
        for (ms, shown) in [
            (0, "0 s"),
            (35, "35 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (1_240, "1.2 s"),
            (9_960, "10 s"),
            (57_300, "57 s"),
            (59_700, "1 min"),
            (200_000, "3 min 20 s"),
            (7_500_000, "2 h 5 min"),
            (86_400_000, "1 day"),
            (273_600_000, "3 days 4 h"),
        ] {
            assert_eq!(span(Duration::from_millis(ms)), shown);
        }
        assert_eq!(span(Duration::from_micros(10)), "less than 1 ms");
    }

    #[test]
    fn times_are_relative_to_now() {
        let now: Timestamp = "2026-12-24T17:00:00Z".parse().unwrap();
        for (text, shown) in [
            ("2026-12-24T17:00:57.2Z", "in 57 s"),
            ("2026-12-24T17:00:00.3Z", "now"),
            ("2026-12-24T16:59:59.8Z", "now"),
            ("2026-12-24T16:56:40Z", "3 min 20 s ago"),
        ] {
            assert_eq!(relative(text.parse().unwrap(), now), shown);
        }
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(clock_and_relative(now, now, &berlin), "2026-12-24 18:00:00.000 +01:00 (now)");
    }
}
