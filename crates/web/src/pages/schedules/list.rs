//! All schedules, by name.

use axum::extract::{Query, State};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use task_engine_core::schedule::row::ScheduleRow;
use task_engine_store::token::Role;

use super::{buttons, one, rule, state};
use crate::app::{App, encoded};
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::pages::links;
use crate::parts;
use crate::parts::Heading::{Hidden, Text};

const PER_PAGE: u32 = 100;

#[derive(Debug, Deserialize)]
pub(crate) struct ListQuery {
    /// Only schedules after this name: the next page.
    after: Option<String>,
    /// A schedule whose name cannot be a path segment.
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
    // One more row shows whether there is a next page.
    let mut rows = app.schedules(query.after.as_deref(), PER_PAGE + 1).await?;
    let has_more = rows.len() > PER_PAGE as usize;
    rows.truncate(PER_PAGE as usize);
    let now = app.cache.now().await?.stats.at;
    let main = html! {
        div .row .between .top {
            h1 { "Schedules" }
            @if viewer.may(Role::Admin) {
                a .button href=(app.path("/schedules/new")) { "New schedule" }
            }
        }
        section .card #schedules data-live {
            @if rows.is_empty() && query.after.is_none() {
                (parts::empty(
                    "There are no schedules. Add one, which creates a task at each of its times:",
                    "task-engine schedules add tidy WaitingTask '{\"waiting_time\": 1}' --every 15m",
                ))
            } @else {
                (table(&app, &viewer, &rows, now))
            }
        }
        div .row {
            @if query.after.is_some() { a href=(app.path("/schedules")) { "First" } }
            @if let Some(last) = rows.last().filter(|_| has_more) {
                a href=(app.path(&format!("/schedules?after={}", encoded(&last.name)))) rel="next" { "Next" }
            }
        }
    };
    Ok(layout::page(&app, &viewer, "Schedules", "/schedules", main).await)
}

fn table(app: &App, viewer: &Viewer, rows: &[ScheduleRow], now: Timestamp) -> Markup {
    html! {
        (parts::table(&[
            Text("Schedule"), Text("When"), Text("Class"), Text("Next"), Text("Last"),
            Text("State"), Hidden("Actions"),
        ], &html! { @for row in rows { (line(app, viewer, row, now)) } }))
    }
}

fn line(app: &App, viewer: &Viewer, row: &ScheduleRow, now: Timestamp) -> Markup {
    let definition = row.definition().ok();
    html! {
        tr data-key=(row.name) {
            td { a href=(links::schedule(app, &row.name)) { (row.name) } }
            @match &definition {
                Some(definition) => {
                    td { (when(&definition.rule, &definition.time_zone)) }
                    td data-label="class" { (definition.class) }
                }
                None => { td { "–" } td { "–" } }
            }
            td data-label="next" {
                @match row.state.next_at { Some(at) => (parts::time(app, at, now)), None => "–" }
            }
            td data-label="last" {
                @match row.last_slot { Some(at) => (parts::time(app, at, now)), None => "never" }
                @if let Some(task) = row.last_task { small .under { "task " (parts::task_link(app, task)) } }
            }
            td { (state(app, row, now)) }
            td .actions {
                @if viewer.may(Role::Operator) {
                    @if row.state.paused.is_some() || row.state.error.is_some() {
                        (buttons::resume_button(app, viewer, &row.name))
                    }
                    (buttons::run_button(app, viewer, &row.name))
                }
            }
        }
    }
}

/// A description if there is a simple one, with the expression.
pub(super) fn when(rule: &str, zone: &str) -> Markup {
    let is_interval = rule.trim_start_matches('@').starts_with("every");
    html! {
        @match rule::describe(rule) {
            Some(text) => {
                (text)
                @if !is_interval { small .under { code { (rule) } " " (zone) } }
            }
            None => { code { (rule) } small .under { (zone) } }
        }
    }
}
