//! Small building blocks of pages.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::attempt::TaskError;
use task_engine_core::display;
use task_engine_core::queue::BoundedCount;
use task_engine_core::queue::REASON_BYTES_MAX;
use task_engine_core::task::{TaskId, TaskRow, TaskStatus};

use crate::app::App;
use crate::json_tree;

/// A status: icon, word and colour.
pub(crate) fn status(status: TaskStatus) -> Markup {
    state(status.as_str(), status.as_str())
}

/// The same for any state; `class`: a class of the style sheet.
pub(crate) fn state(class: &str, label: &str) -> Markup {
    html! { span .state .(class) { (icon(class)) (label) } }
}

/// The status of a task in a list: `blocked` if it waits for other tasks.
pub(crate) fn status_of(row: &TaskRow) -> Markup {
    if row.is_blocked { state("blocked", "blocked") } else { status(row.status) }
}

/// The path of the icon of a state, in a box of 16 by 16.
pub(crate) fn icon_path(class: &str) -> &'static str {
    match class {
        "blocked" => "M4 2h8M4 14h8M5 2c0 5 6 7 6 12M11 2c0 5-6 7-6 12",
        "waiting" => "M8 3.5V8l3 2M8 1.5a6.5 6.5 0 1 1 0 13a6.5 6.5 0 1 1 0-13z",
        "running" => "M4.5 2.5l9 5.5l-9 5.5z",
        "stopped" | "good" => "M2.5 8.5l3.7 3.7l7.3-8",
        "failed" | "bad" => "M3.5 3.5l9 9M12.5 3.5l-9 9",
        "warn" => "M8 2L15 14H1zM8 6.5v3.5M8 11.6v.6",
        _ => "M3.4 12.6l9.2-9.2M8 1.5a6.5 6.5 0 1 1 0 13a6.5 6.5 0 1 1 0-13z",
    }
}

fn icon(class: &str) -> Markup {
    let path = icon_path(class);
    html! {
        svg viewBox="0 0 16 16" aria-hidden="true" fill="none" stroke="currentColor"
            stroke-width="2" stroke-linecap="round" stroke-linejoin="round" { path d=(path) {} }
    }
}

/// A relative time; the exact one is the tooltip.
pub(crate) fn time(app: &App, time: Timestamp, now: Timestamp) -> Markup {
    let exact = exact(app, time);
    html! { time datetime=(time) title=(exact) { (display::relative(time, now)) } }
}

/// A time to the millisecond, in the zone of the dashboard.
pub(crate) fn exact(app: &App, time: Timestamp) -> String {
    time.to_zoned(app.zone.clone()).strftime("%Y-%m-%d %H:%M:%S%.3f %:z").to_string()
}

pub(crate) fn span(time: Duration) -> String {
    display::span(time)
}

pub(crate) fn number(count: BoundedCount) -> String {
    display::count_text(count)
}

pub(crate) fn task_link(app: &App, id: TaskId) -> Markup {
    html! { a href=(app.path(&format!("/tasks/{id}"))) { (id) } }
}

/// An empty list, and the command that would fill it.
pub(crate) fn empty(what: &str, command: &str) -> Markup {
    html! {
        div .empty {
            p { (what) }
            @if !command.is_empty() { pre { (command) } }
        }
    }
}

/// An error with its backtrace.
pub(crate) fn task_error(error: &TaskError) -> Markup {
    html! {
        p .error { strong { (error.exception) } ": " span .message { (error.message) } }
        @if !error.backtrace.is_empty() {
            details {
                summary { "Backtrace " small { "(" (error.backtrace.len()) ")" } }
                pre { @for frame in &error.backtrace { (frame) "\n" } }
            }
        }
    }
}

/// A JSON text as a tree; `/tasks/{id}/{file}` downloads it.
pub(crate) fn json(app: &App, task: TaskId, id: &str, file: &str, text: &str) -> Markup {
    json_tree::show(text, id, &app.path(&format!("/tasks/{task}/{file}")))
}

/// A heading of a table.
pub(crate) enum Heading {
    Text(&'static str),
    /// Of a column of numbers.
    Number(&'static str),
    /// Only for screen readers.
    Hidden(&'static str),
}

/// A table with these rows.
pub(crate) fn table(columns: &[Heading], rows: &Markup) -> Markup {
    html! {
        div .scroll {
            table .stack {
                thead { tr { (headings(columns)) } }
                tbody { (rows) }
            }
        }
    }
}

pub(crate) fn headings(all: &[Heading]) -> Markup {
    html! {
        @for heading in all {
            @match heading {
                Heading::Text(text) => th scope="col" { (text) },
                Heading::Number(text) => th .number scope="col" { (text) },
                Heading::Hidden(text) => th scope="col" { span .visually-hidden { (text) } },
            }
        }
    }
}

/// A button as a form of its own, so that it works without a script. The tooltip
/// is the consequence.
pub(crate) struct Button<'a> {
    /// The path, like `/operations/retry`.
    pub(crate) to: &'a str,
    pub(crate) fields: &'a [(&'a str, &'a str)],
    pub(crate) label: &'a str,
    pub(crate) consequence: &'a str,
    /// `plain`, `danger` or empty.
    pub(crate) class: &'a str,
    /// Its name in the keyboard shortcuts.
    pub(crate) shortcut: Option<&'a str>,
}

impl Button<'_> {
    /// `back` is the page that it returns to.
    pub(crate) fn show(&self, app: &App, back: &str) -> Markup {
        html! {
            form .inline method="post" action=(app.path(self.to)) {
                input type="hidden" name="back" value=(back);
                @for (name, value) in self.fields {
                    input type="hidden" name=(name) value=(value);
                }
                button .(self.class) title=(self.consequence) data-act=[self.shortcut] { (self.label) }
            }
        }
    }
}

/// A change of one thing with its reason, as a form that unfolds.
pub(crate) struct ReasonForm<'a> {
    /// The path, like `/operations/pause-queue`.
    pub(crate) to: &'a str,
    /// The page that it returns to.
    pub(crate) back: &'a str,
    /// What is changed.
    pub(crate) name: &'a str,
    /// Like `Pause`.
    pub(crate) verb: &'a str,
    pub(crate) consequence: &'a str,
    pub(crate) danger: bool,
}

impl ReasonForm<'_> {
    pub(crate) fn show(&self, app: &App) -> Markup {
        html! {
            details .ask {
                summary { (self.verb) }
                form method="post" action=(app.path(self.to)) {
                    input type="hidden" name="back" value=(self.back);
                    input type="hidden" name="name" value=(self.name);
                    (reason_field())
                    p .soft { (self.consequence) }
                    button .danger[self.danger] { (self.verb) " " (self.name) }
                }
            }
        }
    }
}

pub(crate) fn reason_field() -> Markup {
    html! { label { "Reason" input type="text" name="reason" maxlength=(REASON_BYTES_MAX); } }
}
