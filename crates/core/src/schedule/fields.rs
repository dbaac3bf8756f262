//! The fields of a cron expression: checked here, so that whoever mistyped one
//! is told what is wrong, and where.

use std::collections::BTreeSet;

/// What is wrong with a cron expression, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the cron expression {expression:?} is wrong at character {at}: {why}")]
pub struct InvalidCron {
    /// The expression as given.
    pub expression: String,
    /// The character, counted from 1.
    pub at: usize,
    /// What is wrong there.
    pub why: String,
}

/// An expression in the form that the search understands, one way to write
/// each meaning: lists of numbers, `*`, and the special words of days.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fields {
    /// Seconds, minutes, hours, day of month, month, day of week.
    pub(super) plain: String,
    /// Whether minute or hour begin with `*`: it then follows elapsed time.
    pub(super) any_minute_or_hour: bool,
    /// Whether a day must fit both day fields, because one of them begins with
    /// `*`; otherwise one of the two is enough.
    pub(super) both_days: bool,
    /// Whether no month of it has such a day, like February 30. The search would
    /// look for it until the last year that there is.
    pub(super) never_comes: bool,
}

/// What one field may say.
struct Kind {
    name: &'static str,
    min: u8,
    max: u8,
    names: &'static [&'static str],
    days: Days,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Days {
    No,
    OfMonth,
    OfWeek,
}

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const KINDS: [Kind; 6] = [
    Kind { name: "second", min: 0, max: 59, names: &[], days: Days::No },
    Kind { name: "minute", min: 0, max: 59, names: &[], days: Days::No },
    Kind { name: "hour", min: 0, max: 23, names: &[], days: Days::No },
    Kind { name: "day of month", min: 1, max: 31, names: &[], days: Days::OfMonth },
    Kind { name: "month", min: 1, max: 12, names: &MONTHS, days: Days::No },
    // 7 is Sunday, as 0 is.
    Kind { name: "day of week", min: 0, max: 7, names: &WEEKDAYS, days: Days::OfWeek },
];

const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Reads five fields, six with seconds in front, or a nickname.
pub(super) fn read(expression: &str) -> Result<Fields, InvalidCron> {
    let wrong = |at: usize, why: String| InvalidCron {
        expression: expression.to_owned(),
        at: expression[..at].chars().count() + 1,
        why,
    };
    let start = expression.len() - expression.trim_start().len();
    if let Some(word) = Some(expression.trim()).filter(|word| word.starts_with('@')) {
        let known = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        let Some((_, meaning)) = known else {
            let names = NICKNAMES.map(|(name, _)| name).join(", ");
            return Err(wrong(start, format!("{word} is not known; there are {names}")));
        };
        return read(meaning);
    }
    let words = words(expression);
    let kinds = match words.len() {
        5 => &KINDS[1..],
        6 => &KINDS[..],
        number => {
            let fields = "minute, hour, day of month, month, day of week";
            return Err(wrong(
                start,
                format!(
                    "it needs 5 fields ({fields}), or 6 with seconds in front, and has {number}"
                ),
            ));
        }
    };
    let mut plain = Vec::with_capacity(6);
    for (kind, (at, word)) in kinds.iter().zip(&words) {
        let field = kind
            .read(word)
            .map_err(|(inside, why)| wrong(at + inside, format!("{}: {why}", kind.name)))?;
        plain.push(field);
    }
    if plain.len() == 5 {
        plain.insert(0, "0".to_owned());
    }
    let begins_with_star = |field: usize| {
        let (_, word) = words[words.len() - 5 + field];
        word.starts_with(['*', '?'])
    };
    let both_days = begins_with_star(2) || begins_with_star(4);
    Ok(Fields {
        never_comes: both_days && never_comes(&plain[3], &plain[4]),
        plain: plain.join(" "),
        any_minute_or_hour: begins_with_star(0) || begins_with_star(1),
        both_days,
    })
}

/// Whether each of these days of the month is too late for each of these months.
/// Both are lists of numbers, or `*`; a day may be the weekday next to it (`31W`).
fn never_comes(days: &str, months: &str) -> bool {
    let numbers = |field: &str| -> Option<Vec<u8>> {
        field.split(',').map(|item| item.trim_end_matches('W').parse().ok()).collect()
    };
    let Some(first) = numbers(days).and_then(|days| days.into_iter().min()) else {
        return false;
    };
    let months = numbers(months).unwrap_or_else(|| (1..=12).collect());
    let longest = |month| match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    months.into_iter().all(|month| longest(month) < first)
}

/// The words of a text, each with the byte where it begins.
fn words(text: &str) -> Vec<(usize, &str)> {
    text.split_whitespace()
        .map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
        .collect()
}

/// Where in the field, and what.
type Wrong = (usize, String);

impl Kind {
    fn read(&self, field: &str) -> Result<String, Wrong> {
        if field == "*" || (field == "?" && self.days != Days::No) {
            return Ok("*".to_owned());
        }
        let mut numbers = BTreeSet::new();
        let mut special = BTreeSet::new();
        let mut at = 0;
        for item in field.split(',') {
            if item.is_empty() {
                return Err((at, "there is nothing between two commas".to_owned()));
            }
            match self.special(item).map_err(|(inside, why)| (at + inside, why))? {
                Some(word) => {
                    special.insert(word);
                }
                None => {
                    numbers.extend(self.numbers(item).map_err(|(inside, why)| (at + inside, why))?);
                }
            }
            at += item.len() + 1;
        }
        if special.contains("L") && special.contains("LW") {
            return Err((0, "L and LW exclude each other".to_owned()));
        }
        let numbers = numbers.iter().map(u8::to_string);
        Ok(numbers.chain(special).collect::<Vec<_>>().join(","))
    }

    /// `L`, `LW`, `15W` among days of the month; `FRI#2`, `FRIL` among those of
    /// the week.
    fn special(&self, item: &str) -> Result<Option<String>, Wrong> {
        let upper = item.to_ascii_uppercase();
        match self.days {
            Days::OfMonth if upper == "L" || upper == "LW" => Ok(Some(upper)),
            Days::OfMonth if upper.ends_with('W') => {
                Ok(Some(format!("{}W", self.number(&item[..item.len() - 1], 0)?)))
            }
            Days::OfWeek if upper == "L" => {
                Err((0, "L needs a day here, like FRIL for the last Friday".to_owned()))
            }
            Days::OfWeek if upper.ends_with('L') => {
                Ok(Some(format!("{}L", self.number(&item[..item.len() - 1], 0)? % 7)))
            }
            Days::OfWeek => match item.split_once('#') {
                None => Ok(None),
                Some((day, which)) => match which.parse::<u8>() {
                    Ok(which @ 1..=5) => Ok(Some(format!("{}#{which}", self.number(day, 0)? % 7))),
                    _ => {
                        Err((day.len() + 1, format!("# takes a number from 1 to 5, not {which:?}")))
                    }
                },
            },
            _ => Ok(None),
        }
    }

    /// `5`, `1-5`, `*/2` or `1-5/2`.
    fn numbers(&self, item: &str) -> Result<Vec<u8>, Wrong> {
        let (range, step) = match item.split_once('/') {
            None => (item, 1),
            Some((range, step)) => match step.parse::<u8>() {
                Ok(number) if number > 0 => (range, number),
                _ => {
                    let why = format!("a step is a number from 1 up, not {step:?}");
                    return Err((range.len() + 1, why));
                }
            },
        };
        // Every seventh day of a week is Sunday alone, not Sunday by two names.
        let last = if self.days == Days::OfWeek { 6 } else { self.max };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (self.min, last),
            None if item.contains('/') => {
                let why = format!("a step needs a range or *, like {range}-{last}/{step}");
                return Err((0, why));
            }
            None => {
                let number = self.number(range, 0)?;
                (number, number)
            }
            Some((first, end)) => {
                let last = match self.number(end, first.len() + 1)? {
                    // A range that ends with Sunday goes to the end of the week.
                    0 if self.days == Days::OfWeek && end.len() > 1 => 7,
                    number => number,
                };
                (self.number(first, 0)?, last)
            }
        };
        if first > last {
            return Err((0, format!("the range {range} goes backwards")));
        }
        let week = |number: u8| if self.days == Days::OfWeek { number % 7 } else { number };
        Ok((first..=last).step_by(usize::from(step)).map(week).collect())
    }

    fn number(&self, text: &str, at: usize) -> Result<u8, Wrong> {
        if let Some(place) = self.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            // Months are counted from 1, days of the week from 0.
            return Ok(u8::try_from(place).unwrap_or(0) + self.min);
        }
        let (min, max) = (self.min, self.max);
        match text.parse::<u8>() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) => {
                Err((at, format!("{text} is not between {min} and {max}")))
            }
            _ => Err((at, format!("{text:?} is not understood"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_to_write_each_meaning() {
        for (expression, plain) in [
            ("* * * * *", "0 * * * * *"),
            ("*/15 0-3 1,15 JAN-mar mon", "0 0,15,30,45 0,1,2,3 1,15 1,2,3 1"),
            ("30 5/1 * * * *", ""),
            ("10-30/10 * * * *", "0 10,20,30 * * * *"),
            ("0 0 L * *", "0 0 0 L * *"),
            ("0 0 LW,15w * ?", "0 0 0 15W,LW * *"),
            ("0 0 * * FRI#2,5l", "0 0 0 * * 5#2,5L"),
            ("0 0 * * 7", "0 0 0 * * 0"),
            ("0 0 * * 7L", "0 0 0 * * 0L"),
            ("0 0 * * FRI-SUN", "0 0 0 * * 0,5,6"),
            ("0 0 * * 5-7", "0 0 0 * * 0,5,6"),
            ("0 0 * * */7", "0 0 0 * * 0"),
            ("5 4 3 2 1 0", "5 4 3 2 1 0"),
            ("@daily", "0 0 0 * * *"),
            (" @Weekly ", "0 0 0 * * 0"),
        ] {
            match read(expression) {
                Ok(fields) => assert_eq!(fields.plain, plain, "{expression}"),
                Err(error) => assert_eq!("", plain, "{error}"),
            }
        }
    }

    #[test]
    fn stars_in_front_change_the_meaning() {
        let flags = |expression| {
            let fields = read(expression).unwrap();
            (fields.any_minute_or_hour, fields.both_days)
        };
        assert_eq!(flags("0 3 1 * MON"), (false, false));
        assert_eq!(flags("0 3 1 * *"), (false, true));
        assert_eq!(flags("0 3 */2 * MON"), (false, true));
        assert_eq!(flags("0 * 1 * MON"), (true, false));
        assert_eq!(flags("*/5 3 1 * MON"), (true, false));
        assert_eq!(flags("0-59 3 1 * MON"), (false, false));
        assert_eq!(flags("* 0 3 1 * MON"), (false, false));
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (expression, at, why) in [
            ("", 1, "it needs 5 fields"),
            ("0 3 * *", 1, "and has 4"),
            ("0 0 3 * * * 2027", 1, "and has 7"),
            ("61 3 * * *", 1, "minute: 61 is not between 0 and 59"),
            ("0  24 * * *", 4, "hour: 24 is not between 0 and 23"),
            ("0 3 0 * *", 5, "day of month: 0 is not between 1 and 31"),
            ("0 3 * 13 *", 7, "month: 13"),
            ("0 3 * FOO *", 7, "month: \"FOO\" is not understood"),
            ("0 3 * * MON,,TUE", 13, "nothing between two commas"),
            ("0 3 * * 8", 9, "day of week: 8"),
            ("0 3 * * FRI#6", 13, "# takes a number from 1 to 5"),
            ("0 3 * * L", 9, "like FRIL"),
            ("*/0 * * * *", 3, "a step is a number from 1 up"),
            ("*/x * * * *", 3, "a step is a number from 1 up"),
            ("5/10 * * * *", 1, "like 5-59/10"),
            ("30-10 * * * *", 1, "goes backwards"),
            ("0 3 * * FRI-MON", 9, "goes backwards"),
            ("0 3 1-32 * *", 7, "32 is not between 1 and 31"),
            ("L 3 * * *", 1, "minute: \"L\" is not understood"),
            ("? 3 * * *", 1, "minute: \"?\""),
            ("é 3 * * *", 1, "minute: \"é\""),
            ("0 é * * *", 3, "hour: \"é\""),
            ("-1 3 * * *", 1, "is not understood"),
            ("999999999999 3 * * *", 1, "is not between"),
            ("@reboot", 1, "there are @yearly"),
            ("0 3 L,LW * *", 5, "exclude each other"),
        ] {
            let error = read(expression).unwrap_err();
            assert_eq!(error.at, at, "{error}");
            assert!(error.why.contains(why), "{error}");
        }
    }

    #[test]
    fn impossible_dates_are_known_at_once() {
        for (expression, never) in [
            ("0 0 30 2 *", true),
            ("0 0 31 4,6 *", true),
            ("0 0 31W 2 *", true),
            ("0 0 30,31 FEB *", true),
            ("0 0 29 2 *", false),
            ("0 0 31 2,3 *", false),
            ("0 0 31 * *", false),
            ("0 0 L 2 *", false),
            ("0 0 30 2 MON", false),
            ("@daily", false),
        ] {
            assert_eq!(read(expression).unwrap().never_comes, never, "{expression}");
        }
    }
}
