//! Tokens: the list, and a new one.

use axum::Json as JsonResponse;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use task_engine_operations::Actor;
use task_engine_store::token::{NewToken, Role, TokenRow, TokenSecret};

use super::body::Body;
use super::query::Query;
use super::times::duration;
use crate::app::App;
use crate::error::ApiError;
use crate::operation::perform;

#[derive(Serialize)]
pub(super) struct Tokens {
    tokens: Vec<TokenRow>,
}

pub(super) async fn list(
    State(app): State<App>,
    query: Query,
) -> Result<JsonResponse<Tokens>, ApiError> {
    query.with(&[])?;
    Ok(JsonResponse(Tokens { tokens: app.store.tokens().await? }))
}

/// Only this response contains the secret.
#[derive(Serialize)]
pub(super) struct NewSecret {
    audit_id: i64,
    name: String,
    role: Role,
    token: String,
}

pub(super) async fn create(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<(StatusCode, JsonResponse<NewSecret>), ApiError> {
    let object = body.object(&["name", "role", "expires_in", "reason"])?;
    let name = object.required_text("name")?;
    let role: Role = object
        .parsed("role", str::parse::<Role>)?
        .ok_or_else(|| object.invalid("role", "the field is missing"))?;
    let expires_in = object.parsed("expires_in", duration)?;
    if expires_in.is_some_and(|time| time.is_zero()) {
        return Err(object.invalid("expires_in", "it must be longer than zero").into());
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
    Ok((
        StatusCode::CREATED,
        JsonResponse(NewSecret { audit_id: report.audit_id, name, role, token }),
    ))
}
