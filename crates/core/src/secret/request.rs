//! The fields of a context about the HTTP request that created the task, if it had an
//! `Idempotency-Key`: the key, and a keyed hash of the request.
//!
//! Readers must not see them. With the key a reader could send the request again with a guess of
//! its body. With the hash and the key of the database a reader could check guesses offline.

use std::fmt::Display;

use super::PLACEHOLDER;
use super::rewrite::{Shape, quoted, write_object};
use crate::json::Json;
use crate::unique::CONTEXT_KEY;

/// The field of the context with the hash of the request.
pub const CONTEXT_MARK: &str = "http_request";
/// The field of the context with the user who created the task by the dashboard or the
/// HTTP API.
pub const CONTEXT_CREATOR: &str = "created_by";
/// The prefix of unique keys that come from an `Idempotency-Key`.
pub(crate) const KEY_PREFIX: &str = "idempotency-key:";

/// Returns the unique key of a task of a request.
#[must_use]
pub fn unique_key(idempotency_key: &str, at: impl Display) -> String {
    format!("{KEY_PREFIX}{idempotency_key}:{at}")
}

/// Redacts both fields of a context.
pub(super) fn hide(context: &mut Json) {
    // The common case needs no parsing.
    if ![CONTEXT_MARK, KEY_PREFIX].iter().any(|part| context.as_str().contains(part)) {
        return;
    }
    let Shape::Object(fields) = Shape::of(context.as_str()) else { return };
    let mut out = String::with_capacity(context.as_str().len());
    write_object(&mut out, fields, |name, value, out| {
        out.push_str(&quoted(name));
        out.push(':');
        let text = serde_json::from_str::<String>(value.get());
        let is_key = || text.is_ok_and(|text| text.starts_with(KEY_PREFIX));
        match name {
            CONTEXT_MARK => out.push_str(&quoted(PLACEHOLDER)),
            CONTEXT_KEY if is_key() => out.push_str(&quoted(PLACEHOLDER)),
            _ => out.push_str(value.get()),
        }
    });
    *context = Json::from_store(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_fields_are_hidden() {
        for (context, hidden) in [
            ("{}", "{}"),
            (r#"{"unique_key": "order-17"}"#, r#"{"unique_key": "order-17"}"#),
            (
                r#"{"a": 1, "http_request": "k1", "unique_key": "idempotency-key:x:0"}"#,
                r#"{"a":1,"http_request":"[secret]","unique_key":"[secret]"}"#,
            ),
        ] {
            let mut json = Json::parse(context).unwrap();
            hide(&mut json);
            assert_eq!(json.as_str(), hidden);
        }
    }
}
