//! JSON text that every store accepts.
//!
//! Parameters, context and results are carried as text, so numbers of any size
//! arrive as they were sent, and nothing is parsed twice. What PostgreSQL's
//! `jsonb` would refuse, or what would exhaust a parser, is refused here first,
//! with the place named, so that both stores say the same thing.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The longest JSON text accepted for parameters, context or a result.
pub const BYTES_MAX: usize = 1024 * 1024;
/// The deepest nesting accepted.
pub const DEPTH_MAX: usize = 64;

/// A valid JSON text within [`BYTES_MAX`] and [`DEPTH_MAX`], without `\u0000`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Box<str>);

/// Why a text is not acceptable JSON; the message names the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadJson {
    /// Not JSON, or not the shape that was wanted.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// A valid JSON value, but parameters and context are objects.
    #[error("a JSON object is needed (like {{\"name\": \"value\"}}), this is {0}")]
    NotAnObject(&'static str),
    /// Longer than [`BYTES_MAX`].
    #[error(
        "{bytes} bytes of JSON are too many (at most {BYTES_MAX}); keep the data elsewhere and pass a reference to it"
    )]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// Deeper than [`DEPTH_MAX`].
    #[error("nested deeper than {DEPTH_MAX} levels (at byte {at})")]
    TooDeep {
        /// Where the level after the last allowed one opens.
        at: usize,
    },
    /// `\u0000` and lone surrogates cannot be stored by PostgreSQL.
    #[error("the character {escape} (at byte {at}) cannot be stored; remove it")]
    Unstorable {
        /// The escape as written.
        escape: String,
        /// Where it starts.
        at: usize,
    },
}

impl Json {
    /// The empty object `{}`.
    #[must_use]
    pub fn empty_object() -> Self {
        Self("{}".into())
    }

    /// The value `null`.
    #[must_use]
    pub fn null() -> Self {
        Self("null".into())
    }

    /// Checks a text from outside.
    pub fn parse(text: impl Into<String>) -> Result<Self, BadJson> {
        let text = text.into();
        scan(&text)?;
        serde_json::from_str::<&RawValue>(&text).map_err(|e| BadJson::Syntax(e.to_string()))?;
        Ok(Self(text.into_boxed_str()))
    }

    /// Checks a text from outside that must be an object.
    pub fn parse_object(text: impl Into<String>) -> Result<Self, BadJson> {
        Self::parse(text)?.into_object()
    }

    /// Serialises a value.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, BadJson> {
        let text = serde_json::to_string(value).map_err(|e| BadJson::Syntax(e.to_string()))?;
        scan(&text)?;
        Ok(Self(text.into_boxed_str()))
    }

    /// Serialises a value that must become an object, as parameters must.
    pub fn encode_object<T: Serialize + ?Sized>(value: &T) -> Result<Self, BadJson> {
        Self::encode(value)?.into_object()
    }

    /// Takes a text that a store has given back: it was checked when it went in.
    // For stores alone: from anywhere else it is a `Json` that may not be JSON.
    #[doc(hidden)]
    #[must_use]
    pub fn from_store(text: String) -> Self {
        Self(text.into_boxed_str())
    }

    /// Reads the text as a value; the error names the field.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn into_object(self) -> Result<Self, BadJson> {
        match self.0.trim_start().as_bytes().first() {
            Some(b'{') => Ok(self),
            Some(b'[') => Err(BadJson::NotAnObject("an array")),
            Some(b'"') => Err(BadJson::NotAnObject("a string")),
            Some(b't' | b'f') => Err(BadJson::NotAnObject("a boolean")),
            Some(b'n') => Err(BadJson::NotAnObject("null")),
            _ => Err(BadJson::NotAnObject("a number")),
        }
    }
}

impl FromStr for Json {
    type Err = BadJson;

    fn from_str(text: &str) -> Result<Self, BadJson> {
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
fn scan(text: &str) -> Result<(), BadJson> {
    if text.len() > BYTES_MAX {
        return Err(BadJson::TooLong { bytes: text.len() });
    }
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                at += check_escape(text, at)?;
                continue;
            }
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(BadJson::TooDeep { at });
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// The length of the escape at `at`, if it can be stored.
fn check_escape(text: &str, at: usize) -> Result<usize, BadJson> {
    let Some(code) = unicode_escape(text, at) else {
        return Ok(2);
    };
    let unstorable = || BadJson::Unstorable { escape: text[at..at + 6].to_owned(), at };
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
mod tests {
    use super::*;

    #[test]
    fn accepts_what_every_store_keeps() {
        for text in [
            "{}",
            r#"{"a":[1,2,{"b":null}]}"#,
            r#"{"big":1970670598291982290123456789}"#,
            r#"{"quote":"\"\\"}"#,
            r#"{"emoji":"\ud83d\ude00"}"#,
        ] {
            assert_eq!(Json::parse_object(text).map(|j| j.to_string()), Ok(text.into()));
        }
    }

    #[test]
    fn refuses_with_the_place_named() {
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(Json::parse(deep), Err(BadJson::TooDeep { at: DEPTH_MAX }));
        let nul = BadJson::Unstorable { escape: "\\u0000".into(), at: 6 };
        assert_eq!(Json::parse(r#"{"a":"\u0000"}"#), Err(nul));
        assert!(matches!(Json::parse(r#"["\ud800"]"#), Err(BadJson::Unstorable { .. })));
        assert!(matches!(Json::parse(r#"["\udc00"]"#), Err(BadJson::Unstorable { .. })));
        assert!(matches!(Json::parse("{"), Err(BadJson::Syntax(_))));
        assert!(matches!(Json::parse("{} {}"), Err(BadJson::Syntax(_))));
        assert_eq!(Json::parse_object("[1]"), Err(BadJson::NotAnObject("an array")));
        assert_eq!(Json::parse_object(" 1"), Err(BadJson::NotAnObject("a number")));
        let long = format!("\"{}\"", "x".repeat(BYTES_MAX));
        assert!(matches!(Json::parse(long), Err(BadJson::TooLong { .. })));
    }

    #[test]
    fn keeps_an_escaped_backslash_apart_from_an_escape() {
        assert!(Json::parse(r#"["\\u0000"]"#).is_ok());
    }
}
