//! Parameters of the query and the path. Read by hand rather than by axum's
//! `Query<T>`: unknown and repeated parameters are refused by name, with a suggestion.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use task_engine_core::ParseError;
use task_engine_core::filter::Filter;
use task_engine_core::step::check_signal_name;
use task_engine_core::task::NAME_BYTES_MAX;
use task_engine_core::task::TaskId;

use super::body::did_you_mean;
use crate::access::Actor;
use crate::app::App;
use crate::error::ApiError;
use crate::operation::sentence;

/// The parameters of a query, each at most once.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl FromRequestParts<App> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        let pairs = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        Ok(Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect()))
    }
}

impl Query {
    /// Refuses other parameters than these.
    pub(super) fn with(self, known: &[&str]) -> Result<Self, ApiError> {
        for (at, (name, _)) in self.0.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let hint = did_you_mean(name, known);
                return Err(ApiError::parameter(
                    name.as_str(),
                    format!("Unknown parameter {name:?}{hint}"),
                ));
            }
            if self.0[..at].iter().any(|(before, _)| before == name) {
                return Err(ApiError::parameter(
                    name.as_str(),
                    format!("The parameter {name} is given twice."),
                ));
            }
        }
        Ok(self)
    }

    /// The value, unless it is empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub(super) fn need(&self, name: &str) -> Result<&str, ApiError> {
        self.text(name)
            .ok_or_else(|| ApiError::parameter(name, format!("The parameter {name} is missing.")))
    }

    pub(super) fn parse<T: FromStr>(&self, name: &str) -> Result<Option<T>, ApiError>
    where
        T::Err: Display,
    {
        let read =
            |text: &str| text.parse().map_err(|why: T::Err| invalid(name, text, &why.to_string()));
        self.text(name).map(read).transpose()
    }

    /// The page size, at least 1.
    pub(super) fn limit(&self, default: u32, max: u32) -> Result<u32, ApiError> {
        self.number("limit", default, max)
    }

    pub(super) fn number(&self, name: &str, default: u32, max: u32) -> Result<u32, ApiError> {
        let Some(text) = self.text(name) else { return Ok(default) };
        match text.parse() {
            Ok(number) if (1..=max).contains(&number) => Ok(number),
            _ => Err(invalid(name, text, &format!("write a whole number from 1 to {max}"))),
        }
    }

    /// Whether parameters are checked by the schemas of classes: unless `check=false`, the
    /// only parameter.
    pub(super) fn checks_parameters(self) -> Result<bool, ApiError> {
        let query = self.with(&["check"])?;
        match query.text("check") {
            None | Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(invalid("check", other, "write true or false")),
        }
    }

    /// The filter, if the role of the actor allows it.
    pub(super) async fn filter(&self, app: &App, actor: &Actor) -> Result<Filter, ApiError> {
        let text = self.text("filter").unwrap_or_default();
        let filter = Filter::parse(text, &app.zone);
        let filter = filter.map_err(|bad| ApiError::parameter("filter", bad.to_string()))?;
        app.allowed(actor, filter).await
    }
}

fn invalid(name: &str, text: &str, why: &str) -> ApiError {
    let shown: String = text.chars().take(100).collect();
    ApiError::parameter(name, format!("{name} cannot be {shown:?}: {why}."))
}

/// The task of the path.
#[derive(Debug)]
pub(super) struct PathTask(pub(super) TaskId);

impl FromRequestParts<App> for PathTask {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        Ok(Self(task_id(&segment(parts, app).await?)?))
    }
}

fn task_id(text: &str) -> Result<TaskId, ApiError> {
    text.parse().map_err(|why: ParseError| ApiError::parameter("id", format!("{why}.")))
}

/// The name in the path; it may contain encoded slashes and spaces.
#[derive(Debug)]
pub(super) struct PathName(pub(super) String);

impl FromRequestParts<App> for PathName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let name = segment(parts, app).await?;
        // No store has such a name, and some refuse to look for one.
        if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(ApiError::not_found(format!("No such name: {name:?}.")));
        }
        Ok(Self(name))
    }
}

/// The task and the signal of the path.
#[derive(Debug)]
pub(super) struct PathSignal(pub(super) TaskId, pub(super) String);

impl FromRequestParts<App> for PathSignal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let path = Path::<(String, String)>::from_request_parts(parts, app).await;
        let Path((id, name)) = path.map_err(|bad| ApiError::bad_request(bad.body_text()))?;
        check_signal_name(&name)
            .map_err(|bad| ApiError::parameter("name", sentence(&bad.to_string())))?;
        Ok(Self(task_id(&id)?, name))
    }
}

async fn segment(parts: &mut Parts, app: &App) -> Result<String, ApiError> {
    let path = Path::<String>::from_request_parts(parts, app).await;
    path.map(|Path(segment)| segment).map_err(|bad| ApiError::bad_request(bad.body_text()))
}
