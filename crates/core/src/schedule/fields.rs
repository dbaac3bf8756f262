//! Parses the fields of a cron expression.
//!
//! `croner` parses them, too, but its errors have no position, and it accepts forms that cron does
//! not (`5/10`). It also does not tell whether a field begins with `*`, which decides about changes
//! of clocks and about days. So the fields are parsed here and passed to `croner` in one canonical
//! form.

use std::collections::BTreeSet;

/// The error of an invalid cron expression, with the field and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid cron expression {expression:?} at character {at}: {why}")]
pub struct InvalidCron {
    /// The expression as given.
    pub expression: String,
    /// The character, counted from 1.
    pub at: usize,
    /// The problem there.
    pub why: String,
}

/// An expression in canonical form for `croner`: lists of numbers, `*`, and the special
/// forms of days.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CronFields {
    /// Seconds, minutes, hours, day of month, month, day of week.
    pub(super) canonical: String,
    /// Whether minute or hour begins with `*`: then it follows elapsed time.
    pub(super) any_minute_or_hour: bool,
    /// Whether a day must match both day fields, because one of them begins with `*`;
    /// otherwise one match is enough.
    pub(super) both_days: bool,
    /// Whether no such date exists, like February 30. `croner` would search for it up to
    /// the last year of the calendar.
    pub(super) is_impossible: bool,
}

/// The allowed values of a field.
struct FieldSpec {
    name: &'static str,
    min: u8,
    max: u8,
    names: &'static [&'static str],
    days: DayField,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DayField {
    No,
    OfMonth,
    OfWeek,
}

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FIELDS: [FieldSpec; 6] = [
    FieldSpec { name: "second", min: 0, max: 59, names: &[], days: DayField::No },
    FieldSpec { name: "minute", min: 0, max: 59, names: &[], days: DayField::No },
    FieldSpec { name: "hour", min: 0, max: 23, names: &[], days: DayField::No },
    FieldSpec { name: "day of month", min: 1, max: 31, names: &[], days: DayField::OfMonth },
    FieldSpec { name: "month", min: 1, max: 12, names: &MONTHS, days: DayField::No },
    // 7 is Sunday, as 0 is.
    FieldSpec { name: "day of week", min: 0, max: 7, names: &WEEKDAYS, days: DayField::OfWeek },
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

/// Parses five fields, six with seconds first, or a nickname.
pub(super) fn parse(expression: &str) -> Result<CronFields, InvalidCron> {
    let invalid = |at: usize, why: String| InvalidCron {
        expression: expression.to_owned(),
        at: expression[..at].chars().count() + 1,
        why,
    };
    let start = expression.len() - expression.trim_start().len();
    if let Some(word) = Some(expression.trim()).filter(|word| word.starts_with('@')) {
        let known = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        let Some((_, meaning)) = known else {
            let names = NICKNAMES.map(|(name, _)| name).join(", ");
            return Err(invalid(start, format!("unknown nickname {word}; use {names}")));
        };
        return parse(meaning);
    }
    let words = words(expression);
    let specs = match words.len() {
        5 => &FIELDS[1..],
        6 => &FIELDS[..],
        number => {
            let fields = "minute, hour, day of month, month, day of week";
            return Err(invalid(
                start,
                format!("it needs 5 fields ({fields}), or 6 with seconds first, but has {number}"),
            ));
        }
    };
    let mut canonical = Vec::with_capacity(6);
    for (spec, (at, word)) in specs.iter().zip(&words) {
        let field = spec
            .parse(word)
            .map_err(|(inside, why)| invalid(at + inside, format!("{}: {why}", spec.name)))?;
        canonical.push(field);
    }
    if canonical.len() == 5 {
        canonical.insert(0, "0".to_owned());
    }
    let begins_with_star = |field: usize| {
        let (_, word) = words[words.len() - 5 + field];
        word.starts_with(['*', '?'])
    };
    let both_days = begins_with_star(2) || begins_with_star(4);
    Ok(CronFields {
        is_impossible: both_days && is_impossible(&canonical[3], &canonical[4]),
        canonical: canonical.join(" "),
        any_minute_or_hour: begins_with_star(0) || begins_with_star(1),
        both_days,
    })
}

/// Whether none of these months has one of these days. Both are lists of numbers, or `*`; a
/// day may be the nearest weekday (`31W`).
fn is_impossible(days: &str, months: &str) -> bool {
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

/// The words of a text with their byte positions.
fn words(text: &str) -> Vec<(usize, &str)> {
    text.split_whitespace()
        .map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
        .collect()
}

/// The position in the field, and the problem.
type CronFieldError = (usize, String);

impl FieldSpec {
    fn parse(&self, field: &str) -> Result<String, CronFieldError> {
        if field == "*" || (field == "?" && self.days != DayField::No) {
            return Ok("*".to_owned());
        }
        let mut numbers = BTreeSet::new();
        let mut special = BTreeSet::new();
        let mut at = 0;
        for item in field.split(',') {
            if item.is_empty() {
                return Err((at, "a value is missing next to a comma".to_owned()));
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

    /// `L`, `LW`, `15W` of a day of the month; `FRI#2`, `FRIL` of a day of the week.
    fn special(&self, item: &str) -> Result<Option<String>, CronFieldError> {
        let upper = item.to_ascii_uppercase();
        match self.days {
            DayField::OfMonth if upper == "L" || upper == "LW" => Ok(Some(upper)),
            DayField::OfMonth if upper.ends_with('W') => {
                Ok(Some(format!("{}W", self.number(&item[..item.len() - 1], 0)?)))
            }
            DayField::OfWeek if upper == "L" => {
                Err((0, "L needs a day here, like FRIL for the last Friday".to_owned()))
            }
            DayField::OfWeek if upper.ends_with('L') => {
                Ok(Some(format!("{}L", self.number(&item[..item.len() - 1], 0)? % 7)))
            }
            DayField::OfWeek => match item.split_once('#') {
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
    fn numbers(&self, item: &str) -> Result<Vec<u8>, CronFieldError> {
        let (range, step) = match item.split_once('/') {
            None => (item, 1),
            Some((range, step)) => match step.parse::<u8>() {
                Ok(number) if number > 0 => (range, number),
                _ => {
                    let why = format!("a step is a number from 1, not {step:?}");
                    return Err((range.len() + 1, why));
                }
            },
        };
        // `*/7` is Sunday only, not Sunday as both 0 and 7.
        let last = if self.days == DayField::OfWeek { 6 } else { self.max };
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
                    // A range that ends on SUN goes to the end of the week.
                    0 if self.days == DayField::OfWeek && end.len() > 1 => 7,
                    number => number,
                };
                (self.number(first, 0)?, last)
            }
        };
        if first > last {
            return Err((0, format!("the range {range} goes backwards")));
        }
        let normalize =
            |number: u8| if self.days == DayField::OfWeek { number % 7 } else { number };
        Ok((first..=last).step_by(usize::from(step)).map(normalize).collect())
    }

    fn number(&self, text: &str, at: usize) -> Result<u8, CronFieldError> {
        if let Some(place) = self.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            // Months count from 1, days of the week from 0.
            return Ok(u8::try_from(place).unwrap_or(0) + self.min);
        }
        let (min, max) = (self.min, self.max);
        match text.parse::<u8>() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) => {
                Err((at, format!("{text} is not between {min} and {max}")))
            }
            _ => Err((at, format!("invalid value {text:?}"))),
        }
    }
}

#[cfg(test)]
mod tests;
