//! Errors of pages and API, as problem details (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use task_engine_store::error::StoreError;

/// Why a request failed.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ApiError {
    #[serde(serialize_with = "as_number")]
    pub(crate) status: StatusCode,
    /// The standard text of the status.
    pub(crate) title: &'static str,
    /// What is wrong, and what to do.
    pub(crate) detail: String,
    /// The field of the body, as a JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pointer: Option<String>,
    /// The parameter of the path or the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parameter: Option<String>,
    /// Why the request was refused, as a token of a closed list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<&'static str>,
}

fn as_number<S: serde::Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        let detail = detail.into();
        Self { status, title, detail, pointer: None, parameter: None, outcome: None }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// An invalid field of the body.
    pub(crate) fn field(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: Some(pointer.into()), ..Self::bad_request(detail) }
    }

    /// An invalid parameter of the address.
    pub(crate) fn parameter(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { parameter: Some(name.into()), ..Self::bad_request(detail) }
    }

    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    pub(crate) fn too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "The body is larger than 16 MiB. Send fewer tasks at once, and store large data elsewhere.",
        )
    }

    pub(crate) fn too_many(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, detail)
    }

    pub(crate) fn misdirected(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, detail)
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

/// Messages of the store may name servers and tables: they go to the log only.
impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::InvalidData(why) => Self::bad_request(why),
            StoreError::NameTaken(_) | StoreError::InstanceOver | StoreError::AttemptOver(_) => {
                Self::conflict(error.to_string())
            }
            StoreError::Version(why) => {
                tracing::warn!(%why, "the dashboard cannot read the tables");
                Self::unavailable(
                    "The tables are missing or have another version. Run `task-engine migrate` of the version that the engines have.",
                )
            }
            // Engines retry, because a standby may take over.
            StoreError::Unavailable(why) if why.contains("read-only transaction") => {
                tracing::warn!(%why, "the database takes no changes");
                Self::unavailable(
                    "The database is read-only, or a standby. Nothing was changed; send changes to the primary.",
                )
            }
            StoreError::Unavailable(why) => {
                tracing::warn!(%why, "the dashboard cannot reach the database");
                Self::unavailable(
                    "The database did not answer in time. Engines continue by themselves; try again in a moment.",
                )
            }
            StoreError::Locked(why) => {
                tracing::warn!(%why, "another database session holds a lock that the dashboard needs");
                Self::unavailable(
                    "Another database session holds a lock; nothing was changed. `task-engine doctor` and the log of this server name it.",
                )
            }
            // Refused, or unknown to this version.
            why => {
                tracing::warn!(%why, "the database refused a statement of the dashboard");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "The database refused the statement. The log of this server says why.",
                )
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        // `guard` renders it as a page.
        response.extensions_mut().insert(self);
        response
    }
}
