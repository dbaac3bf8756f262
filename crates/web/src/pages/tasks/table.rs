//! The table of tasks: in lists, previews and error groups.

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::display::brief;
use task_engine_core::filter::FoundTask;
use task_engine_core::task::{TaskRow, TaskStatus};

use crate::app::App;
use crate::parts;
use crate::parts::Heading::{Number, Text};

/// Characters of an error in a row.
const ERROR_CHARS_MAX: usize = 90;

/// A table of tasks; `choose`: with checkboxes.
pub(crate) fn table(app: &App, tasks: &[FoundTask], now: Timestamp, choose: bool) -> Markup {
    html! {
        div .scroll {
            table .stack .tasks {
                thead {
                    tr {
                        @if choose {
                            th scope="col" {
                                input type="checkbox" hidden data-select-all
                                      aria-label="Select all on this page";
                            }
                        }
                        (parts::headings(&[
                            Number("Task"), Text("Status"), Text("Class"), Text("Queue"),
                            Number("Priority"), Text("Created"), Text("Scheduled or changed"),
                            Number("Attempts"), Text("Error or engine"),
                        ]))
                    }
                }
                tbody { @for task in tasks { (row(app, &task.row, now, choose)) } }
            }
        }
    }
}

fn row(app: &App, row: &TaskRow, now: Timestamp, choose: bool) -> Markup {
    html! {
        tr data-key=(row.id) {
            @if choose {
                td { input type="checkbox" name="ids" value=(row.id) aria-label={ "Select task " (row.id) }; }
            }
            td .number { (parts::task_link(app, row.id)) }
            td { (parts::status_of(row)) }
            td .name title=(row.class) { (row.class) }
            td .queue data-label="queue" title=(row.queue) { (row.queue) }
            td .number data-label="priority" { (row.priority) }
            td .nowrap data-label="created" { (parts::time(app, row.created_at, now)) }
            td .nowrap { (when(app, row, now)) }
            td .number data-label="attempts" { (row.attempts) }
            td .cut { (last(row)) }
        }
    }
}

fn when(app: &App, row: &TaskRow, now: Timestamp) -> Markup {
    match row.status {
        TaskStatus::Waiting if row.is_blocked && row.scheduled_at <= now => {
            html! { "after other tasks" }
        }
        TaskStatus::Waiting => html! { "due " (parts::time(app, row.scheduled_at, now)) },
        _ => parts::time(app, row.updated_at, now),
    }
}

/// The error, or the engine.
fn last(row: &TaskRow) -> Markup {
    match (&row.error, &row.instance) {
        (Some(error), _) => {
            let text = error.to_string();
            html! { span title=(brief(&text, 500)) { (brief(&text, ERROR_CHARS_MAX)) } }
        }
        (None, Some(instance)) => html! { span .soft { (instance) } },
        (None, None) => html! {},
    }
}
