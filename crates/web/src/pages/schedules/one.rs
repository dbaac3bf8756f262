//! The page of a schedule.

use axum::extract::{Path, State};
use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::schedule::history::{HistoryLine, ScheduleDetails};
use task_engine_core::schedule::row::{FIRED_SLOTS_KEPT, ScheduleRow};
use task_engine_core::schedule::{Missed, Overlap, ScheduleDefinition};
use task_engine_core::secret::Secrets;
use task_engine_store::schedules::{ScheduleError, Schedules};

use super::{buttons, list, parameters, preview, state};
use crate::app::App;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::parts;
use crate::parts::Heading::Text;

pub(crate) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Result<Markup, ApiError> {
    show(&app, &viewer, &name).await
}

pub(super) async fn show(app: &App, viewer: &Viewer, name: &str) -> Result<Markup, ApiError> {
    let mut details = read(app, name).await?;
    Secrets::of(&app.cache.now().await?.engines).schedule(&mut details.row);
    let lines = details.history();
    let ScheduleDetails { row, now, .. } = details;
    let definition = row.definition().ok();
    let main = html! {
        div .row .between .top {
            h1 { "Schedule " (row.name) }
            a href=(app.path("/schedules")) { "All schedules" }
        }
        div .grid {
            section .card #schedule data-live {
                h2 { "Definition" }
                (facts(app, &row, definition.as_ref(), now))
                (buttons::all(app, viewer, &row))
            }
            section .card #next data-live {
                h2 { "Next slots" }
                (next(app, &row, definition.as_ref(), now))
            }
        }
        section .card #fired data-live {
            h2 { "History" }
            (history(app, &lines, now))
        }
    };
    Ok(layout::page(app, viewer, name, "/schedules", main).await)
}

async fn read(app: &App, name: &str) -> Result<ScheduleDetails, ApiError> {
    let found = Schedules::of(&*app.store).show(name, FIRED_SLOTS_KEPT).await;
    found.map_err(|error| match error {
        ScheduleError::Store(error) => error.into(),
        error => ApiError::not_found(format!("{error}. It may have been removed.")),
    })
}

fn facts(
    app: &App,
    row: &ScheduleRow,
    definition: Option<&ScheduleDefinition>,
    now: Timestamp,
) -> Markup {
    html! {
        dl .facts {
            dt { "State" } dd { (state(app, row, now)) }
            @if let Some(definition) = definition {
                dt { "When" } dd { (list::when(&definition.rule, &definition.time_zone)) }
                dt { "Class" } dd { (definition.class) }
                dt { "Parameters" } dd { pre { (parameters(&definition.parameters)) } }
                dt { "Queue" } dd { (definition.queue) }
                dt { "Priority" } dd { (definition.priority) }
                dt { "Missed slots" } dd { (missed_text(definition.missed)) }
                dt { "Overlap" } dd { (overlap_text(definition.overlap)) }
                @if !definition.jitter.is_zero() {
                    dt { "Jitter" } dd { "up to " (parts::span(definition.jitter)) " after the slot" }
                }
            }
            dt { "Next" }
            dd { @match row.state.next_at { Some(at) => (parts::time(app, at, now)), None => "–" } }
            dt { "Declared by" }
            dd { @if row.state.declared.is_some() { "an application's code" } @else { "an operator" } }
            dt { "Created" } dd { (parts::time(app, row.created_at, now)) }
            dt { "Changed" } dd { (parts::time(app, row.updated_at, now)) }
        }
    }
}

pub(super) fn missed_text(missed: Missed) -> String {
    match missed {
        Missed::Skip => "slots missed while no engine ran are skipped".to_owned(),
        Missed::Last => "the last slot missed while no engine ran is caught up".to_owned(),
        Missed::All(number) => {
            format!("up to {number} slots missed while no engine ran are caught up")
        }
    }
}

pub(super) fn overlap_text(overlap: Overlap) -> &'static str {
    match overlap {
        Overlap::Allow => "fires even if the previous task has not ended",
        Overlap::Skip => "skips slots while the previous task has not ended",
        Overlap::Wait => "waits until the previous task has ended",
    }
}

fn next(
    app: &App,
    row: &ScheduleRow,
    definition: Option<&ScheduleDefinition>,
    now: Timestamp,
) -> Markup {
    let Some(definition) = definition else {
        return html! { p { "The definition was written by another version of Task Engine." } };
    };
    html! {
        @if row.state.paused.is_some() {
            p .field-error { "The schedule is paused: it does not fire until it is resumed." }
        }
        @match definition.timetable(row.state.anchor) {
            Ok(timetable) => (preview::times(app, "", &timetable, now)),
            Err(error) => p .field-error { (error) },
        }
    }
}

fn history(app: &App, lines: &[HistoryLine], now: Timestamp) -> Markup {
    html! {
        @if lines.is_empty() { p .soft { "Nothing yet." } }
        @else {
            (parts::table(&[
                Text("Time"), Text("Event"), Text("Task"), Text("Details"),
                Text("Exact time"),
            ], &html! {
                @for line in lines {
                    tr data-key={ (line.what) " " (line.at) } {
                        td { (parts::time(app, line.at, now)) }
                        td data-label="event" { (line.what) }
                        td data-label="task" {
                            @if let Some(id) = line.task_id { (parts::task_link(app, id)) }
                        }
                        td data-label="details" { (line.detail) }
                        td .soft {
                            (parts::exact(app, line.at))
                            @if let Some(until) = line.until { " – " (parts::exact(app, until)) }
                        }
                    }
                }
            }))
        }
    }
}
