//! Who comes in, who leaves, and how pages look to them.

use axum::Form;
use axum::extract::{Query, State};
use axum::http::header::SET_COOKIE;
use axum::http::request::Parts;
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use task_engine_core::json::Json;
use task_engine_store::audit::{AuditOutcome, NewAuditEntry};
use task_engine_store::token::{Role, Secret};

use crate::app::App;
use crate::guard::{self, COOKIE, Shown};
use crate::layout;
use crate::problem::Problem;
use crate::session::{self, MAX_AGE_SECS, Session};

#[derive(Debug, Deserialize)]
pub(crate) struct To {
    #[serde(default)]
    to: String,
}

pub(crate) async fn page(State(app): State<App>, shown: Shown, Query(to): Query<To>) -> Markup {
    form(&app, shown, &to.to, None)
}

fn form(app: &App, shown: Shown, to: &str, wrong: Option<&str>) -> Markup {
    html! {
        (layout::head(app, "Log in", shown))
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
                    p .soft { "A token comes from " code { "task-engine tokens create NAME --role viewer" } "." }
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
    shown: Shown,
    parts: Parts,
    Form(login): Form<Login>,
) -> Result<Response, Problem> {
    let from = guard::address(&parts);
    let secret = login.secret.trim();
    // A token that is right is nobody's guess. Nor does it excuse wrong
    // passwords: else who has one could try as many as they like.
    if let Some(actor) = guard::by_token(&app, secret).await? {
        let hash = secret.parse::<Secret>().map(|secret| session::to_hex(&secret.hash())).ok();
        return begin(&app, Session::new(actor.name, actor.role, hash), &login.to).await;
    }
    if app.attempts.too_many(from) {
        return Err(Problem::too_many("Too many wrong passwords; wait for a minute."));
    }
    let right = app.access.password.as_ref().is_some_and(|it| session::same(it, secret));
    if !right {
        if app.attempts.failed(from) {
            note_attack(&app, &from.to_string()).await;
        }
        let wrong = "This is not the password, and not a token that is valid.";
        let page = form(&app, shown, &login.to, Some(wrong));
        return Ok((axum::http::StatusCode::UNAUTHORIZED, page).into_response());
    }
    app.attempts.succeeded(from);
    begin(&app, Session::new("admin".to_owned(), Role::Admin, None), &login.to).await
}

async fn begin(app: &App, session: Session, to: &str) -> Result<Response, Problem> {
    let cookie = session.cookie(app.keys.get(&*app.store).await?).unwrap_or_default();
    let set = set_cookie(app, COOKIE, &cookie, MAX_AGE_SECS);
    Ok((AppendHeaders([(SET_COOKIE, set)]), Redirect::to(&back(app, to))).into_response())
}

/// That somebody tries is on record; each single try is not, or there would be
/// no end of it.
async fn note_attack(app: &App, from: &str) {
    let entry = NewAuditEntry::asked("nobody", "login", from, None, Json::empty_object());
    if let Ok(entry) = entry
        && let Ok(id) = app.store.audit(&entry).await
    {
        let refused = entry.ended(id, AuditOutcome::Refused, Json::empty_object());
        let _ = app.store.audit(&refused).await;
    }
    tracing::warn!(from, "too many wrong passwords or tokens");
}

/// The browser forgets the cookie, and no server takes it any more.
pub(crate) async fn log_out(State(app): State<App>, parts: Parts) -> Response {
    let forget = AppendHeaders([(SET_COOKIE, set_cookie(&app, COOKIE, "", 0))]);
    match end_session(&app, &parts).await {
        Ok(()) => (forget, Redirect::to(&app.path("/"))).into_response(),
        Err(problem) => {
            let detail = "This browser has forgotten the session, but it could not be ended: who has a copy of the cookie can use it until it expires, 12 hours after the login.";
            (forget, Problem { detail: detail.to_owned(), ..problem }).into_response()
        }
    }
}

async fn end_session(app: &App, parts: &Parts) -> Result<(), Problem> {
    let Some(session) = guard::session_of(app, &parts.headers).await? else { return Ok(()) };
    let Some(id) = session.id() else { return Ok(()) };
    app.store.end_login(id, session.rest()).await?;
    Ok(())
}

#[derive(Debug, Deserialize)]
pub(crate) struct Theme {
    theme: String,
    #[serde(default)]
    to: String,
}

pub(crate) async fn theme(State(app): State<App>, Form(asked): Form<Theme>) -> Response {
    const YEAR_SECS: u64 = 365 * 24 * 3600;
    let theme = Shown::named(&asked.theme).as_str();
    let set = set_cookie(&app, Shown::COOKIE, theme, YEAR_SECS);
    (AppendHeaders([(SET_COOKIE, set)]), Redirect::to(&back(&app, &asked.to))).into_response()
}

fn set_cookie(app: &App, name: &str, value: &str, max_age_secs: u64) -> String {
    let path = if app.base.is_empty() { "/" } else { &app.base };
    let secure = if app.access.https { "; Secure" } else { "" };
    format!(
        "{name}={value}; Path={path}; Max-Age={max_age_secs}; HttpOnly; SameSite=Strict{secure}"
    )
}

/// Only to pages of this server, wherever somebody wants it to lead.
pub(crate) fn back(app: &App, to: &str) -> String {
    let own = to.starts_with('/')
        && !to.starts_with("//")
        && !to.contains(['\\', '\r', '\n'])
        && !to.chars().any(char::is_control);
    app.path(if own { to } else { "/" })
}
