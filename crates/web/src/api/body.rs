//! Request bodies, read field by field (`task_engine_operations::fields`).

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::{Method, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::value::RawValue;
use task_engine_core::json::Json;
use task_engine_operations::fields::{InvalidField, RawFields};
pub(super) use task_engine_operations::fields::{Object, did_you_mean, kind, list};

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
        Ok(Object::read(self.value()?, String::new(), known)?)
    }

    pub(super) fn value(&self) -> Result<&RawValue, ApiError> {
        serde_json::from_str(&self.0)
            .map_err(|why| ApiError::field("", format!("The body is not JSON: {why}.")))
    }
}

impl From<InvalidField> for ApiError {
    fn from(InvalidField { pointer, message }: InvalidField) -> Self {
        Self::field(pointer, message)
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
