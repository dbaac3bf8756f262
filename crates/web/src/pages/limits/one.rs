//! The page of a limit.

use axum::extract::{Path, State};
use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::display::{limit_options_text, limit_target_text};
use task_engine_core::limit::LimitTarget;
use task_engine_operations::limits::{self, KeySummary, LimitDetails, LimitHolder};
use task_engine_store::token::Role;

use super::{form, set_by};
use crate::app::App;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::pages::links;
use crate::parts;
use crate::parts::Heading::{Hidden, Number, Text};

/// Keys per page: the page is reloaded at every change.
const KEYS_MAX: usize = 100;
/// So many holders of a key are shown at once.
const HOLDERS_SHOWN: usize = 5;

pub(crate) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Result<Markup, ApiError> {
    show(&app, &viewer, &name).await
}

pub(super) async fn show(app: &App, viewer: &Viewer, name: &str) -> Result<Markup, ApiError> {
    let details = limits::show(&*app.store, name).await?;
    let main = html! {
        div .row .between .top {
            h1 { "Limit " (name) }
            a href=(app.path("/limits")) { "All limits" }
        }
        section .card #limit data-live {
            h2 { "Definition" }
            (facts(app, &details))
        }
        section .card #limit-keys data-live {
            h2 { "Keys in use" }
            (keys(app, viewer, &details))
        }
        @if viewer.may(Role::Operator) {
            section .card {
                h2 { "Operations" }
                div .row .actions { (form::change(app, viewer, &details.summary.row)) }
            }
        }
    };
    Ok(layout::page(app, viewer, &format!("Limit {name}"), "/limits", main).await)
}

fn facts(app: &App, details: &LimitDetails) -> Markup {
    let (limit, now) = (&details.summary, details.at);
    let definition = &limit.row.limit;
    let options = &definition.options;
    let tasks = match &definition.target {
        LimitTarget::Class(class) => Some(links::tasks(app, &[("class", class)])),
        LimitTarget::Queue(queue) => Some(links::tasks(app, &[("queue", queue)])),
        LimitTarget::Named => None,
    };
    html! {
        dl .facts {
            dt { "Allows" } dd { (limit_options_text(options)) }
            dt { "Applies to" }
            dd {
                @match tasks {
                    Some(tasks) => a href=(tasks) { (limit_target_text(&definition.target)) },
                    None => (limit_target_text(&definition.target)),
                }
            }
            @if !options.weights.is_empty() {
                dt { "Weights" }
                dd { @for (key, weight) in options.weights.iter().take(KEYS_MAX) { span .item { (key) ": " (weight) } } }
            }
            dt { "Set by" } dd { (set_by(&limit.row)) }
            @if let Some(declared) = limit.row.declared.as_ref().filter(|it| *it != options) {
                dt { "Declared" } dd { (limit_options_text(declared)) }
            }
            dt { "Changed" } dd { (parts::time(app, limit.row.changed_at, now)) }
            @if options.max_running().is_some() { dt { "Running" } dd { (limit.running) } }
            dt { "Blocked" }
            dd {
                (parts::number(limit.blocked))
                @if let Some(since) = limit.blocked_since { ", the first due " (parts::time(app, since, now)) }
            }
            @if limit.closed_keys > 0 { dt { "Closed keys" } dd { (parts::state("warn", &limit.closed_keys.to_string())) } }
        }
    }
}

fn keys(app: &App, viewer: &Viewer, details: &LimitDetails) -> Markup {
    if details.keys.is_empty() {
        return html! { p .soft { "No key is in use: no task of this limit runs or is due." } };
    }
    let name = &details.summary.row.limit.name;
    html! {
        (parts::table(&[
            Text("Key"), Number("Running"), Text("Held by"), Number("Blocked"),
            Text("Oldest blocked"), Text("Next start"), Hidden("Actions"),
        ], &html! {
            @for key in details.keys.iter().take(KEYS_MAX) {
                (row(app, viewer, name, key, details.at))
            }
        }))
        @if details.keys.len() > KEYS_MAX || details.and_more {
            p .soft .last {
                "These are the keys with the most blocked tasks. "
                code { "task-engine limits show " (name) " --json" } " lists more."
            }
        }
    }
}

fn row(app: &App, viewer: &Viewer, name: &str, key: &KeySummary, now: Timestamp) -> Markup {
    html! {
        tr data-key=(key.key) {
            td {
                @if key.key.is_empty() { span .soft { "(none)" } } @else { (key.key) }
                @if key.weight > 1 { small .under { "weight " (key.weight) } }
            }
            td .number data-label="running" { (key.running) }
            td data-label="held by" { (holders(app, &key.holders, key.running, now)) }
            td .number data-label="blocked" { (parts::number(key.blocked)) }
            td data-label="oldest blocked" {
                @match key.blocked_since { Some(since) => (parts::time(app, since, now)), None => "–" }
            }
            td data-label="next start" { (next_start(app, key, now)) }
            td .actions {
                @if key.closed.is_some() && viewer.may(Role::Operator) {
                    (form::open_button(app, viewer, name, &key.key))
                }
            }
        }
    }
}

fn next_start(app: &App, key: &KeySummary, now: Timestamp) -> Markup {
    html! {
        @if let Some(closed) = &key.closed {
            (parts::state("warn", "closed"))
            " " small { "opens " (parts::time(app, closed.until, now)) }
            div { (closed.because) }
        } @else if let Some(at) = key.next_start_at {
            (parts::time(app, at, now))
        } @else if let Some(wait) = key.waits_for {
            (wait.text())
        } @else {
            "now"
        }
    }
}

fn holders(app: &App, holders: &[LimitHolder], running: usize, now: Timestamp) -> Markup {
    html! {
        @if holders.is_empty() { span .soft { "–" } }
        @for holder in holders.iter().take(HOLDERS_SHOWN) {
            span .item {
                "task " (parts::task_link(app, holder.task_id))
                @if !holder.is_running { " waits" }
                @else if let Some(since) = holder.since {
                    " " small title=[holder.instance.as_deref()] { "started " (parts::time(app, since, now)) }
                }
            }
        }
        @if running.max(holders.len()) > HOLDERS_SHOWN {
            span .item .soft { "and " (running.max(holders.len()) - HOLDERS_SHOWN) " more" }
        }
    }
}
