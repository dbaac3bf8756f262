//! Request bodies, read field by field.
//!
//! Not by `Json<T>`: each error names the field, the expected type and, for unknown
//! fields, a suggestion; serde has one fixed sentence for these. Values stay
//! `RawValue` until they are used, so numbers keep their digits, and a request with
//! an `Idempotency-Key` is hashed as it was sent.

use std::fmt;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::{Method, StatusCode, header};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use task_engine_core::ParseError;
use task_engine_core::json::Json;
use task_engine_core::queue::REASON_BYTES_MAX;
use task_engine_core::suggest::nearest;
use task_engine_core::task::TaskId;

use super::query::Query;
use crate::app::App;
use crate::error::ApiError;

/// A JSON text.
#[derive(Debug)]
pub(super) struct Body(pub(super) String);

impl FromRequest<App> for Body {
    type Rejection = ApiError;

    /// No body is an empty object.
    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        Ok(Self(json_text(request, app).await?.unwrap_or_else(|| "{}".to_owned())))
    }
}

/// Any JSON value. No body is null.
#[derive(Debug)]
pub(super) struct Payload(pub(super) Json);

impl FromRequest<App> for Payload {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let Some(text) = json_text(request, app).await? else { return Ok(Self(Json::null())) };
        let payload = Json::parse(text.trim());
        let invalid = |why| ApiError::field("", format!("The payload cannot be used: {why}."));
        payload.map(Self).map_err(invalid)
    }
}

/// The body as text; `None` if it is empty.
async fn json_text(request: Request, app: &App) -> Result<Option<String>, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE).cloned();
    let bytes = Bytes::from_request(request, app).await.map_err(|bad| {
        match bad.into_response().status() {
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::too_large(),
            _ => ApiError::bad_request("The body is not complete."),
        }
    })?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let kind = kind.as_ref().and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "The body must be JSON, with the header Content-Type: application/json.",
        ));
    }
    let text = String::from_utf8(bytes.into());
    text.map(Some).map_err(|_| ApiError::field("", "The body is not UTF-8."))
}

impl Body {
    /// An object; other fields than these are refused.
    pub(super) fn object(&self, known: &[&str]) -> Result<Object<'_>, ApiError> {
        Object::read(self.value()?, String::new(), known)
    }

    pub(super) fn value(&self) -> Result<&RawValue, ApiError> {
        serde_json::from_str(&self.0)
            .map_err(|why| ApiError::field("", format!("The body is not JSON: {why}.")))
    }
}

/// The reason of a change: in the query of a DELETE, else in a body without other fields.
#[derive(Debug)]
pub(super) struct ChangeReason(pub(super) Option<String>);

impl FromRequest<App> for ChangeReason {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        if request.method() == Method::DELETE {
            let (mut parts, _) = request.into_parts();
            let query = Query::from_request_parts(&mut parts, app).await?.with(&["reason"])?;
            return Ok(Self(query.text("reason").map(str::to_owned)));
        }
        let body = Body::from_request(request, app).await?;
        Ok(Self(body.object(&["reason"])?.reason()?))
    }
}

/// An object and its JSON pointer.
#[derive(Debug)]
pub(super) struct Object<'a> {
    pointer: String,
    fields: Vec<(String, &'a RawValue)>,
}

struct RawFields<'a>(Vec<(String, &'a RawValue)>);

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
    pub(super) fn read(
        value: &'a RawValue,
        pointer: String,
        known: &[&str],
    ) -> Result<Self, ApiError> {
        if kind(value) != "an object" {
            return Err(ApiError::field(
                pointer,
                format!("Expected an object, found {}.", kind(value)),
            ));
        }
        let RawFields(fields) = serde_json::from_str(value.get())
            .map_err(|why| ApiError::field(pointer.as_str(), format!("Not JSON: {why}.")))?;
        for (at, (name, _)) in fields.iter().enumerate() {
            let short: String = name.chars().take(100).collect();
            let pointer = format!("{pointer}/{}", escaped(name));
            if !known.contains(&name.as_str()) {
                let hint = did_you_mean(name, known);
                return Err(ApiError::field(pointer, format!("Unknown field {short:?}{hint}")));
            }
            if fields[..at].iter().any(|(before, _)| before == name) {
                return Err(ApiError::field(
                    pointer,
                    format!("The field {short:?} is given twice."),
                ));
            }
        }
        Ok(Self { pointer, fields })
    }

    /// The error of a field.
    pub(super) fn invalid(&self, name: &str, why: impl fmt::Display) -> ApiError {
        let why = why.to_string();
        let end = if why.ends_with(['.', '?']) { "" } else { "." };
        ApiError::field(format!("{}/{name}", self.pointer), format!("{name}: {why}{end}"))
    }

    /// A field; `null` counts as missing.
    pub(super) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.fields.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| *value).filter(|value| value.get() != "null")
    }

    fn mismatch(&self, name: &str, expected: &str, found: &RawValue) -> ApiError {
        self.invalid(name, format!("expected {expected}, found {}", kind(found)))
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<String>, ApiError> {
        let read = |value: &RawValue| match kind(value) {
            // `RawValue` accepts lone surrogates, strings do not.
            "a string" => serde_json::from_str(value.get()).map_err(|_| {
                self.invalid(name, "this string has an incomplete character (a lone surrogate)")
            }),
            _ => Err(self.mismatch(name, "a string", value)),
        };
        self.raw(name).map(read).transpose()
    }

    /// The reason, for the audit.
    pub(super) fn reason(&self) -> Result<Option<String>, ApiError> {
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

    pub(super) fn required_text(&self, name: &str) -> Result<String, ApiError> {
        self.text(name)?.ok_or_else(|| self.invalid(name, "the field is missing"))
    }

    /// A string that is parsed further.
    pub(super) fn parsed<T, E: fmt::Display>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ApiError> {
        let text = self.text(name)?;
        text.map(|text| parse(&text).map_err(|why| self.invalid(name, why))).transpose()
    }

    pub(super) fn whole<T: TryFrom<i64>>(
        &self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, ApiError> {
        let read = |value: &RawValue| {
            let number = value.get().parse::<i64>().ok().and_then(|it| T::try_from(it).ok());
            number.ok_or_else(|| self.mismatch(name, expected, value))
        };
        self.raw(name).map(read).transpose()
    }

    /// A number within these bounds.
    pub(super) fn number(&self, name: &str, from: f64, to: f64) -> Result<Option<f64>, ApiError> {
        let read = |value: &RawValue| {
            let number: Option<f64> = value.get().parse().ok();
            let fits = number.filter(|it| kind(value) == "a number" && (from..=to).contains(it));
            fits.ok_or_else(|| self.mismatch(name, &format!("a number from {from} to {to}"), value))
        };
        self.raw(name).map(read).transpose()
    }

    pub(super) fn boolean(&self, name: &str) -> Result<bool, ApiError> {
        match self.raw(name) {
            None => Ok(false),
            Some(value) => serde_json::from_str(value.get())
                .map_err(|_| self.mismatch(name, "true or false", value)),
        }
    }

    pub(super) fn json_object(&self, name: &str) -> Result<Option<Json>, ApiError> {
        let read = |value: &RawValue| {
            Json::parse_object(value.get()).map_err(|bad| self.invalid(name, bad))
        };
        self.raw(name).map(read).transpose()
    }

    pub(super) fn object(&self, name: &str, known: &[&str]) -> Result<Option<Self>, ApiError> {
        let read = |value| Self::read(value, format!("{}/{name}", self.pointer), known);
        self.raw(name).map(read).transpose()
    }

    /// Ids of tasks, as numbers or as strings.
    pub(super) fn ids(&self, name: &str) -> Result<Option<Vec<TaskId>>, ApiError> {
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

/// The values of a list; `None` if it is not a list.
pub(super) fn list(value: &RawValue) -> Option<Vec<&RawValue>> {
    if kind(value) == "a list" { serde_json::from_str(value.get()).ok() } else { None }
}

/// The type of a value.
pub(super) fn kind(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// As a token of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The end of a sentence: `; did you mean …?`, or the known names.
pub(super) fn did_you_mean(name: &str, known: &[&str]) -> String {
    // `task_class` for `class`.
    let extends = |word: &&&str| name.ends_with(**word) || name.starts_with(**word);
    let near = nearest(name, known.iter().copied()).or_else(|| known.iter().find(extends).copied());
    match near {
        Some(word) => format!("; did you mean {word}?"),
        None if known.is_empty() => "; none is allowed.".to_owned(),
        None => format!("; known: {}.", known.join(", ")),
    }
}

/// An object in canonical form, with another value for one field: the same for
/// equivalent requests.
pub(super) fn canonical_with(value: &RawValue, name: &str, other: &str) -> String {
    let mut text = String::new();
    let Ok(RawFields(mut fields)) = serde_json::from_str(value.get()) else { return text };
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    for (field, value) in fields {
        text.push_str(&serde_json::Value::from(field.as_str()).to_string());
        text.push(':');
        write_canonical(if field == name { other } else { value.get() }, &mut text);
        text.push(',');
    }
    text
}

fn write_canonical(text: &str, to: &mut String) {
    let text = text.trim();
    match text.as_bytes().first() {
        Some(b'{') => {
            let Ok(RawFields(mut fields)) = serde_json::from_str(text) else { return };
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            to.push('{');
            for (name, value) in fields {
                to.push_str(&serde_json::Value::from(name).to_string());
                to.push(':');
                write_canonical(value.get(), to);
                to.push(',');
            }
            to.push('}');
        }
        Some(b'[') => {
            let values: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            to.push('[');
            for value in values {
                write_canonical(value.get(), to);
                to.push(',');
            }
            to.push(']');
        }
        _ => to.push_str(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_pointer() {
        for (text, pointer, why) in [
            ("{", "", "not JSON"),
            ("[1]", "", "found a list"),
            (r#"{"clas":1}"#, "/clas", "did you mean class?"),
            (r#"{"task_class":1}"#, "/task_class", "did you mean class?"),
            (r#"{"a/b~":1}"#, "/a~1b~0", "known: class, priority"),
            (r#"{"class":"a","class":"b"}"#, "/class", "twice"),
            (r#"{"class":7}"#, "/class", "expected a string, found a number"),
            (r#"{"class":"\ud800"}"#, "/class", "incomplete character"),
            (r#"{"class":"a","priority":1.5}"#, "/priority", "expected a whole number"),
            (r#"{"class":"a","priority":99999999999}"#, "/priority", "a whole number"),
            (r#"{"class":"a","priority":"5"}"#, "/priority", "found a string"),
        ] {
            let body = Body(text.to_owned());
            let read = body.object(&["class", "priority"]).and_then(|object| {
                object.required_text("class")?;
                object.whole::<i32>("priority", "a whole number")
            });
            let problem = read.unwrap_err();
            assert_eq!(problem.pointer.as_deref(), Some(pointer), "{text}");
            assert!(problem.detail.contains(why), "{text}: {}", problem.detail);
        }
    }

    #[test]
    fn equivalent_requests_are_equal() {
        let canonical = |text: &str| {
            let text = format!(r#"{{"p": {text}, "x": 1}}"#);
            canonical_with(serde_json::from_str(&text).unwrap(), "x", "2")
        };
        let one = canonical(r#"{"b": [1, {"z": 1.0, "a": "x y"}], "a": 12345678901234567890123}"#);
        let other = canonical(r#"{"a":12345678901234567890123,"b":[1,{"a":"x y","z":1.0}]}"#);
        assert_eq!(one, other);
        assert_ne!(one, canonical(r#"{"a":12345678901234567890124,"b":[1,{"a":"x y","z":1.0}]}"#));
        assert_ne!(canonical("[1,2]"), canonical("[12]"));
    }
}
