//! What an address says: the parameters of its query and the pieces of its path.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use task_engine_core::ParseError;
use task_engine_core::filter::Filter;
use task_engine_core::task::NAME_BYTES_MAX;
use task_engine_core::task::TaskId;

use super::body::did_you_mean;
use crate::access::Actor;
use crate::app::App;
use crate::problem::Problem;

/// The parameters of a query, each at most once.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl FromRequestParts<App> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let pairs = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        Ok(Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect()))
    }
}

impl Query {
    /// With these parameters and no others.
    pub(super) fn with(self, known: &[&str]) -> Result<Self, Problem> {
        for (at, (name, _)) in self.0.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let meant = did_you_mean(name, known);
                return Err(Problem::parameter(
                    name.as_str(),
                    format!("The parameter {name:?} is not known here{meant}"),
                ));
            }
            if self.0[..at].iter().any(|(before, _)| before == name) {
                return Err(Problem::parameter(name.as_str(), format!("{name} is there twice.")));
            }
        }
        Ok(self)
    }

    /// What it says, if that is anything.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub(super) fn need(&self, name: &str) -> Result<&str, Problem> {
        self.text(name)
            .ok_or_else(|| Problem::parameter(name, format!("The parameter {name} is missing.")))
    }

    pub(super) fn parse<T: FromStr>(&self, name: &str) -> Result<Option<T>, Problem>
    where
        T::Err: Display,
    {
        let read =
            |text: &str| text.parse().map_err(|why: T::Err| wrong(name, text, &why.to_string()));
        self.text(name).map(read).transpose()
    }

    /// How many, from 1 up.
    pub(super) fn limit(&self, usual: u32, max: u32) -> Result<u32, Problem> {
        self.number("limit", usual, max)
    }

    pub(super) fn number(&self, name: &str, usual: u32, max: u32) -> Result<u32, Problem> {
        let Some(text) = self.text(name) else { return Ok(usual) };
        match text.parse() {
            Ok(number) if (1..=max).contains(&number) => Ok(number),
            _ => Err(wrong(name, text, &format!("it is a whole number from 1 to {max}"))),
        }
    }

    /// The tasks that are meant, if who asks may ask so.
    pub(super) async fn filter(&self, app: &App, actor: &Actor) -> Result<Filter, Problem> {
        let text = self.text("filter").unwrap_or_default();
        let filter = Filter::parse(text, &app.zone);
        let filter = filter.map_err(|bad| Problem::parameter("filter", bad.to_string()))?;
        app.allowed(actor, filter).await
    }
}

fn wrong(name: &str, text: &str, why: &str) -> Problem {
    let shown: String = text.chars().take(100).collect();
    Problem::parameter(name, format!("{name} cannot be {shown:?}: {why}."))
}

/// The task that a path names.
#[derive(Debug)]
pub(super) struct OfTask(pub(super) TaskId);

impl FromRequestParts<App> for OfTask {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let text = piece(parts, app).await?;
        let id =
            text.parse().map_err(|why: ParseError| Problem::parameter("id", format!("{why}.")))?;
        Ok(Self(id))
    }
}

/// The name in a path, which may have slashes and spaces if they are encoded.
#[derive(Debug)]
pub(super) struct Named(pub(super) String);

impl FromRequestParts<App> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let name = piece(parts, app).await?;
        // No store has any other name, and some cannot even be asked for one.
        if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(Problem::not_found(format!("Nothing has the name {name:?}.")));
        }
        Ok(Self(name))
    }
}

async fn piece(parts: &mut Parts, app: &App) -> Result<String, Problem> {
    let path = Path::<String>::from_request_parts(parts, app).await;
    path.map(|Path(piece)| piece).map_err(|bad| Problem::bad(bad.body_text()))
}
