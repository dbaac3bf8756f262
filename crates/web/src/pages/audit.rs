//! What operators did, newest first.

use std::collections::HashSet;

use axum::extract::{Query, State};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use task_engine_model::Json;
use task_engine_model::audit::{AuditEntry, AuditOutcome};

use crate::action::words_of;
use crate::app::App;
use crate::layout::{self, Viewer};
use crate::parts;
use crate::problem::Problem;

const PER_PAGE: u32 = 100;

#[derive(Debug, Deserialize)]
pub(crate) struct Place {
    before: Option<i64>,
}

pub(crate) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Query(place): Query<Place>,
) -> Result<Markup, Problem> {
    let entries = app.store.audit_page(place.before, PER_PAGE).await?;
    let now = app.glance.now().await?.figures.at;
    let older = entries.last().filter(|_| entries.len() >= PER_PAGE as usize).map(|last| last.id);
    let main = html! {
        div .row .between .top {
            h1 { "Audit" }
            a href=(app.path("/tokens")) { "Tokens" }
        }
        section .card #audit data-live {
            @if entries.is_empty() {
                (parts::empty(
                    "Nobody has changed anything yet. What is done here or by the HTTP API is written down; on a terminal:",
                    "task-engine audit",
                ))
            } @else {
                (table(&app, &entries, now))
            }
        }
        div .row {
            @if place.before.is_some() { a href=(app.path("/audit")) { "Newest" } }
            @if let Some(older) = older {
                a href=(app.path(&format!("/audit?before={older}"))) rel="next" { "Older" }
            }
        }
    };
    Ok(layout::page(&app, &viewer, "Audit", "/audit", main).await)
}

fn table(app: &App, entries: &[AuditEntry], now: Timestamp) -> Markup {
    // An action has two entries, before and after. Both at once are one line.
    let told: HashSet<i64> = entries.iter().filter_map(|entry| entry.of).collect();
    html! {
        div .scroll {
            table .stack {
                thead { tr {
                    th scope="col" { "When" }
                    th scope="col" { "Who" }
                    th scope="col" { "What" }
                    th scope="col" { "To what" }
                    th scope="col" { "Outcome" }
                    th scope="col" { "Why" }
                } }
                tbody {
                    @for entry in entries.iter().filter(|entry| !told.contains(&entry.id)) {
                        tr data-key=(entry.id) {
                            td .nowrap { (parts::time(app, entry.at, now)) }
                            td data-label="by" { (entry.actor) }
                            td { code { (entry.action) } }
                            td .target { (entry.target) }
                            td { (outcome(entry)) }
                            td data-label="why" { (entry.reason.as_deref().unwrap_or("–")) }
                        }
                    }
                }
            }
        }
    }
}

fn outcome(entry: &AuditEntry) -> Markup {
    let class = match entry.outcome {
        AuditOutcome::Asked => "off",
        AuditOutcome::Done => "good",
        AuditOutcome::Refused => "warn",
        AuditOutcome::Failed => "bad",
    };
    html! {
        (parts::state(class, entry.outcome.as_str()))
        @if entry.outcome == AuditOutcome::Asked {
            small .under { "how it ended is an entry of its own, if it did" }
        } @else {
            small .under { (words_of(entry)) }
        }
        @if entry.detail != Json::empty_object() {
            details .fine { summary { "Detail" } pre { (entry.detail.as_str()) } }
        }
    }
}
