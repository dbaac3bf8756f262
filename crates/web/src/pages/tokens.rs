//! API tokens.

use axum::extract::State;
use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_store::token::TokenRow;

use crate::app::App;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::parts::Heading::{Hidden, Text};
use crate::parts::{self, ReasonForm};

/// Tokens are created on the command line, so that no page shows a secret.
const CREATE_COMMAND: &str = "task-engine tokens create NAME --role viewer";

pub(crate) async fn page(State(app): State<App>, viewer: Viewer) -> Result<Markup, ApiError> {
    let tokens = app.store.tokens().await?;
    let now = app.cache.now().await?.stats.at;
    let main = html! {
        div .row .between .top {
            h1 { "Tokens" }
            a href=(app.path("/audit")) { "Audit" }
        }
        section .card {
            @if tokens.is_empty() {
                (parts::empty("There are no tokens. Create one for a program or a user:", CREATE_COMMAND))
            } @else {
                (table(&app, &viewer, &tokens, now))
                p .soft .last { "Create a token on the command line, which shows it once: " code { (CREATE_COMMAND) } }
            }
        }
    };
    Ok(layout::page(&app, &viewer, "Tokens", "/audit", main).await)
}

fn table(app: &App, viewer: &Viewer, tokens: &[TokenRow], now: Timestamp) -> Markup {
    html! {
        (parts::table(&[
            Text("Name"), Text("Role"), Text("State"), Text("Created"), Text("Expires"),
            Text("Last used"), Hidden("Actions"),
        ], &html! {
            @for token in tokens {
                tr data-key=(token.id) {
                    td { (token.name) }
                    td data-label="role" { (token.role) }
                    td { (state(token, now)) }
                    td data-label="created" { (parts::time(app, token.created_at, now)) }
                    td data-label="expires" {
                        @match token.expires_at { Some(at) => (parts::time(app, at, now)), None => "never" }
                    }
                    td data-label="last used" {
                        @match token.last_used_at { Some(at) => (parts::time(app, at, now)), None => "never" }
                    }
                    td .actions { @if token.revoked_at.is_none() { (revoke(viewer, token).show(app)) } }
                }
            }
        }))
    }
}

fn state(token: &TokenRow, now: Timestamp) -> Markup {
    match (token.revoked_at, token.expires_at) {
        (Some(_), _) => parts::state("off", "revoked"),
        (None, Some(at)) if at <= now => parts::state("off", "expired"),
        _ => parts::state("good", "valid"),
    }
}

fn revoke<'a>(viewer: &'a Viewer, token: &'a TokenRow) -> ReasonForm<'a> {
    ReasonForm {
        to: "/operations/revoke-token",
        back: &viewer.here,
        name: &token.name,
        verb: "Revoke",
        consequence: "Programs and sessions with this token lose access at once. This cannot be undone.",
        danger: true,
    }
}
