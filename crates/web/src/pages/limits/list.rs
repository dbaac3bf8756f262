//! All limits, by name.

use axum::extract::{Query, State};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use task_engine_core::display::{limit_target_text, rate_text};
use task_engine_operations::limits::LimitSummary;
use task_engine_store::token::Role;

use super::{form, one, set_by};
use crate::app::App;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::pages::links;
use crate::parts;
use crate::parts::Heading::{Number, Text};

/// Limits per page: the page is reloaded at every change.
const ROWS_MAX: usize = 200;

#[derive(Debug, Deserialize)]
pub(crate) struct ListQuery {
    /// A limit whose name cannot be a path segment.
    show: Option<String>,
}

pub(crate) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Query(query): Query<ListQuery>,
) -> Result<Markup, ApiError> {
    if let Some(name) = query.show {
        return one::show(&app, &viewer, &name).await;
    }
    let list = app.cache.limits().await?;
    let main = html! {
        h1 { "Limits" }
        section .card #limits data-live {
            @if list.limits.is_empty() {
                (parts::empty(
                    "There are no limits. Engines declare those of their classes and queues; or set one:",
                    "task-engine limits set sync --class sync --max 2 --key customer_id",
                ))
            } @else {
                (table(&app, &list.limits, list.at))
            }
            @if list.and_more {
                p .soft .last { "There are more keys in use than were counted: the numbers are lower bounds." }
            }
        }
        @if viewer.may(Role::Operator) { (form::new_limit(&app, &viewer)) }
    };
    Ok(layout::page(&app, &viewer, "Limits", "/limits", main).await)
}

fn table(app: &App, limits: &[LimitSummary], now: Timestamp) -> Markup {
    html! {
        (parts::table(&[
            Text("Limit"), Text("Applies to"), Text("Key"), Number("Max"), Text("Rate"),
            Number("Running"), Number("Blocked"), Number("Closed keys"), Text("Set by"),
        ], &html! { @for limit in limits.iter().take(ROWS_MAX) { (row(app, limit, now)) } }))
        @if limits.len() > ROWS_MAX {
            p .soft .last { "These are " (ROWS_MAX) " of " (limits.len()) " limits. "
                code { "task-engine limits" } " lists all." }
        }
    }
}

fn row(app: &App, limit: &LimitSummary, now: Timestamp) -> Markup {
    let definition = &limit.row.limit;
    let options = &definition.options;
    html! {
        tr data-key=(definition.name) {
            td { a href=(links::limit(app, &definition.name)) { (definition.name) } }
            td { (limit_target_text(&definition.target)) }
            td data-label="key" { (options.key.as_deref().unwrap_or("–")) }
            td .number data-label="max" {
                @match options.max_running() {
                    Some(max) => (max),
                    None => "–",
                }
                @if options.in_order { small .under { "in order" } }
            }
            td data-label="rate" {
                @match &options.rate {
                    Some(rate) => { (rate_text(rate)) @if rate.even { small .under { "spread evenly" } } }
                    None => "–",
                }
            }
            // A rate counts starts only.
            td .number data-label="running" {
                @if options.max_running().is_some() { (limit.running) } @else { "–" }
            }
            td .number data-label="blocked" {
                (parts::number(limit.blocked))
                @if let Some(since) = limit.blocked_since { small .under { (parts::time(app, since, now)) } }
            }
            td .number data-label="closed keys" {
                @if limit.closed_keys > 0 { (parts::state("warn", &limit.closed_keys.to_string())) }
                @else { "0" }
            }
            td data-label="set by" { (set_by(&limit.row)) }
        }
    }
}
