//! The audit, and tokens.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use task_engine_operations::Actor;
use task_engine_operations::report::audit_sentence;
use task_engine_store::audit::{AuditEntry, AuditFilter};
use task_engine_store::token::{NewToken, Role, TokenRow, TokenSecret};

use super::body::Body;
use super::query::Query;
use super::times::{duration, time};
use crate::action::perform;
use crate::app::App;
use crate::error::ApiError;

#[derive(Serialize)]
pub(super) struct Audit {
    entries: Vec<Entry>,
    /// `before` of the next page.
    next: Option<i64>,
}

#[derive(Serialize)]
struct Entry {
    #[serde(flatten)]
    entry: AuditEntry,
    message: String,
}

pub(super) async fn audit(State(app): State<App>, query: Query) -> Result<Answer<Audit>, ApiError> {
    let query = query.with(&["before", "limit", "actor", "action", "task", "since", "until"])?;
    let limit = query.limit(50, 500)?;
    let moment = |name| {
        let read =
            |text: &str| time(text).map_err(|why| ApiError::parameter(name, format!("{why}.")));
        query.text(name).map(read).transpose()
    };
    let filter = AuditFilter {
        before: query.parse("before")?,
        limit,
        actor: query.text("actor").map(str::to_owned),
        action: query.text("action").map(str::to_owned),
        since: moment("since")?,
        until: moment("until")?,
        task: query.parse("task")?,
    };
    let entries = app.store.audit_page(&filter).await?;
    let last = entries.last().filter(|_| entries.len() >= limit as usize);
    let next = last.map(|last| last.id);
    let shown = |entry: AuditEntry| Entry { message: audit_sentence(&entry), entry };
    Ok(Answer(Audit { entries: entries.into_iter().map(shown).collect(), next }))
}

#[derive(Serialize)]
pub(super) struct Tokens {
    tokens: Vec<TokenRow>,
}

pub(super) async fn tokens(
    State(app): State<App>,
    query: Query,
) -> Result<Answer<Tokens>, ApiError> {
    query.with(&[])?;
    Ok(Answer(Tokens { tokens: app.store.tokens().await? }))
}

/// Only this response contains the secret.
#[derive(Serialize)]
pub(super) struct NewSecret {
    audit_id: i64,
    name: String,
    role: Role,
    token: String,
}

pub(super) async fn create_token(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<(StatusCode, Answer<NewSecret>), ApiError> {
    let object = body.object(&["name", "role", "expires_in", "reason"])?;
    let name = object.required_text("name")?;
    let role: Role = object
        .parsed("role", str::parse::<Role>)?
        .ok_or_else(|| object.invalid("role", "the field is missing"))?;
    let expires_in = object.parsed("expires_in", duration)?;
    if expires_in.is_some_and(|time| time.is_zero()) {
        return Err(object.invalid("expires_in", "it must be longer than zero"));
    }
    let secret = TokenSecret::generate()?;
    let token = NewToken::new(name.as_str(), role, secret.hash(), expires_in)
        .map_err(|bad| object.invalid("name", bad))?;
    let reason = object.reason()?;
    let report = perform(&app, &actor, reason.as_deref(), |operator| async move {
        operator.create_token(&token).await
    })
    .await?;
    let token = secret.text().to_owned();
    Ok((StatusCode::CREATED, Answer(NewSecret { audit_id: report.audit_id, name, role, token })))
}
