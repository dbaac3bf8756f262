//! Fields of JSON objects, read one by one.
//!
//! Not by `Deserialize`: each error names the field, the expected type and, for unknown
//! fields, a suggestion; serde has one fixed sentence for these. Values stay `RawValue` until
//! they are used, so numbers keep their digits, and a request can be hashed as it was sent.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use task_engine_core::ParseError;
use task_engine_core::json::Json;
use task_engine_core::queue::REASON_BYTES_MAX;
use task_engine_core::suggest::nearest;
use task_engine_core::task::TaskId;

use crate::operator::OperationError;

/// The error of an invalid field of a request, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidField {
    /// Its JSON pointer; empty for the whole.
    pub pointer: String,
    /// What is wrong with it, and what to do.
    pub message: String,
}

impl InvalidField {
    /// Returns the error of the field at this pointer.
    #[must_use]
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }
}

impl From<InvalidField> for OperationError {
    fn from(InvalidField { pointer, message }: InvalidField) -> Self {
        Self::Invalid { pointer, message }
    }
}

/// An object and its JSON pointer.
#[derive(Debug)]
pub struct Object<'a> {
    pointer: String,
    fields: Vec<(String, &'a RawValue)>,
}

/// The fields of an object, as they come.
#[derive(Debug)]
pub struct RawFields<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for RawFields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = RawFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(RawFields(fields))
            }
        }
        from.deserialize_map(Collect)
    }
}

impl<'a> Object<'a> {
    /// Creates an object at this pointer; other fields than these are refused.
    pub fn read(
        value: &'a RawValue,
        pointer: String,
        known: &[&str],
    ) -> Result<Self, InvalidField> {
        if kind(value) != "an object" {
            return Err(InvalidField::new(
                pointer,
                format!("Expected an object, found {}.", kind(value)),
            ));
        }
        let RawFields(fields) = serde_json::from_str(value.get())
            .map_err(|why| InvalidField::new(pointer.as_str(), format!("Not JSON: {why}.")))?;
        let mut seen = HashSet::with_capacity(fields.len());
        for (name, _) in &fields {
            if !known.contains(&name.as_str()) {
                let short: String = name.chars().take(100).collect();
                let hint = did_you_mean(name, known);
                let pointer = format!("{pointer}/{}", escaped(name));
                return Err(InvalidField::new(pointer, format!("Unknown field {short:?}{hint}")));
            }
            if !seen.insert(name) {
                return Err(given_twice(&pointer, name));
            }
        }
        Ok(Self { pointer, fields })
    }

    /// Returns the fields of an object whose names are free, each with its name, pointer and value.
    pub fn entries(
        &self,
        name: &str,
        what: &str,
    ) -> Result<Vec<(String, String, &'a RawValue)>, InvalidField> {
        let Some(value) = self.raw(name) else { return Ok(Vec::new()) };
        if kind(value) != "an object" {
            return Err(self.mismatch(name, what, value));
        }
        let pointer = format!("{}/{name}", self.pointer);
        let RawFields(fields) = serde_json::from_str(value.get())
            .map_err(|why| InvalidField::new(pointer.as_str(), format!("Not JSON: {why}.")))?;
        let mut seen = HashSet::with_capacity(fields.len());
        if let Some((twice, _)) = fields.iter().find(|(name, _)| !seen.insert(name.as_str())) {
            return Err(given_twice(&pointer, twice));
        }
        let entry = |(name, value): (String, &'a RawValue)| {
            let pointer = format!("{pointer}/{}", escaped(&name));
            (name, pointer, value)
        };
        Ok(fields.into_iter().map(entry).collect())
    }

    /// Returns the error of a field.
    pub fn invalid(&self, name: &str, why: impl fmt::Display) -> InvalidField {
        let why = why.to_string();
        let end = if why.ends_with(['.', '?']) { "" } else { "." };
        InvalidField::new(format!("{}/{name}", self.pointer), format!("{name}: {why}{end}"))
    }

    /// Reads a field; `null` counts as missing.
    pub fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.fields.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| *value).filter(|value| value.get() != "null")
    }

    /// Returns the error of a field with another type.
    pub fn mismatch(&self, name: &str, expected: &str, found: &RawValue) -> InvalidField {
        self.invalid(name, format!("expected {expected}, found {}", kind(found)))
    }

    /// Reads a string.
    pub fn text(&self, name: &str) -> Result<Option<String>, InvalidField> {
        let read = |value: &RawValue| match kind(value) {
            // `RawValue` accepts lone surrogates, strings do not.
            "a string" => serde_json::from_str(value.get()).map_err(|_| {
                self.invalid(name, "this string has an incomplete character (a lone surrogate)")
            }),
            _ => Err(self.mismatch(name, "a string", value)),
        };
        self.raw(name).map(read).transpose()
    }

    /// Reads the reason, for the audit.
    pub fn reason(&self) -> Result<Option<String>, InvalidField> {
        let reason = self.text("reason")?.map(|reason| reason.trim().to_owned());
        let reason = reason.filter(|reason| !reason.is_empty());
        let fits = |reason: &String| {
            reason.len() <= REASON_BYTES_MAX && !reason.chars().any(char::is_control)
        };
        match reason {
            Some(reason) if !fits(&reason) => Err(self.invalid(
                "reason",
                format!("write up to {REASON_BYTES_MAX} bytes without control characters"),
            )),
            reason => Ok(reason),
        }
    }

    /// Reads a string that must be there.
    pub fn required_text(&self, name: &str) -> Result<String, InvalidField> {
        self.text(name)?.ok_or_else(|| self.invalid(name, "the field is missing"))
    }

    /// Reads a string that is parsed further.
    pub fn parsed<T, E: fmt::Display>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, InvalidField> {
        let text = self.text(name)?;
        text.map(|text| parse(&text).map_err(|why| self.invalid(name, why))).transpose()
    }

    /// Reads a whole number.
    pub fn whole<T: TryFrom<i64>>(
        &self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, InvalidField> {
        let read = |value: &RawValue| {
            let number = value.get().parse::<i64>().ok().and_then(|it| T::try_from(it).ok());
            number.ok_or_else(|| self.mismatch(name, expected, value))
        };
        self.raw(name).map(read).transpose()
    }

    /// Reads a number within these bounds.
    pub fn number(&self, name: &str, from: f64, to: f64) -> Result<Option<f64>, InvalidField> {
        let read = |value: &RawValue| {
            let number: Option<f64> = value.get().parse().ok();
            let fits = number.filter(|it| kind(value) == "a number" && (from..=to).contains(it));
            fits.ok_or_else(|| self.mismatch(name, &format!("a number from {from} to {to}"), value))
        };
        self.raw(name).map(read).transpose()
    }

    /// Reads a boolean; false if it is missing.
    pub fn boolean(&self, name: &str) -> Result<bool, InvalidField> {
        match self.raw(name) {
            None => Ok(false),
            Some(value) => serde_json::from_str(value.get())
                .map_err(|_| self.mismatch(name, "true or false", value)),
        }
    }

    /// Reads a JSON object as it is.
    pub fn json_object(&self, name: &str) -> Result<Option<Json>, InvalidField> {
        let read = |value: &RawValue| {
            Json::parse_object(value.get()).map_err(|bad| self.invalid(name, bad))
        };
        self.raw(name).map(read).transpose()
    }

    /// Reads an object in it.
    pub fn object(&self, name: &str, known: &[&str]) -> Result<Option<Self>, InvalidField> {
        let read = |value| Self::read(value, format!("{}/{name}", self.pointer), known);
        self.raw(name).map(read).transpose()
    }

    /// Ids of tasks, as numbers or as strings.
    pub fn ids(&self, name: &str) -> Result<Option<Vec<TaskId>>, InvalidField> {
        let Some(value) = self.raw(name) else { return Ok(None) };
        let values = list(value).ok_or_else(|| self.mismatch(name, "a list of task ids", value))?;
        let read = |(at, value): (usize, &&RawValue)| {
            let text = value.get();
            let text = text.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(text);
            text.parse().map_err(|why: ParseError| self.invalid(&format!("{name}/{at}"), why))
        };
        values.iter().enumerate().map(read).collect::<Result<_, _>>().map(Some)
    }
}

/// Reads a JSON value.
pub fn parse(text: &str) -> Result<&RawValue, InvalidField> {
    serde_json::from_str(text)
        .map_err(|why| InvalidField::new("", format!("The text is not JSON: {why}.")))
}

fn given_twice(pointer: &str, name: &str) -> InvalidField {
    let short: String = name.chars().take(100).collect();
    let pointer = format!("{pointer}/{}", escaped(name));
    InvalidField::new(pointer, format!("The field {short:?} is given twice."))
}

/// Reads the values of a list; `None` if it is not a list.
#[must_use]
pub fn list(value: &RawValue) -> Option<Vec<&RawValue>> {
    if kind(value) == "a list" { serde_json::from_str(value.get()).ok() } else { None }
}

/// Returns the type of a value.
#[must_use]
pub fn kind(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// Returns a name as a token of a JSON pointer.
#[must_use]
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Returns the end of a sentence: `; did you mean …?`, or the known names.
#[must_use]
pub fn did_you_mean(name: &str, known: &[&str]) -> String {
    // `task_class` for `class`.
    let extends = |word: &&&str| name.ends_with(**word) || name.starts_with(**word);
    let near = nearest(name, known.iter().copied()).or_else(|| known.iter().find(extends).copied());
    match near {
        Some(word) => format!("; did you mean {word}?"),
        None if known.is_empty() => "; none is allowed.".to_owned(),
        None => format!("; known: {}.", known.join(", ")),
    }
}

#[cfg(test)]
mod tests;
