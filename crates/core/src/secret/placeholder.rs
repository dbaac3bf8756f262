//! Restores secrets in parameters that were read with `[secret]` in them, changed and sent
//! back. The placeholder is never stored.

use serde_json::value::RawValue;

use super::PLACEHOLDER;
use super::rewrite::{Shape, quoted, write_list, write_object};
use crate::json::Json;

/// The error of a placeholder that matches no stored value: send the value itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{PLACEHOLDER:?} at {pointer:?} stands for a hidden value and cannot be stored; send the value itself, or leave the placeholder where it was"
)]
pub struct UnexpectedPlaceholder {
    /// Its position as a JSON pointer.
    pub pointer: String,
}

/// Refuses a string that is the placeholder, and with `inside` also one that contains it.
///
/// Use it for new parameters, where a placeholder has no stored value.
pub fn refuse_placeholders(new: &Json, inside: bool) -> Result<(), UnexpectedPlaceholder> {
    refuse(new.as_str(), inside, "")
}

/// Returns `new` with the stored values in place of unchanged placeholders.
///
/// `redacted` is what readers see of `stored`; `None` if nothing is hidden.
pub fn restore(
    new: &Json,
    stored: &Json,
    redacted: Option<&Json>,
) -> Result<Json, UnexpectedPlaceholder> {
    let Some(redacted) = redacted else {
        return refuse_placeholders(new, false).map(|()| new.clone());
    };
    let mut out = String::with_capacity(new.as_str().len());
    merge(new.as_str(), stored.as_str(), redacted.as_str(), "", &mut out)?;
    Ok(Json::from_store(out))
}

fn merge(
    new: &str,
    stored: &str,
    redacted: &str,
    pointer: &str,
    out: &mut String,
) -> Result<(), UnexpectedPlaceholder> {
    match (Shape::of(new), Shape::of(stored), Shape::of(redacted)) {
        (Shape::Object(new), Shape::Object(stored), Shape::Object(redacted)) => {
            let known: FieldPairs<'_> = stored.into_iter().zip(redacted).collect();
            merge_objects(new, &known, pointer, out)
        }
        (Shape::List(new), Shape::List(stored), Shape::List(redacted)) => {
            merge_lists(new, &stored, &redacted, pointer, out)
        }
        _ if has_placeholder(new) && same_text(new, redacted) => {
            out.push_str(stored);
            Ok(())
        }
        _ => {
            refuse(new, true, pointer)?;
            out.push_str(new);
            Ok(())
        }
    }
}

/// Fields as stored and as redacted, in the same order.
type FieldPairs<'a> = Vec<((String, &'a RawValue), (String, &'a RawValue))>;

fn merge_objects(
    new: Vec<(String, &RawValue)>,
    known: &FieldPairs<'_>,
    pointer: &str,
    out: &mut String,
) -> Result<(), UnexpectedPlaceholder> {
    let mut result = Ok(());
    write_object(out, new, |name, value, out| {
        let below = below(pointer, name);
        let mut same = known.iter().filter(|(_, redacted)| redacted.0 == name);
        // Two names may look the same when they are redacted.
        let found = same.next().filter(|_| same.next().is_none());
        out.push_str(&quoted(found.map_or(name, |(stored, _)| &stored.0)));
        out.push(':');
        if result.is_err() {
            return;
        }
        result = match found {
            Some((stored, redacted)) => {
                merge(value.get(), stored.1.get(), redacted.1.get(), &below, out)
            }
            None if name.contains(PLACEHOLDER) => Err(UnexpectedPlaceholder { pointer: below }),
            None => refuse(value.get(), true, &below).map(|()| out.push_str(value.get())),
        };
    });
    result
}

/// An item that equals a redacted item is that item, wherever it is now. A changed item is
/// the item at its position, if all other items are where they were.
fn merge_lists(
    new: Vec<&RawValue>,
    stored: &[&RawValue],
    redacted: &[&RawValue],
    pointer: &str,
    out: &mut String,
) -> Result<(), UnexpectedPlaceholder> {
    let redacted_texts: Vec<String> = redacted.iter().map(|item| canonical(item.get())).collect();
    let origin = |at: usize, item: &RawValue| {
        let text = canonical(item.get());
        if new.len() == redacted.len() && redacted_texts[at] == text {
            return Some(at);
        }
        let mut same = (0..redacted.len()).filter(|at| redacted_texts[*at] == text);
        same.next().filter(|_| same.next().is_none())
    };
    let origins: Vec<Option<usize>> =
        new.iter().enumerate().map(|(at, item)| origin(at, item)).collect();
    let in_place = new.len() == redacted.len()
        && origins.iter().enumerate().all(|(at, origin)| origin.is_none_or(|from| from == at));
    let mut result = Ok(());
    write_list(out, new, |at, item, out| {
        if result.is_err() {
            return;
        }
        let below = below(pointer, &at.to_string());
        result = match origins[at].or(in_place.then_some(at)) {
            Some(from) => merge(item.get(), stored[from].get(), redacted[from].get(), &below, out),
            None => refuse(item.get(), true, &below).map(|()| out.push_str(item.get())),
        };
    });
    result
}

fn refuse(text: &str, inside: bool, pointer: &str) -> Result<(), UnexpectedPlaceholder> {
    let unexpected = |pointer: &str| Err(UnexpectedPlaceholder { pointer: pointer.to_owned() });
    if !has_placeholder(text) {
        return Ok(());
    }
    match Shape::of(text) {
        Shape::Object(fields) => fields.into_iter().try_for_each(|(name, value)| {
            let below = below(pointer, &name);
            if name == PLACEHOLDER || (inside && name.contains(PLACEHOLDER)) {
                return unexpected(&below);
            }
            refuse(value.get(), inside, &below)
        }),
        Shape::List(items) => items.into_iter().enumerate().try_for_each(|(at, item)| {
            refuse(item.get(), inside, &below(pointer, &at.to_string()))
        }),
        Shape::Scalar => match serde_json::from_str::<String>(text) {
            Ok(text) if text == PLACEHOLDER || (inside && text.contains(PLACEHOLDER)) => {
                unexpected(pointer)
            }
            _ => Ok(()),
        },
    }
}

/// Whether the text may contain a placeholder: cheap, with false positives.
fn has_placeholder(text: &str) -> bool {
    text.contains(PLACEHOLDER) || text.contains('\\')
}

/// Whether two JSON texts are the same string.
fn same_text(one: &str, other: &str) -> bool {
    let read = |text| serde_json::from_str::<String>(text).ok();
    read(one).is_some_and(|one| Some(one) == read(other))
}

/// Equal for equal values, except for the notation of numbers.
fn canonical(text: &str) -> String {
    match Shape::of(text) {
        Shape::Object(mut fields) => {
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            let mut out = String::new();
            write_object(&mut out, fields, |name, value, out| {
                out.push_str(&quoted(name));
                out.push(':');
                out.push_str(&canonical(value.get()));
            });
            out
        }
        Shape::List(items) => {
            let mut out = String::new();
            write_list(&mut out, items, |_, item, out| out.push_str(&canonical(item.get())));
            out
        }
        Shape::Scalar => {
            serde_json::from_str::<String>(text).map_or_else(|_| text.to_owned(), |it| quoted(&it))
        }
    }
}

fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests;
