//! Restores secrets in parameters that were read with `[secret]` in them, changed and sent
//! back. The placeholder is never stored.

use serde_json::value::RawValue;

use super::PLACEHOLDER;
use super::rewrite::{Shape, quoted, write_list, write_object};
use crate::json::Json;

/// A placeholder that matches no stored value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{PLACEHOLDER:?} at {pointer:?} stands for a hidden value and cannot be stored; send the value itself, or leave the placeholder where it was"
)]
pub struct UnexpectedPlaceholder {
    /// Its position as a JSON pointer.
    pub pointer: String,
}

/// Refuses a string that is the placeholder, and with `inside` also one that contains it.
/// For new parameters, where a placeholder has no stored value.
pub fn refuse_placeholders(new: &Json, inside: bool) -> Result<(), UnexpectedPlaceholder> {
    refuse(new.as_str(), inside, "")
}

/// `new` with the stored values in place of unchanged placeholders. `redacted` is what
/// readers see of `stored`; `None` if nothing is hidden.
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
mod tests {
    use super::super::Redactor;
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text).unwrap()
    }

    const STORED: &str = r#"{"password":"hunter22","url":"https://ann:hunter22@host","card":{"number":4111,"name":"Ann"},"keys":[{"id":1,"key":"aaaa1"},{"id":2,"key":"bbbb2"}],"n":1.50}"#;
    const PATHS: [&str; 3] = ["password", "card.number", "keys.key"];

    fn sent_back(new: &str) -> Result<String, String> {
        let stored = json(STORED);
        let redactor = Redactor::of(&stored, &Json::empty_object(), &PATHS);
        let merged = restore(&json(new), &stored, redactor.parameters());
        merged.map(|it| it.as_str().to_owned()).map_err(|error| error.pointer)
    }

    fn redacted() -> String {
        let redactor = Redactor::of(&json(STORED), &Json::empty_object(), &PATHS);
        redactor.parameters().unwrap().as_str().to_owned()
    }

    #[test]
    fn unchanged_placeholders_are_restored() {
        assert_eq!(sent_back(&redacted()).unwrap(), STORED);
        let changed = redacted().replace("1.50", "2");
        assert_eq!(sent_back(&changed).unwrap(), STORED.replace("1.50", "2"));
        // Another encoder: other order, other escapes.
        let other = r#"{"n":1,"url":"https:\/\/ann:[secret]@host","password":"\u005bsecret]"}"#;
        let merged = r#"{"n":1,"url":"https://ann:hunter22@host","password":"hunter22"}"#;
        assert_eq!(sent_back(other).unwrap(), merged);
    }

    #[test]
    fn new_values_replace_secrets() {
        let anew = r#"{"password":"other","card":{"number":4242,"name":"Bob"}}"#;
        assert_eq!(sent_back(anew).unwrap(), anew);
        let half = r#"{"password":"other","card":{"number":"[secret]","name":"Bob"}}"#;
        let merged = r#"{"password":"other","card":{"number":4111,"name":"Bob"}}"#;
        assert_eq!(sent_back(half).unwrap(), merged);
    }

    #[test]
    fn list_items_keep_their_secrets() {
        let keys = |items: &str| sent_back(&format!(r#"{{"keys":[{items}]}}"#));
        let (one, two) = (r#"{"id":1,"key":"[secret]"}"#, r#"{"id":2,"key":"[secret]"}"#);
        let moved = r#"{"keys":[{"id":2,"key":"bbbb2"},{"id":1,"key":"aaaa1"}]}"#;
        assert_eq!(keys(&format!("{two},{one}")).unwrap(), moved);
        assert_eq!(keys(two).unwrap(), r#"{"keys":[{"id":2,"key":"bbbb2"}]}"#);
        let third = r#"{"id":3,"key":"[secret]"}"#;
        let edited = r#"{"keys":[{"id":3,"key":"aaaa1"},{"id":2,"key":"bbbb2"}]}"#;
        assert_eq!(keys(&format!("{third},{two}")).unwrap(), edited);
        // Ambiguous.
        assert_eq!(keys(&format!("{two},{third}")).unwrap_err(), "/keys/1/key");
        assert_eq!(keys(&format!("{one},{two},{third}")).unwrap_err(), "/keys/2/key");
    }

    #[test]
    fn unexpected_placeholders_are_refused() {
        for (new, pointer) in [
            (r#"{"passwd":"[secret]"}"#, "/passwd"),
            (r#"{"card":{"name":"[secret]"}}"#, "/card/name"),
            (r#"{"card":"[secret]"}"#, "/card"),
            (r#"{"url":"https://bob:[secret]@host"}"#, "/url"),
            (r#"{"a/b~":[{"[secret]":1}]}"#, "/a~1b~0/0/[secret]"),
        ] {
            assert_eq!(sent_back(new).unwrap_err(), pointer, "{new}");
        }
    }

    #[test]
    fn new_parameters_have_no_placeholder() {
        for (new, inside, fits) in [
            (r#"{"a":"[secret]"}"#, false, false),
            (r#"{"a":["\u005bsecret]"]}"#, false, false),
            (r#"{"[secret]":1}"#, false, false),
            (r#"{"subject":"[secret] Santa"}"#, false, true),
            (r#"{"subject":"[secret] Santa"}"#, true, false),
            (r#"{"a":"secret"}"#, true, true),
        ] {
            assert_eq!(refuse_placeholders(&json(new), inside).is_ok(), fits, "{new}");
        }
        // A stored value that contains the placeholder text is kept.
        let stored = json(r#"{"note":"[secret] Santa","p":"hunter22"}"#);
        let redactor = Redactor::of(&stored, &Json::empty_object(), &["p"]);
        let redacted = redactor.parameters().unwrap();
        assert_eq!(restore(redacted, &stored, Some(redacted)).unwrap(), stored);
    }
}
