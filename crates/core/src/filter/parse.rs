//! Filters as people type them, and as they are printed.

use std::fmt;
use std::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

use super::{Field, Filter, Operator, Term, Value};
use crate::task::TaskStatus;

/// Why a text is no filter, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {why}")]
pub struct InvalidFilter {
    /// The character that is wrong, counted from 1.
    pub at: usize,
    /// What is wrong, and what to write instead.
    pub why: String,
}

/// The names of fields that have no path.
const FIELDS: [(&str, Field); 15] = [
    ("status", Field::Status),
    ("class", Field::Class),
    ("error", Field::Error),
    ("created", Field::Created),
    ("updated", Field::Updated),
    ("due", Field::Due),
    ("started", Field::Started),
    ("ended", Field::Ended),
    ("queue", Field::Queue),
    ("priority", Field::Priority),
    ("id", Field::Id),
    ("instance", Field::Instance),
    ("correlation", Field::Correlation),
    ("attempts", Field::Attempts),
    ("retries", Field::Retries),
];

/// Longest first, so that none is taken for the beginning of another.
const OPERATORS: [Operator; 8] = [
    Operator::IsNot,
    Operator::HasNot,
    Operator::Least,
    Operator::Most,
    Operator::Is,
    Operator::Has,
    Operator::More,
    Operator::Less,
];

/// The longest text that is read, so that a filter can be sent anywhere.
const BYTES_MAX: usize = 16 * 1024;
const AGE_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

impl Filter {
    /// Reads a filter. Times without an offset are in this zone.
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

    /// Reads the words that a shell has made of a filter. A shell takes quotes
    /// away, so a word that is no filter as it stands is read once more as one
    /// term, whose value is all that follows its operator.
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
            let all: Vec<_> = all.map(Operator::as_str).collect();
            return self.bad(
                at,
                format!(
                    "{field} cannot be asked with {}; there are {}",
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

    fn field(&mut self) -> Result<Field, InvalidFilter> {
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
                return self.bad(self.at, format!("which field? Write it like {name}.user.id=42"));
            }
            return Ok(if name == "params" { Field::Params(path) } else { Field::Context(path) });
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

    fn operator(&mut self) -> Result<Operator, InvalidFilter> {
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
                None => return self.bad(begin, "this quote is never closed"),
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

    /// `\n`, `\t`, `\r`, `\u{1b}`, and `\` before a character that means itself.
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
            Some(c) if c.is_alphanumeric() => self.bad(
                begin,
                format!("\\{c} means nothing; there are \\n \\t \\r \\u{{1b}} \\\\ \\\""),
            ),
            Some(c) => Ok(c),
        }
    }

    fn value(&self, field: &Field, text: String, at: usize) -> Result<Value, InvalidFilter> {
        match field {
            Field::Status => match text.parse::<TaskStatus>() {
                Ok(status) => Ok(Value::Status(status)),
                Err(why) => {
                    let words = TaskStatus::ALL.map(TaskStatus::as_str).into_iter();
                    let words = words.chain([TaskStatus::SUCCEEDED]);
                    self.bad(at, format!("{why}{}", did_you_mean(&text, words)))
                }
            },
            Field::Id | Field::Priority | Field::Attempts | Field::Retries => match text.parse() {
                Ok(number) => Ok(Value::Number(number)),
                Err(_) => self.bad(at, format!("{field} is a whole number, not {text:?}")),
            },
            Field::Created | Field::Updated | Field::Due | Field::Started | Field::Ended => {
                self.time(&text, at)
            }
            _ => Ok(Value::Text(text)),
        }
    }

    fn time(&self, text: &str, at: usize) -> Result<Value, InvalidFilter> {
        if let Ok(time) = text.parse::<Timestamp>() {
            return Ok(Value::At(time));
        }
        let local = text.replacen('T', " ", 1);
        let date = Date::strptime("%Y-%m-%d", &local).ok().map(|date| date.at(0, 0, 0, 0));
        let exact = |form| DateTime::strptime(form, &local).ok();
        let exact = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"].into_iter().find_map(exact);
        if let Some(time) = exact.or(date) {
            return match self.zone.to_ambiguous_zoned(time).compatible() {
                Ok(zoned) => Ok(Value::At(zoned.timestamp())),
                Err(_) => self.bad(at, "this time is out of range"),
            };
        }
        let age = text
            .parse::<Span>()
            .ok()
            .filter(|span| !span.is_negative())
            .and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
        match age.map(|age| age.unsigned_abs()) {
            Some(age) if age <= AGE_MAX => Ok(Value::Age(age)),
            Some(_) => self.bad(at, "this is more than 100 years"),
            None => self.bad(
                at,
                format!("{text:?} is neither an age like 30s, 10m, 2h or 7d, nor a time like 2026-12-24, \"2026-12-24 18:00\" or 2026-12-24T18:00:00Z"),
            ),
        }
    }
}

impl Field {
    fn takes(&self, operator: Operator) -> bool {
        use Operator::{Has, HasNot, Is, IsNot};
        match self {
            Self::Status => matches!(operator, Is | IsNot),
            Self::Class | Self::Queue | Self::Instance | Self::Correlation | Self::Error => {
                matches!(operator, Is | IsNot | Has | HasNot)
            }
            Self::Id | Self::Priority | Self::Attempts | Self::Retries => {
                !matches!(operator, Has | HasNot)
            }
            Self::Created | Self::Updated | Self::Due | Self::Started | Self::Ended => {
                !operator.takes_many()
            }
            Self::Params(_) | Self::Context(_) => true,
        }
    }
}

impl Operator {
    fn takes_many(self) -> bool {
        matches!(self, Self::Is | Self::IsNot | Self::Has | Self::HasNot)
    }
}

/// The nearest word, if one is near.
fn did_you_mean<'a>(typed: &str, words: impl Iterator<Item = &'a str>) -> String {
    let typed: String = typed.chars().take(30).flat_map(char::to_lowercase).collect();
    let near = words
        .map(|word| (strsim::osa_distance(&typed, word), word))
        .min()
        .filter(|(distance, word)| *distance <= 2 && *distance < word.len());
    near.map_or_else(String::new, |(_, word)| format!("; did you mean {word}?"))
}

/// A value as it is typed: in quotes if it must be.
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

impl fmt::Display for Field {
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
                Value::Age(age) => write!(f, "{}", age_text(*age))?,
                Value::At(time) => write!(f, "{time}")?,
            }
        }
        Ok(())
    }
}

/// `2h30m`: without spaces, so without quotes.
fn age_text(age: Duration) -> String {
    let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
    format!("{age:#}").replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Filter, InvalidFilter> {
        Filter::parse(text, &TimeZone::UTC)
    }

    #[test]
    fn what_is_printed_is_as_short_as_what_is_typed() {
        for text in [
            "",
            "status=failed,cancelled class=send_mail error~429 created>2h priority>=5",
            "params.user.id=42 queue!=mail id>=100 instance=web-1 correlation!~order-17",
            r#"error="two words",one params."a.b".c<7 class="" class="=x" error!~"say \"a\"\\""#,
            "created<2026-12-24T00:00:00Z updated>=1h30m due<=1s",
        ] {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        for (text, same) in [
            ("  status=failed\n class=a ", "status=failed class=a"),
            ("status=succeeded status!=succeeded,failed", "status=stopped status!=stopped,failed"),
            (r"error~a\ b\,c\u{1b}", r#"error~"a b,c\u{1b}""#),
            ("created>7d", "created>168h"),
            ("created>2026-12-24", "created>2026-12-24T00:00:00Z"),
            ("created>2026-12-24T18:00", "created>2026-12-24T18:00:00Z"),
        ] {
            assert_eq!(read(text).unwrap().to_string(), same);
        }
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, at, why) in [
            ("statsu=failed", 1, "did you mean status?"),
            ("status=failed clas=a", 15, "did you mean class?"),
            ("status=faild", 8, "did you mean failed?"),
            ("status=succeded", 8, "did you mean succeeded?"),
            ("status=bogus", 8, "waiting, running, stopped (or succeeded), failed or cancelled"),
            ("status=failed,waitin", 15, "did you mean waiting?"),
            ("nonsense=1", 1, "there are status, class"),
            ("status", 7, "an operator is missing"),
            ("=failed", 1, "begins with a field"),
            ("status=", 8, "a value is missing"),
            ("status=failed,", 15, "a value is missing"),
            ("status==failed", 7, "there are = !="),
            ("status~fail", 7, "cannot be asked with ~; there are != ="),
            ("created=2h", 8, "cannot be asked with ="),
            ("created>soon", 9, "neither an age like 30s"),
            ("created>5", 9, "neither an age"),
            ("created>-5s", 9, "neither an age"),
            ("created>2h,3h", 11, "takes one value"),
            ("created>1000000d", 9, "more than 100 years"),
            ("priority>high", 10, "a whole number, not \"high\""),
            ("id=99999999999999999999", 4, "a whole number"),
            ("error~\"open", 7, "never closed"),
            ("error~\"a\"b", 10, "a space is missing"),
            ("error~a\"b", 8, "a quote inside"),
            ("error~\\q", 7, "\\q means nothing"),
            ("error~\\u{d800}", 7, "by its number"),
            ("error~\\", 7, "missing after"),
            ("params=1", 7, "which field?"),
            ("params.=1", 8, "the name of a field is missing"),
        ] {
            let bad = read(text).unwrap_err();
            assert_eq!(bad.at, at, "{text}: {bad}");
            assert!(bad.why.contains(why), "{text}: {bad}");
        }
        assert!(read(&"a".repeat(BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn words_that_a_shell_has_taken_the_quotes_from() {
        let words =
            |words: &[&str]| Filter::parse_words(words, &TimeZone::UTC).map(|f| f.to_string());
        assert_eq!(
            words(&["status=failed class=a", "id>3"]).unwrap(),
            "status=failed class=a id>3"
        );
        assert_eq!(words(&["error~too many, please"]).unwrap(), r#"error~"too many, please""#);
        assert_eq!(words(&["created>2026-12-24 18:00"]).unwrap(), "created>2026-12-24T18:00:00Z");
        let (word, bad) = words(&["id>3", "status=failed clas"]).unwrap_err();
        assert_eq!((word.as_str(), bad.at), ("status=failed clas", 15));
        assert!(words(&["error~one two status=failed"]).is_err(), "no guess");
    }

    /// Random filters: what is printed means the same.
    #[test]
    fn printing_and_reading_give_the_same() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let terms = (0..random.usize(0..4)).map(|_| any_term(&mut random)).collect();
            let filter = Filter { terms };
            let printed = filter.to_string();
            assert_eq!(read(&printed).as_ref(), Ok(&filter), "{printed}");
        }
    }

    /// Whatever is typed: an answer, whose place is in the text.
    #[test]
    fn no_text_is_too_strange() {
        let mut random = fastrand::Rng::with_seed(8);
        let pieces = [
            "status", "=", "failed", ",", "\"", "\\", "u{", "params", ".", "é", "\u{1b}", " ",
            "created", ">", "9", "h", "!", "~", "<", "-", "\0", "𝄞",
        ];
        for _ in 0..10_000 {
            let text: String =
                (0..random.usize(0..12)).map(|_| pieces[random.usize(0..pieces.len())]).collect();
            match read(&text) {
                Ok(filter) => assert_eq!(read(&filter.to_string()), Ok(filter), "{text}"),
                Err(bad) => {
                    assert!((1..=text.chars().count() + 1).contains(&bad.at), "{text}: {bad}");
                }
            }
            let _ = Filter::parse_words(&[&text, "id>1"], &TimeZone::UTC);
        }
    }

    fn any_text(random: &mut fastrand::Rng) -> String {
        let letters: Vec<char> = "ab9.,=~<>! \"\\\n\t\r\u{1b}\u{202e}é𝄞{}u".chars().collect();
        (0..random.usize(0..6)).map(|_| letters[random.usize(0..letters.len())]).collect()
    }

    fn any_term(random: &mut fastrand::Rng) -> Term {
        let path = |random: &mut fastrand::Rng| {
            (0..random.usize(1..4)).map(|_| any_text(random)).collect()
        };
        let field = match random.usize(0..FIELDS.len() + 2) {
            n if n < FIELDS.len() => FIELDS[n].1.clone(),
            n if n == FIELDS.len() => Field::Params(path(random)),
            _ => Field::Context(path(random)),
        };
        let operators: Vec<_> = OPERATORS.into_iter().filter(|it| field.takes(*it)).collect();
        let operator = operators[random.usize(0..operators.len())];
        let count = if operator.takes_many() { random.usize(1..4) } else { 1 };
        let value = |random: &mut fastrand::Rng| match field {
            Field::Status => Value::Status(TaskStatus::ALL[random.usize(0..5)]),
            Field::Id | Field::Priority | Field::Attempts | Field::Retries => {
                Value::Number(random.i64(..))
            }
            Field::Created | Field::Updated | Field::Due | Field::Started | Field::Ended
                if random.bool() =>
            {
                Value::Age(Duration::from_nanos(random.u64(0..4_000_000_000_000_000)))
            }
            Field::Created | Field::Updated | Field::Due | Field::Started | Field::Ended => {
                Value::At(Timestamp::from_nanosecond(random.i64(..).into()).unwrap())
            }
            _ => Value::Text(any_text(random)),
        };
        let values = (0..count).map(|_| value(random)).collect();
        Term { field, operator, values }
    }
}
