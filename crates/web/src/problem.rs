//! What went wrong, as a person and as a program need it (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use task_engine_store::error::StoreError;

/// Why a request was not done.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Problem {
    #[serde(serialize_with = "as_number")]
    pub(crate) status: StatusCode,
    /// The same for all of its kind.
    pub(crate) title: &'static str,
    /// What is wrong here, and what to do.
    pub(crate) detail: String,
    /// Which field of the body, as a JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pointer: Option<String>,
    /// Which part of the address: a parameter in its path or its query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parameter: Option<String>,
}

fn as_number<S: serde::Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}

impl Problem {
    pub(crate) fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, title, detail: detail.into(), pointer: None, parameter: None }
    }

    /// What was sent cannot be meant.
    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Bad request", detail)
    }

    /// The same about one field.
    pub(crate) fn field(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: Some(pointer.into()), ..Self::bad(detail) }
    }

    /// The same about one parameter of the address.
    pub(crate) fn parameter(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { parameter: Some(name.into()), ..Self::bad(detail) }
    }

    /// Nobody is known to be asking.
    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Who are you?", detail)
    }

    /// Whoever asks may not.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Not allowed", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "Not found", detail)
    }

    /// It is not in a state for this.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", detail)
    }

    pub(crate) fn too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "Too large",
            "A body has at most 16 MiB. Send fewer tasks at once, and keep large data elsewhere.",
        )
    }

    pub(crate) fn too_many(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "Too many attempts", detail)
    }

    /// The name by which the request came is not one of this server.
    pub(crate) fn misdirected(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "Not this server", detail)
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Not available", detail)
    }
}

/// A store's own words may name servers and tables: they are for the log.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::InvalidData(why) => Self::bad(why),
            StoreError::NameTaken(_) | StoreError::InstanceOver | StoreError::AttemptOver(_) => {
                Self::conflict(error.to_string())
            }
            StoreError::Version(why) => {
                tracing::warn!(%why, "the dashboard cannot read the tables");
                Self::unavailable(
                    "The tables are missing or of another version. Run `task-engine migrate` with the version of the engines.",
                )
            }
            // For engines it is a matter of time, as it is while a standby takes over.
            StoreError::Unavailable(why) if why.contains("read-only transaction") => {
                tracing::warn!(%why, "the database takes no changes");
                Self::unavailable(
                    "This database can only be read: it is a standby, or read-only. Nothing was changed; changes go to the primary.",
                )
            }
            StoreError::Unavailable(why) => {
                tracing::warn!(%why, "the dashboard cannot reach the database");
                Self::unavailable(
                    "The database did not answer, or not in time. Engines go on by themselves; try again in a moment.",
                )
            }
            StoreError::Locked(why) => {
                tracing::warn!(%why, "another session holds a lock that the dashboard needs");
                Self::unavailable(
                    "Another session of the database holds a lock that this needs; nothing was changed. `task-engine doctor` and the log of this server name it.",
                )
            }
            // Refused, or what this version does not know.
            why => {
                tracing::warn!(%why, "the database refused what the dashboard asked for");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "Refused",
                    "The database refused. The log of this server says why.",
                )
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if self.status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
        }
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        // For whoever shows it as a page.
        response.extensions_mut().insert(self);
        response
    }
}
