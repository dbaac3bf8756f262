//! The audit, newest first.

use std::collections::HashSet;

use axum::extract::State;
use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::json::Json;
use task_engine_core::parse::past_time;
use task_engine_core::task::TaskId;
use task_engine_store::audit::{AuditEntry, AuditFilter, AuditOutcome};

use super::operations::FormFields;
use crate::app::{App, encoded};
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::parts;
use crate::parts::Heading::Text;

const PER_PAGE: u32 = 100;

/// The fields of the form: name, label, hint.
const FIELDS: [(&str, &str, &str); 5] = [
    ("actor", "Actor", "a part of the name"),
    ("action", "Action", "tasks.retry, or tasks for all of them"),
    ("task", "Task", "its id"),
    ("since", "From", "2h (ago), 03:00, 2026-12-24 18:00"),
    ("until", "Until", "the same"),
];

pub(crate) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    fields: FormFields,
) -> Result<Markup, ApiError> {
    let now = app.cache.now().await?.stats.at;
    let filter = filter(&app, &fields, now)?;
    let entries = app.store.audit_page(&filter).await?;
    let older = entries.last().filter(|_| entries.len() >= PER_PAGE as usize).map(|last| last.id);
    let main = html! {
        div .row .between .top {
            h1 { "Audit" }
            a href=(app.path("/tokens")) { "Tokens" }
        }
        (form(&app, &fields, &filter))
        section .card #audit data-live {
            @if !entries.is_empty() {
                (table(&app, &entries, now))
            } @else if filter.is_narrow() {
                (parts::empty("No entries match.", ""))
            } @else {
                (parts::empty(
                    "No operator has changed anything yet. Changes by pages, HTTP API and commands are recorded here; on a terminal:",
                    "task-engine audit",
                ))
            }
        }
        div .row {
            @if filter.before.is_some() { a href=(address(&app, &fields, None)) { "Newest" } }
            @if older.is_some() { a href=(address(&app, &fields, older)) rel="next" { "Older" } }
        }
    };
    Ok(layout::page(&app, &viewer, "Audit", "/audit", main).await)
}

fn filter(app: &App, fields: &FormFields, now: Timestamp) -> Result<AuditFilter, ApiError> {
    let zoned = now.to_zoned(app.zone.clone());
    let time = |name| {
        let read = |text| past_time(text, &zoned).map_err(|why| ApiError::parameter(name, why));
        fields.get(name).map(read).transpose()
    };
    let number = |name| {
        let wrong = |_| ApiError::parameter(name, format!("{name} is a whole number."));
        fields.get(name).map(|text| text.parse::<i64>().map_err(wrong)).transpose()
    };
    Ok(AuditFilter {
        before: number("before")?,
        limit: PER_PAGE,
        actor: fields.get("actor").map(str::to_owned),
        action: fields.get("action").map(str::to_owned),
        since: time("since")?,
        until: time("until")?,
        task: number("task")?.map(TaskId),
    })
}

fn form(app: &App, fields: &FormFields, filter: &AuditFilter) -> Markup {
    html! {
        form .card .narrow method="get" action=(app.path("/audit")) {
            div .fields {
                @for (name, label, hint) in FIELDS {
                    label {
                        (label)
                        input type="text" name=(name) value=(fields.get(name).unwrap_or_default())
                              placeholder=(hint) autocomplete="off" spellcheck="false";
                    }
                }
            }
            div .row {
                button .plain { "Filter" }
                @if filter.is_narrow() { a href=(app.path("/audit")) { "Show all" } }
            }
        }
    }
}

/// The address of this page with the same filter.
fn address(app: &App, fields: &FormFields, before: Option<i64>) -> String {
    let given = FIELDS.iter().filter_map(|(name, ..)| Some((*name, fields.get(name)?)));
    let mut pairs: Vec<_> = given.map(|(name, text)| format!("{name}={}", encoded(text))).collect();
    pairs.extend(before.map(|id| format!("before={id}")));
    let joint = if pairs.is_empty() { "" } else { "?" };
    app.path(&format!("/audit{joint}{}", pairs.join("&")))
}

fn table(app: &App, entries: &[AuditEntry], now: Timestamp) -> Markup {
    // An action has two entries, before and after; they are shown as one line.
    let answered: HashSet<i64> = entries.iter().filter_map(|entry| entry.of).collect();
    html! {
        (parts::table(&[
            Text("Time"), Text("Actor"), Text("Action"), Text("Target"), Text("Outcome"),
            Text("Reason"),
        ], &html! {
            @for entry in entries.iter().filter(|entry| !answered.contains(&entry.id)) {
                tr data-key=(entry.id) {
                    td .nowrap { (parts::time(app, entry.at, now)) }
                    td data-label="by" { (entry.actor) }
                    td { code { (entry.action) } }
                    td .target { (entry.target) }
                    td { (outcome(entry)) }
                    td data-label="reason" { (entry.reason.as_deref().unwrap_or("–")) }
                }
            }
        }))
    }
}

fn outcome(entry: &AuditEntry) -> Markup {
    let class = match entry.outcome {
        AuditOutcome::Started => "off",
        AuditOutcome::Done => "good",
        AuditOutcome::Refused => "warn",
        AuditOutcome::Failed => "bad",
    };
    html! {
        (parts::state(class, entry.outcome.as_str()))
        @if entry.outcome == AuditOutcome::Started {
            small .under { "the outcome is an entry of its own" }
        } @else {
            small .under { (task_engine_operations::report::audit_sentence(entry)) }
        }
        @if entry.detail != Json::empty_object() {
            details .fine { summary { "Detail" } pre { (entry.detail.as_str()) } }
        }
    }
}
