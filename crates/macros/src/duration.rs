//! Parses durations in attributes, when the application is compiled.
//!
//! The grammar is a part of the one for durations that users type
//! (`task_engine_core::parse`): numbers with units, the largest unit first. That parser
//! needs a calendar library, which every application would then build a second time for
//! its macros. A test checks that both parsers agree.

use std::time::Duration;

/// As in `task_engine_core::parse`.
const MAX: Duration = Duration::from_secs(100 * 366 * 86_400);
const NANOS_A_SECOND: u128 = 1_000_000_000;

/// The units from the largest to the smallest: names, nanoseconds, and whether the
/// number may have a fraction.
const UNITS: [(&[&str], u128, bool); 6] = [
    (&["w", "wk", "wks", "week", "weeks"], 7 * 86_400 * NANOS_A_SECOND, false),
    (&["d", "day", "days"], 86_400 * NANOS_A_SECOND, false),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600 * NANOS_A_SECOND, true),
    (&["m", "min", "mins", "minute", "minutes"], 60 * NANOS_A_SECOND, true),
    (&["s", "sec", "secs", "second", "seconds"], NANOS_A_SECOND, true),
    (&["ms", "msec", "msecs", "milli", "millis", "millisecond", "milliseconds"], 1_000_000, true),
];

/// Parses a duration with a unit.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.starts_with('-') {
        return Err("a duration cannot be negative".to_owned());
    }
    if rest.parse::<f64>().is_ok() {
        return Err(format!("the duration {rest:?} has no unit; write \"{rest}s\" for seconds"));
    }
    let mut nanos = 0_u128;
    let mut larger_units = 0;
    let mut ended = rest.is_empty();
    if ended {
        return Err(not_a_duration(text));
    }
    while !rest.is_empty() {
        if ended {
            return Err(format!("only the last number of {text:?} may have a fraction"));
        }
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split(after.trim_start(), |c| c.is_ascii_alphabetic());
        rest = after.trim_start();
        if ["mo", "mos", "month", "months", "y", "yr", "yrs", "year", "years"].contains(&unit) {
            return Err(
                "months and years are not always the same length; write it in days".to_owned()
            );
        }
        let position = UNITS.iter().position(|(names, ..)| names.contains(&unit));
        let position = position.ok_or_else(|| not_a_duration(text))?;
        if position < larger_units {
            return Err(format!("write each unit of {text:?} once, the largest first"));
        }
        larger_units = position + 1;
        let (_, unit_nanos, may_be_fraction) = UNITS[position];
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        ended = number.contains('.');
        if ended && (!may_be_fraction || fraction.is_empty() || fraction.len() > 9) {
            return Err(not_a_duration(text));
        }
        let whole: u64 = whole.parse().map_err(|_| not_a_duration(text))?;
        nanos += u128::from(whole) * unit_nanos;
        if ended {
            let digits = u32::try_from(fraction.len()).expect("at most 9 digits");
            let fraction: u128 = fraction.parse().map_err(|_| not_a_duration(text))?;
            nanos += fraction * unit_nanos / 10_u128.pow(digits);
        }
    }
    let secs = u64::try_from(nanos / NANOS_A_SECOND).unwrap_or(u64::MAX);
    let parsed = Duration::new(secs, u32::try_from(nanos % NANOS_A_SECOND).expect("below 10^9"));
    if parsed > MAX { Err(format!("{text:?} is more than 100 years")) } else { Ok(parsed) }
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

fn not_a_duration(text: &str) -> String {
    format!("{text:?} is not a duration; write it like \"5s\", \"10m\", \"1h30m\" or \"2 days\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use task_engine_core::parse::duration_with_unit;

    #[test]
    fn agrees_with_parser_of_core() {
        let numbers = ["0", "1", "7", "30", "90", "100", "1.5", "0.25", "2.000000001", "100000"];
        let mut accepted = 0;
        let mut check = |text: &str| {
            if let Ok(parsed) = parse(text) {
                assert_eq!(duration_with_unit(text), Ok(parsed), "{text}");
                accepted += 1;
            }
        };
        for (names, ..) in UNITS {
            for (name, number) in names.iter().flat_map(|name| numbers.map(|n| (name, n))) {
                check(&format!("{number}{name}"));
                check(&format!(" {number} {name} "));
                for (others, ..) in UNITS {
                    for other in others {
                        check(&format!("2{name}{number}{other}"));
                        check(&format!("2 {name} {number} {other}"));
                    }
                }
            }
        }
        assert!(accepted > 5_000, "{accepted}");
    }

    #[test]
    fn accepts_documented_forms() {
        for text in ["5s", "250ms", "10m", "1h30m", "1h 30m", "2 days", "30days", "1 week", "1.5h"]
        {
            assert_eq!(parse(text), duration_with_unit(text), "{text}");
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn refuses_what_core_refuses() {
        for (text, why) in [
            ("", "not a duration"),
            ("soon", "not a duration"),
            ("s", "not a duration"),
            ("5 parsecs", "not a duration"),
            ("5s ago", "not a duration"),
            ("1.5 days", "not a duration"),
            ("1.h", "not a duration"),
            ("1..2h", "not a duration"),
            ("30", "write \"30s\""),
            ("-5s", "negative"),
            ("1 month", "in days"),
            ("30m 1h", "the largest first"),
            ("1h 1h", "the largest first"),
            ("1.5h 1m", "fraction"),
            ("99999 weeks", "100 years"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            assert!(duration_with_unit(text).is_err(), "{text}");
        }
    }
}
