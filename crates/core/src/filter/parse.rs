//! Parsing and printing of filters.

use std::fmt;
use std::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

use super::{Filter, FilterField, FilterOperator, FilterTime, Term, Value};
use crate::suggest::did_you_mean;
use crate::task::TaskStatus;

/// The error in a filter, and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {why}")]
pub struct InvalidFilter {
    /// The position of the wrong character, from 1.
    pub at: usize,
    /// What is wrong, and what to write instead.
    pub why: String,
}

/// The names of fields that have no path.
const FIELDS: [(&str, FilterField); 16] = [
    ("status", FilterField::Status),
    ("class", FilterField::Class),
    ("error", FilterField::Error),
    ("created", FilterField::Created),
    ("updated", FilterField::Updated),
    ("due", FilterField::Due),
    ("started", FilterField::Started),
    ("ended", FilterField::Ended),
    ("queue", FilterField::Queue),
    ("priority", FilterField::Priority),
    ("id", FilterField::Id),
    ("instance", FilterField::Instance),
    ("correlation", FilterField::Correlation),
    ("parent", FilterField::Parent),
    ("attempts", FilterField::Attempts),
    ("retries", FilterField::Retries),
];

/// Longest first, so that none matches the beginning of another.
const OPERATORS: [FilterOperator; 8] = [
    FilterOperator::IsNot,
    FilterOperator::HasNot,
    FilterOperator::Least,
    FilterOperator::Most,
    FilterOperator::Is,
    FilterOperator::Has,
    FilterOperator::More,
    FilterOperator::Less,
];

/// The longest filter, so that it fits into a URL.
const BYTES_MAX: usize = 16 * 1024;
const OFFSET_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

impl Filter {
    /// Reads a filter.
    ///
    /// Times without an offset are in this zone.
    pub fn parse(text: &str, zone: &TimeZone) -> Result<Self, InvalidFilter> {
        let mut reader = Reader { chars: text.chars().collect(), at: 0, zone };
        if text.len() > BYTES_MAX {
            return Err(InvalidFilter {
                at: 1,
                why: format!("a filter has at most {BYTES_MAX} bytes"),
            });
        }
        let mut terms = Vec::new();
        while reader.skip_spaces() {
            terms.push(reader.term()?);
        }
        Ok(Self { terms })
    }

    /// Reads the words that a shell has made of a filter.
    ///
    /// A shell removes quotes, so a word that is not a valid filter is read again as one term,
    /// whose value is everything after its operator.
    pub fn parse_words(
        words: &[impl AsRef<str>],
        zone: &TimeZone,
    ) -> Result<Self, (String, InvalidFilter)> {
        let mut whole = Self::default();
        for word in words.iter().map(AsRef::as_ref) {
            let read = Self::parse(word, zone).or_else(|bad| one_term(word, zone).ok_or(bad));
            whole = whole.and(read.map_err(|bad| (word.to_owned(), bad))?);
        }
        Ok(whole)
    }
}

fn one_term(word: &str, zone: &TimeZone) -> Option<Filter> {
    let mut reader = Reader { chars: word.chars().collect(), at: 0, zone };
    reader.field().ok()?;
    reader.operator().ok()?;
    let (head, value) = reader.chars.split_at(reader.at);
    let has_more_terms = value.iter().any(|c| "=~<>\"".contains(*c));
    if has_more_terms || !value.iter().any(|c| c.is_whitespace()) {
        return None;
    }
    let value = Quoted(&value.iter().collect::<String>()).to_string();
    Filter::parse(&format!("{}{value}", head.iter().collect::<String>()), zone).ok()
}

struct Reader<'a> {
    chars: Vec<char>,
    at: usize,
    zone: &'a TimeZone,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    /// False at the end.
    fn skip_spaces(&mut self) -> bool {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
        self.peek().is_some()
    }

    fn bad<T>(&self, at: usize, why: impl Into<String>) -> Result<T, InvalidFilter> {
        Err(InvalidFilter { at: at + 1, why: why.into() })
    }

    fn term(&mut self) -> Result<Term, InvalidFilter> {
        let field = self.field()?;
        let at = self.at;
        let operator = self.operator()?;
        if !field.takes(operator) {
            let all = OPERATORS.into_iter().filter(|operator| field.takes(*operator));
            let all: Vec<_> = all.map(FilterOperator::as_str).collect();
            return self.bad(
                at,
                format!(
                    "{field} does not take {}; use one of {}",
                    operator.as_str(),
                    all.join(" ")
                ),
            );
        }
        let mut values = Vec::new();
        loop {
            let at = self.at;
            let text = self.text()?;
            values.push(self.value(&field, text, at)?);
            if self.peek() != Some(',') {
                break;
            }
            if !operator.takes_many() {
                return self.bad(self.at, format!("{field}{} takes one value", operator.as_str()));
            }
            self.at += 1;
        }
        if self.peek().is_some_and(|c| !c.is_whitespace()) {
            return self.bad(self.at, "a space is missing before the next term");
        }
        Ok(Term { field, operator, values })
    }

    fn field(&mut self) -> Result<FilterField, InvalidFilter> {
        let at = self.at;
        let name = self.word();
        if let "params" | "context" = name.as_str() {
            let mut path = Vec::new();
            while self.peek() == Some('.') {
                self.at += 1;
                let step = if self.peek() == Some('"') { self.quoted()? } else { self.word() };
                if step.is_empty() && self.chars.get(self.at.wrapping_sub(1)) != Some(&'"') {
                    return self.bad(
                        self.at,
                        format!("the name of a field is missing, as in {name}.user.id=42"),
                    );
                }
                path.push(step);
            }
            if path.is_empty() {
                return self.bad(self.at, format!("name a field, like {name}.user.id=42"));
            }
            return Ok(if name == "params" {
                FilterField::Params(path)
            } else {
                FilterField::Context(path)
            });
        }
        if let Some((_, field)) = FIELDS.into_iter().find(|(known, _)| *known == name) {
            return Ok(field);
        }
        let mut names: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
        names.extend(["params", "context"]);
        if name.is_empty() {
            return self.bad(at, "a term begins with a field, as in status=failed");
        }
        self.bad(
            at,
            format!(
                "there is no field {name:?}{}; there are {}",
                did_you_mean(&name, names.iter().copied()),
                names.join(", ")
            ),
        )
    }

    fn operator(&mut self) -> Result<FilterOperator, InvalidFilter> {
        let rest = &self.chars[self.at..];
        let found = OPERATORS.into_iter().find(|operator| {
            let mut wanted = operator.as_str().chars();
            let mut found = rest.iter().copied();
            wanted.all(|c| found.next() == Some(c))
        });
        match found {
            Some(operator) => {
                let at = self.at;
                self.at += operator.as_str().len();
                match self.peek() {
                    Some('=' | '~' | '<' | '>') => self.bad(
                        at,
                        "there are = != ~ !~ > >= < <=; a value that begins with one of these stands in quotes",
                    ),
                    _ => Ok(operator),
                }
            }
            None => self.bad(
                self.at,
                "an operator is missing, as in status=failed; there are = != ~ !~ > >= < <=",
            ),
        }
    }

    /// The letters of a name.
    fn word(&mut self) -> String {
        let begin = self.at;
        while self.peek().is_some_and(|c| !c.is_whitespace() && !".=!~<>\",".contains(c)) {
            self.at += 1;
        }
        self.chars[begin..self.at].iter().collect()
    }

    fn text(&mut self) -> Result<String, InvalidFilter> {
        if self.peek() == Some('"') {
            return self.quoted();
        }
        let begin = self.at;
        let mut text = String::new();
        while let Some(c) = self.peek().filter(|c| !c.is_whitespace() && *c != ',') {
            match c {
                '"' => return self.bad(self.at, "a quote inside of a value; put the whole value in quotes, and \\\" for a quote"),
                '\\' => text.push(self.escaped()?),
                c => {
                    text.push(c);
                    self.at += 1;
                }
            }
        }
        if self.at == begin {
            return self.bad(begin, "a value is missing; an empty one is written \"\"");
        }
        Ok(text)
    }

    fn quoted(&mut self) -> Result<String, InvalidFilter> {
        let begin = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.peek() {
                None => return self.bad(begin, "this quote is not closed"),
                Some('"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some('\\') => text.push(self.escaped()?),
                Some(c) => {
                    text.push(c);
                    self.at += 1;
                }
            }
        }
    }

    /// `\n`, `\t`, `\r`, `\u{1b}`, and `\` before any other character.
    fn escaped(&mut self) -> Result<char, InvalidFilter> {
        let begin = self.at;
        let letter = self.chars.get(begin + 1).copied();
        self.at += 2;
        match letter {
            None => self.bad(begin, "a character is missing after \\"),
            Some('n') => Ok('\n'),
            Some('t') => Ok('\t'),
            Some('r') => Ok('\r'),
            Some('u') => {
                let rest: String = self.chars[self.at..].iter().take(8).collect();
                let code = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
                let found = code.and_then(|(hex, _)| {
                    let c = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32)?;
                    Some((c, hex.chars().count() + 2))
                });
                match found {
                    Some((c, length)) => {
                        self.at += length;
                        Ok(c)
                    }
                    None => self.bad(begin, "a character by its number is written \\u{1b}"),
                }
            }
            Some(c) if c.is_alphanumeric() => {
                self.bad(begin, format!("\\{c} is not known; use \\n \\t \\r \\u{{1b}} \\\\ \\\""))
            }
            Some(c) => Ok(c),
        }
    }

    fn value(&self, field: &FilterField, text: String, at: usize) -> Result<Value, InvalidFilter> {
        match field {
            FilterField::Status => match text.parse::<TaskStatus>() {
                Ok(status) => Ok(Value::Status(status)),
                Err(why) => {
                    let words = TaskStatus::ALL.map(TaskStatus::as_str).into_iter();
                    let words = words.chain([TaskStatus::SUCCEEDED]);
                    self.bad(at, format!("{why}{}", did_you_mean(&text, words)))
                }
            },
            FilterField::Id
            | FilterField::Parent
            | FilterField::Priority
            | FilterField::Attempts
            | FilterField::Retries => match text.parse() {
                Ok(number) => Ok(Value::Number(number)),
                Err(_) => self.bad(at, format!("{field} is a whole number, not {text:?}")),
            },
            FilterField::Created
            | FilterField::Updated
            | FilterField::Due
            | FilterField::Started
            | FilterField::Ended => self.time(&text, at),
            _ => Ok(Value::Text(text)),
        }
    }

    fn time(&self, text: &str, at: usize) -> Result<Value, InvalidFilter> {
        if let Some(offset) = text.strip_prefix("now") {
            return self.offset(offset, text, at);
        }
        if let Ok(time) = text.parse::<Timestamp>() {
            return Ok(Value::Time(FilterTime::At(time)));
        }
        let local = text.replacen('T', " ", 1);
        let date = Date::strptime("%Y-%m-%d", &local).ok().map(|date| date.at(0, 0, 0, 0));
        let exact = |form| DateTime::strptime(form, &local).ok();
        let exact = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"].into_iter().find_map(exact);
        if let Some(time) = exact.or(date) {
            return match self.zone.to_ambiguous_zoned(time).compatible() {
                Ok(zoned) => Ok(Value::Time(FilterTime::At(zoned.timestamp()))),
                Err(_) => self.bad(at, "this time is out of range"),
            };
        }
        if positive_duration(text).is_some() {
            return self.bad(
                at,
                format!("{text} is a duration, not a time; write >now-{text} for the last {text}, or <now-{text} for longer ago"),
            );
        }
        self.bad(
            at,
            format!("{text:?} is not a time; write now-2h, 2026-12-24, \"2026-12-24 18:00\" or 2026-12-24T18:00:00Z"),
        )
    }

    /// `now`, `now-2h` or `now+10m`.
    fn offset(&self, offset: &str, text: &str, at: usize) -> Result<Value, InvalidFilter> {
        let offset = if offset.is_empty() {
            Some(SignedDuration::ZERO)
        } else if let Some(past) = offset.strip_prefix('-') {
            positive_duration(past).map(|duration| -duration)
        } else {
            offset.strip_prefix('+').and_then(positive_duration)
        };
        match offset {
            Some(offset) if offset.unsigned_abs() > OFFSET_MAX => {
                self.bad(at, "this is more than 100 years")
            }
            Some(offset) => Ok(Value::Time(FilterTime::FromNow(offset))),
            None => self
                .bad(at, format!("{text:?} is not a time; write now, now-2h, now-7d or now+10m")),
        }
    }
}

impl FilterField {
    fn takes(&self, operator: FilterOperator) -> bool {
        use FilterOperator::{Has, HasNot, Is, IsNot};
        match self {
            Self::Status => matches!(operator, Is | IsNot),
            Self::Class | Self::Queue | Self::Instance | Self::Correlation | Self::Error => {
                matches!(operator, Is | IsNot | Has | HasNot)
            }
            Self::Id | Self::Parent | Self::Priority | Self::Attempts | Self::Retries => {
                !matches!(operator, Has | HasNot)
            }
            Self::Created | Self::Updated | Self::Due | Self::Started | Self::Ended => {
                !operator.takes_many()
            }
            Self::Params(_) | Self::Context(_) => true,
        }
    }
}

impl FilterOperator {
    fn takes_many(self) -> bool {
        matches!(self, Self::Is | Self::IsNot | Self::Has | Self::HasNot)
    }
}

fn positive_duration(text: &str) -> Option<SignedDuration> {
    let span = text.parse::<Span>().ok().filter(|span| !span.is_negative())?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()
}

/// A value, in quotes if needed.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let special = |c: char| c.is_whitespace() || c.is_control() || ",\"\\=~<>!".contains(c);
        if !self.0.is_empty() && !self.0.contains(special) {
            return f.write_str(self.0);
        }
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                '\r' => f.write_str("\\r")?,
                c if c.is_control() => write!(f, "{}", c.escape_unicode())?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

impl fmt::Display for FilterField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (root, path) = match self {
            Self::Params(path) => ("params", path),
            Self::Context(path) => ("context", path),
            field => {
                let name = FIELDS.iter().find(|(_, known)| known == field).map(|(name, _)| *name);
                return f.write_str(name.unwrap_or_default());
            }
        };
        f.write_str(root)?;
        for step in path {
            if step.contains('.') {
                write!(f, ".\"{}\"", step.replace('\\', "\\\\").replace('"', "\\\""))?;
            } else {
                write!(f, ".{}", Quoted(step))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.field, self.operator.as_str())?;
        for (n, value) in self.values.iter().enumerate() {
            f.write_str(if n == 0 { "" } else { "," })?;
            match value {
                Value::Text(text) => write!(f, "{}", Quoted(text))?,
                Value::Number(number) => write!(f, "{number}")?,
                Value::Status(status) => f.write_str(status.as_str())?,
                Value::Time(FilterTime::At(time)) => write!(f, "{time}")?,
                Value::Time(FilterTime::FromNow(offset)) => write_offset(f, *offset)?,
            }
        }
        Ok(())
    }
}

/// `now-2h30m`: without spaces, so without quotes.
fn write_offset(f: &mut fmt::Formatter<'_>, offset: SignedDuration) -> fmt::Result {
    if offset.is_zero() {
        return f.write_str("now");
    }
    let sign = if offset.is_negative() { '-' } else { '+' };
    write!(f, "now{sign}{}", format!("{:#}", offset.abs()).replace(' ', ""))
}

#[cfg(test)]
mod tests;
