//! Login, logout and theme.

use axum::Form;
use axum::extract::{Query, State};
use axum::http::header::SET_COOKIE;
use axum::http::request::Parts;
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use task_engine_core::json::Json;
use task_engine_store::audit::{AuditOutcome, NewAuditEntry};
use task_engine_store::token::{Role, TokenSecret};

use super::links;
use crate::app::App;
use crate::error::ApiError;
use crate::guard::{self, COOKIE, Theme};
use crate::layout;
use crate::session::{self, LoginSession, MAX_AGE_SECS};

#[derive(Debug, Deserialize)]
pub(crate) struct LoginQuery {
    #[serde(default)]
    to: String,
}

pub(crate) async fn page(
    State(app): State<App>,
    theme: Theme,
    Query(query): Query<LoginQuery>,
) -> Markup {
    form(&app, theme, &query.to, None)
}

fn form(app: &App, theme: Theme, to: &str, wrong: Option<&str>) -> Markup {
    html! {
        (layout::head(app, "Log in", theme))
        body {
            main #main {
                section .card {
                    h1 { "Task Engine" }
                    @if let Some(wrong) = wrong { p .flash .bad role="alert" { (wrong) } }
                    form method="post" action=(app.path("/login")) {
                        input type="hidden" name="to" value=(to);
                        div .fields {
                            label .wide {
                                "Password or token"
                                input type="password" name="secret" required autofocus
                                      autocomplete="current-password";
                            }
                        }
                        button { "Log in" }
                    }
                    p .soft { "Create a token with " code { "task-engine tokens create NAME --role viewer" } "." }
                }
            }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct Login {
    secret: String,
    #[serde(default)]
    to: String,
}

pub(crate) async fn log_in(
    State(app): State<App>,
    theme: Theme,
    parts: Parts,
    Form(login): Form<Login>,
) -> Result<Response, ApiError> {
    let from = guard::address(&parts);
    let secret = login.secret.trim();
    // A valid token is not limited, because tokens cannot be guessed. It does not
    // reset the limit of wrong passwords either.
    if let Some(actor) = guard::by_token(&app, secret).await? {
        let hash = secret.parse::<TokenSecret>().map(|secret| session::to_hex(&secret.hash())).ok();
        return start_session(&app, LoginSession::new(actor.name, actor.role, hash), &login.to)
            .await;
    }
    if app.login_failures.too_many(from) {
        return Err(ApiError::too_many("Too many wrong passwords; wait a minute."));
    }
    let right = app.access.password.as_ref().is_some_and(|it| session::same(it, secret));
    if !right {
        if app.login_failures.failed(from) {
            audit_attack(&app, &from.to_string()).await;
        }
        let wrong = "Wrong password or token.";
        let page = form(&app, theme, &login.to, Some(wrong));
        return Ok((axum::http::StatusCode::UNAUTHORIZED, page).into_response());
    }
    app.login_failures.succeeded(from);
    start_session(&app, LoginSession::new("admin".to_owned(), Role::Admin, None), &login.to).await
}

async fn start_session(app: &App, session: LoginSession, to: &str) -> Result<Response, ApiError> {
    let cookie = session.cookie(app.keys.get(&*app.store).await?).unwrap_or_default();
    let set = set_cookie(app, COOKIE, &cookie, MAX_AGE_SECS);
    Ok((AppendHeaders([(SET_COOKIE, set)]), Redirect::to(&links::return_to(app, to)))
        .into_response())
}

/// Audits repeated failures once, not each of them.
async fn audit_attack(app: &App, from: &str) {
    let entry = NewAuditEntry::started("anonymous", "login", from, None, Json::empty_object());
    if let Ok(entry) = entry
        && let Ok(id) = app.store.audit(&entry).await
    {
        let refused = entry.ended(id, AuditOutcome::Refused, Json::empty_object());
        let _ = app.store.audit(&refused).await;
    }
    tracing::warn!(from, "too many wrong passwords or tokens");
}

/// Deletes the cookie and ends the session for all servers.
pub(crate) async fn log_out(State(app): State<App>, parts: Parts) -> Response {
    let forget = AppendHeaders([(SET_COOKIE, set_cookie(&app, COOKIE, "", 0))]);
    match end_session(&app, &parts).await {
        Ok(()) => (forget, Redirect::to(&app.path("/"))).into_response(),
        Err(problem) => {
            let detail = "The cookie was deleted, but the session could not be ended: a copy of the cookie works until it expires, 12 hours after the login.";
            (forget, ApiError { detail: detail.to_owned(), ..problem }).into_response()
        }
    }
}

async fn end_session(app: &App, parts: &Parts) -> Result<(), ApiError> {
    let Some(session) = guard::session_of(app, &parts.headers).await? else { return Ok(()) };
    let Some(id) = session.id() else { return Ok(()) };
    app.store.end_login(id, session.remaining()).await?;
    Ok(())
}

#[derive(Debug, Deserialize)]
pub(crate) struct ThemeForm {
    theme: String,
    #[serde(default)]
    to: String,
}

pub(crate) async fn theme(State(app): State<App>, Form(form): Form<ThemeForm>) -> Response {
    const YEAR_SECS: u64 = 365 * 24 * 3600;
    let theme = Theme::named(&form.theme).as_str();
    let set = set_cookie(&app, Theme::COOKIE, theme, YEAR_SECS);
    (AppendHeaders([(SET_COOKIE, set)]), Redirect::to(&links::return_to(&app, &form.to)))
        .into_response()
}

fn set_cookie(app: &App, name: &str, value: &str, max_age_secs: u64) -> String {
    let path = if app.base.is_empty() { "/" } else { &app.base };
    let secure = if app.access.https { "; Secure" } else { "" };
    format!(
        "{name}={value}; Path={path}; Max-Age={max_age_secs}; HttpOnly; SameSite=Strict{secure}"
    )
}
