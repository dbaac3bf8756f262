//! Replaces some values of a JSON text. All other values stay unchanged, to the last digit
//! and in their order.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{PLACEHOLDER, Redactor};
use crate::json::Json;

/// Deeper values are replaced without a look, to protect the stack. Task Engine does not
/// store such JSON, but SQL of others may.
const LEVELS_MAX: usize = 200;

/// Replaces the values at these paths by `[secret]`, and collects them. A path selects an
/// item of a list by its number, and all items without one; `*` is every name.
pub(super) fn without_paths(
    json: &Json,
    paths: &[Vec<&str>],
    secrets: &mut BTreeSet<String>,
) -> Json {
    let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    let mut out = String::with_capacity(json.as_str().len());
    by_path(json.as_str(), &paths, secrets, LEVELS_MAX, &mut out);
    Json::from_store(out)
}

fn by_path(
    text: &str,
    paths: &[&[&str]],
    secrets: &mut BTreeSet<String>,
    levels: usize,
    out: &mut String,
) {
    let Some(levels) = levels.checked_sub(1) else {
        return out.push_str(&quoted(PLACEHOLDER));
    };
    match Shape::of(text) {
        Shape::Object(fields) => {
            write_object(out, fields, |name, value, out| {
                out.push_str(&quoted(name));
                out.push(':');
                let below = steps(paths, name);
                // A name may contain dots.
                let whole =
                    below.contains(&&[][..]) || paths.iter().any(|path| path.join(".") == name);
                hide(value, whole, &below, secrets, levels, out);
            });
        }
        Shape::List(items) => {
            write_list(out, items, |at, value, out| {
                let mut below = steps(paths, &at.to_string());
                let whole = below.contains(&&[][..]);
                below.extend(paths);
                hide(value, whole, &below, secrets, levels, out);
            });
        }
        Shape::Scalar => out.push_str(text),
    }
}

fn hide(
    value: &RawValue,
    whole: bool,
    below: &[&[&str]],
    secrets: &mut BTreeSet<String>,
    levels: usize,
    out: &mut String,
) {
    if whole {
        collect(value.get(), secrets, levels);
        out.push_str(&quoted(PLACEHOLDER));
    } else if below.is_empty() {
        out.push_str(value.get());
    } else {
        by_path(value.get(), below, secrets, levels, out);
    }
}

/// The rest of the paths that begin with this name.
fn steps<'a>(paths: &[&'a [&'a str]], name: &str) -> Vec<&'a [&'a str]> {
    let behind = |path: &&'a [&'a str]| match path.split_first() {
        Some((first, rest)) if *first == name || *first == "*" => Some(rest),
        _ => None,
    };
    paths.iter().filter_map(behind).collect()
}

/// Collects the strings and numbers of a value.
fn collect(text: &str, secrets: &mut BTreeSet<String>, levels: usize) {
    let Some(levels) = levels.checked_sub(1) else { return };
    let mut each = |value: &RawValue| collect(value.get(), secrets, levels);
    match Shape::of(text) {
        Shape::Object(fields) => fields.iter().for_each(|(_, value)| each(value)),
        Shape::List(items) => items.iter().for_each(|value| each(value)),
        Shape::Scalar => match serde_json::from_str::<String>(text) {
            Ok(inner) => drop(secrets.insert(inner)),
            Err(_) if matches!(text, "true" | "false" | "null") => {}
            Err(_) => drop(secrets.insert(text.to_owned())),
        },
    }
}

/// Redacts the secrets in all strings and names, and numbers that are a secret.
pub(super) fn without_texts(json: &Json, redactor: &Redactor) -> Json {
    let mut out = String::with_capacity(json.as_str().len());
    by_text(json.as_str(), redactor, LEVELS_MAX, &mut out);
    Json::from_store(out)
}

fn by_text(text: &str, redactor: &Redactor, levels: usize, out: &mut String) {
    let Some(levels) = levels.checked_sub(1) else {
        return out.push_str(&quoted(PLACEHOLDER));
    };
    match Shape::of(text) {
        Shape::Object(fields) => write_object(out, fields, |name, value, out| {
            out.push_str(&quoted(&redactor.text(name)));
            out.push(':');
            by_text(value.get(), redactor, levels, out);
        }),
        Shape::List(items) => {
            write_list(out, items, |_, value, out| by_text(value.get(), redactor, levels, out));
        }
        Shape::Scalar => match serde_json::from_str::<String>(text) {
            // The placeholder stays, even if a secret is a part of it.
            Ok(inner) if inner == PLACEHOLDER => out.push_str(text),
            Ok(inner) => match redactor.text(&inner) {
                std::borrow::Cow::Borrowed(_) => out.push_str(text),
                std::borrow::Cow::Owned(redacted) => out.push_str(&quoted(&redacted)),
            },
            Err(_) if redactor.is_secret(text) => out.push_str(&quoted(PLACEHOLDER)),
            Err(_) => out.push_str(text),
        },
    }
}

pub(super) fn quoted(text: &str) -> String {
    // A text always has a JSON form.
    serde_json::to_string(text).unwrap_or_default()
}

pub(super) fn write_object(
    out: &mut String,
    fields: Vec<(String, &RawValue)>,
    mut each: impl FnMut(&str, &RawValue, &mut String),
) {
    out.push('{');
    for (n, (name, value)) in fields.into_iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        each(&name, value, out);
    }
    out.push('}');
}

pub(super) fn write_list(
    out: &mut String,
    items: Vec<&RawValue>,
    mut each: impl FnMut(usize, &RawValue, &mut String),
) {
    out.push('[');
    for (n, value) in items.into_iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        each(n, value, out);
    }
    out.push(']');
}

/// One level of a JSON text.
pub(super) enum Shape<'a> {
    Object(Vec<(String, &'a RawValue)>),
    List(Vec<&'a RawValue>),
    Scalar,
}

impl<'a> Shape<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        match text.trim_start().as_bytes().first() {
            Some(b'{' | b'[') => serde_json::from_str(text).unwrap_or(Self::Scalar),
            _ => Self::Scalar,
        }
    }
}

impl<'de> Deserialize<'de> for Shape<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Level;
        impl<'de> Visitor<'de> for Level {
            type Value = Shape<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object or a list")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Shape::Object(fields))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Shape::List(items))
            }
        }
        deserializer.deserialize_any(Level)
    }
}
