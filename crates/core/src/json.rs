//! JSON text that every store accepts.
//!
//! Parameters, context and results are kept as text, so that numbers of any size stay
//! unchanged and nothing is parsed twice. Text that PostgreSQL's `jsonb` would refuse, or
//! that would exhaust a parser, is refused here with its position, so that both stores
//! give the same error.
//!
//! The limit applies to the text as PostgreSQL prints it: `jsonb` writes every number in
//! full, so `1e131071` in a request becomes 131 kB in every response. The tables of
//! PostgreSQL check the same limits (`task_engine.json_problem`), because applications may
//! create tasks by SQL.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The longest JSON text accepted for parameters, context or a result: as it is
/// sent, and as PostgreSQL prints it (numbers in full, a space after each comma
/// and colon).
pub const BYTES_MAX: usize = 1024 * 1024;
/// The deepest nesting accepted.
pub const DEPTH_MAX: usize = 64;
/// The most digits accepted before the decimal point of a number, when it is written out in full.
///
/// No `f64` has more than 309.
pub const INTEGER_DIGITS_MAX: usize = 1000;
/// The most digits accepted after the decimal point: all that PostgreSQL can store.
pub const FRACTION_DIGITS_MAX: usize = 16_383;

/// A valid JSON text within the limits above, without `\u0000`.
///
/// ```
/// # extern crate task_engine_core as task_engine;
/// use task_engine::Json;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let json = Json::parse(r#"{"to": "ada"}"#)?;
/// let value: serde_json::Value = json.decode()?;
/// assert_eq!(value["to"], "ada");
/// assert!(Json::parse("{").is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Box<str>);

/// The error of a text that is not acceptable JSON; the message has the position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidJson {
    /// The text is not JSON, or not of the expected type.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// The text is a valid JSON value, but parameters and context must be objects.
    #[error("a JSON object is needed (like {{\"name\": \"value\"}}), this is {0}")]
    NotAnObject(&'static str),
    /// The text is longer than [`BYTES_MAX`]: store large data elsewhere and pass a reference.
    #[error(
        "{bytes} bytes of JSON are too many (at most {BYTES_MAX}, with numbers written out in full and a space after each comma and colon); keep the data elsewhere and pass a reference to it"
    )]
    TooLong {
        /// The length of the text, as sent or as PostgreSQL prints it.
        bytes: usize,
    },
    /// A number has more than [`INTEGER_DIGITS_MAX`] digits before its decimal point, or
    /// [`FRACTION_DIGITS_MAX`] after it.
    ///
    /// Send it as a string.
    #[error(
        "the number at byte {at} has too many digits when it is written out in full (at most {INTEGER_DIGITS_MAX} before and {FRACTION_DIGITS_MAX} after the decimal point); send it as a string"
    )]
    NumberTooLong {
        /// Where it starts.
        at: usize,
    },
    /// The value is nested deeper than [`DEPTH_MAX`]: make it flatter.
    #[error("nested deeper than {DEPTH_MAX} levels (at byte {at})")]
    TooDeep {
        /// Where the level after the last allowed one opens.
        at: usize,
    },
    /// The text contains `\u0000` or a lone surrogate, which PostgreSQL cannot store: remove it.
    #[error("the character {escape} (at byte {at}) cannot be stored; remove it")]
    Unstorable {
        /// The escape as written.
        escape: String,
        /// Where it starts.
        at: usize,
    },
}

impl Json {
    /// Returns the empty object `{}`.
    #[must_use]
    pub fn empty_object() -> Self {
        Self("{}".into())
    }

    /// Returns the value `null`.
    #[must_use]
    pub fn null() -> Self {
        Self("null".into())
    }

    /// Checks a text from outside.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidJson> {
        let text = text.into();
        scan(&text)?;
        serde_json::from_str::<&RawValue>(&text).map_err(|e| InvalidJson::Syntax(e.to_string()))?;
        Ok(Self(text.into_boxed_str()))
    }

    /// Checks a text from outside that must be an object.
    pub fn parse_object(text: impl Into<String>) -> Result<Self, InvalidJson> {
        Self::parse(text)?.into_object()
    }

    /// Serialises a value.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, InvalidJson> {
        let text = serde_json::to_string(value).map_err(|e| InvalidJson::Syntax(e.to_string()))?;
        scan(&text)?;
        Ok(Self(text.into_boxed_str()))
    }

    /// Serialises a value that must become an object, as parameters must.
    pub fn encode_object<T: Serialize + ?Sized>(value: &T) -> Result<Self, InvalidJson> {
        Self::encode(value)?.into_object()
    }

    /// Takes a text from a store without a check: it was checked when it was stored.
    #[doc(hidden)]
    #[must_use]
    pub fn from_store(text: String) -> Self {
        Self(text.into_boxed_str())
    }

    /// Returns an object that replaces a stored value that cannot be read.
    ///
    /// It has the reason as `unreadable`, like PostgreSQL's `task_engine.readable`.
    #[must_use]
    pub fn unreadable(reason: &str) -> Self {
        Self(serde_json::json!({ "unreadable": reason }).to_string().into())
    }

    /// Reads the text as a value; the error names the field.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks that it is an object.
    pub fn into_object(self) -> Result<Self, InvalidJson> {
        match self.0.trim_start().as_bytes().first() {
            Some(b'{') => Ok(self),
            Some(b'[') => Err(InvalidJson::NotAnObject("an array")),
            Some(b'"') => Err(InvalidJson::NotAnObject("a string")),
            Some(b't' | b'f') => Err(InvalidJson::NotAnObject("a boolean")),
            Some(b'n') => Err(InvalidJson::NotAnObject("null")),
            _ => Err(InvalidJson::NotAnObject("a number")),
        }
    }
}

impl FromStr for Json {
    type Err = InvalidJson;

    fn from_str(text: &str) -> Result<Self, InvalidJson> {
        Self::parse(text)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// One pass over the bytes, before any parser recurses into them.
fn scan(text: &str) -> Result<(), InvalidJson> {
    if text.len() > BYTES_MAX {
        return Err(InvalidJson::TooLong { bytes: text.len() });
    }
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut at = 0;
    // How long the text is as PostgreSQL prints it, or an upper bound of that.
    let mut printed = 0_usize;
    while at < bytes.len() {
        let byte = bytes[at];
        if in_string && byte == b'\\' {
            let length = check_escape(text, at)?;
            printed += length;
            at += length;
            continue;
        }
        if !in_string && matches!(byte, b'-' | b'0'..=b'9') {
            let number = Number::at(bytes, at);
            if number.before > INTEGER_DIGITS_MAX || number.after > FRACTION_DIGITS_MAX {
                return Err(InvalidJson::NumberTooLong { at });
            }
            printed += number.printed();
            at += number.length;
            continue;
        }
        match byte {
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(InvalidJson::TooDeep { at });
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        printed += match byte {
            _ if in_string => 1,
            b',' | b':' => 2,
            b' ' | b'\t' | b'\r' | b'\n' => 0,
            _ => 1,
        };
        at += 1;
    }
    if printed > BYTES_MAX {
        return Err(InvalidJson::TooLong { bytes: printed });
    }
    Ok(())
}

/// A number in a text, and an upper bound of its digits when written in full.
struct Number {
    is_negative: bool,
    length: usize,
    before: usize,
    after: usize,
}

impl Number {
    /// Reads all characters that may belong to a number. The parser decides later whether
    /// they are one.
    fn at(bytes: &[u8], start: usize) -> Self {
        let mut at = start + usize::from(bytes[start] == b'-');
        let digits = |at: &mut usize| {
            let first = *at;
            while bytes.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
            first..*at
        };
        let mut before = digits(&mut at).len();
        let mut after = 0;
        if bytes.get(at) == Some(&b'.') {
            at += 1;
            after = digits(&mut at).len();
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            at += 1;
            let negative = bytes.get(at) == Some(&b'-');
            at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
            let exponent = bytes[digits(&mut at)].iter().fold(0_usize, |all, digit| {
                all.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
            });
            let side = if negative { &mut after } else { &mut before };
            *side = side.saturating_add(exponent);
        }
        Self { is_negative: bytes[start] == b'-', length: at - start, before, after }
    }

    /// Exact for a number without an exponent, else an upper bound.
    fn printed(&self) -> usize {
        let fraction = if self.after == 0 { 0 } else { 1 + self.after };
        usize::from(self.is_negative) + self.before + fraction
    }
}

/// The length of the escape at `at`, if it can be stored.
fn check_escape(text: &str, at: usize) -> Result<usize, InvalidJson> {
    let Some(code) = unicode_escape(text, at) else {
        return Ok(2);
    };
    let unstorable = || InvalidJson::Unstorable { escape: text[at..at + 6].to_owned(), at };
    match code {
        0 => Err(unstorable()),
        0xD800..=0xDBFF => match unicode_escape(text, at + 6) {
            Some(0xDC00..=0xDFFF) => Ok(12),
            _ => Err(unstorable()),
        },
        0xDC00..=0xDFFF => Err(unstorable()),
        _ => Ok(6),
    }
}

fn unicode_escape(text: &str, at: usize) -> Option<u32> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests;
