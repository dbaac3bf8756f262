//! Times and durations as programs write them.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo, Timestamp};

/// No wait is longer: beyond this, years and months begin to matter.
const DURATION_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

/// `5s`, `1h30m`, `2 days`, `PT90S`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let span: Span = text
        .trim()
        .parse()
        .map_err(|_| format!("{text:?} is not a duration; write it like 5s, 10m or 1h30m"))?;
    if span.is_negative() {
        return Err("a duration cannot be negative".to_owned());
    }
    let exact = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| {
        "months and years are not always the same length; write it in days".to_owned()
    })?;
    let exact = exact.unsigned_abs();
    if exact > DURATION_MAX { Err("this is more than 100 years".to_owned()) } else { Ok(exact) }
}

/// `2026-12-24T18:00:00Z`, or with another offset.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    let time: Timestamp = text
        .trim()
        .parse()
        .map_err(|_| format!("{text:?} is not a time; write it like 2026-12-24T18:00:00Z"))?;
    if time < Timestamp::UNIX_EPOCH {
        return Err("this is before 1970".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_times() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("2 days"), Ok(Duration::from_secs(172_800)));
        for (text, why) in [
            ("", "not a duration"),
            ("5", "not a duration"),
            ("-5s", "negative"),
            ("1 month", "in days"),
            ("40000 days", "100 years"),
        ] {
            assert!(duration(text).unwrap_err().contains(why), "{text}");
        }
        assert!(time("2026-12-24T18:00:00+01:00").is_ok());
        for text in ["", "18:00", "2026-12-24", "-009999-01-02T00:00:00Z"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
