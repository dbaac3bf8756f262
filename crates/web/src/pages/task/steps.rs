//! The steps of a durable task: a chart, a form for the signal that it waits for, and a
//! table.

mod chart;
mod signal;
mod table;

use maud::{Markup, html};
use task_engine_core::display::{self, StepEntry, StepState, kept_signals, step_timeline};
use task_engine_core::flow::FlowTask;
use task_engine_core::json::Json;
use task_engine_core::step::{SignalRow, TaskSteps};
use task_engine_core::task::TaskStatus;
use task_engine_operations::redaction::RedactedTask;
use task_engine_store::token::Role;

use super::{ApiError, App, Timestamp, Viewer, parts};
use crate::pages::operations::FormFields;

pub(super) use signal::send;
pub(super) use table::rerun;

/// More steps than these are folded, unless all are wanted.
const FIRST_MAX: usize = 10;
const LAST_MAX: usize = 30;

/// The steps of a task.
pub(super) struct ShownSteps {
    entries: Vec<StepEntry>,
    /// Sent before the task waits for them.
    kept: Vec<SignalRow>,
    now: Timestamp,
    all: bool,
}

pub(super) async fn read(
    app: &App,
    task: &RedactedTask,
    fields: &FormFields,
) -> Result<ShownSteps, ApiError> {
    let steps = app.steps(task).await?;
    let all = fields.get("steps") == Some("all");
    Ok(ShownSteps::new(&steps, task.row.status, all))
}

/// The result of one step, or the payload of its signal.
pub(super) async fn result(
    app: &App,
    task: &RedactedTask,
    number: u32,
) -> Result<Option<Json>, ApiError> {
    let steps = app.steps(task).await?;
    let entries = step_timeline(&steps, task.row.status);
    Ok(entries.into_iter().find(|entry| entry.number == number).and_then(|entry| entry.result))
}

impl ShownSteps {
    fn new(steps: &TaskSteps, status: TaskStatus, all: bool) -> Self {
        let kept = kept_signals(steps).cloned().collect();
        Self { entries: step_timeline(steps, status), kept, now: steps.now, all }
    }

    /// The first steps, how many are left out, and the last ones.
    fn shown(&self) -> (&[StepEntry], usize, &[StepEntry]) {
        if self.all || self.entries.len() <= FIRST_MAX + LAST_MAX {
            return (&self.entries, 0, &[]);
        }
        let (first, rest) = self.entries.split_at(FIRST_MAX);
        let (hidden, last) = rest.split_at(rest.len() - LAST_MAX);
        (first, hidden.len(), last)
    }

    /// The step that the task waits for.
    pub(super) fn open(&self) -> Option<&StepEntry> {
        self.entries.iter().rfind(|entry| entry.state.is_open())
    }

    /// A task that waits for children is due in a year at the latest: that is not shown.
    pub(super) fn horizon(&self) -> Timestamp {
        let calls = self.entries.iter().any(|entry| entry.state == StepState::Running);
        if calls { self.now } else { Timestamp::MAX }
    }

    /// The waits for a signal that has not arrived.
    fn waits(&self) -> impl Iterator<Item = &StepEntry> {
        self.entries.iter().filter(|entry| entry.state == StepState::Waiting)
    }
}

pub(super) fn show(
    app: &App,
    viewer: &Viewer,
    task: &RedactedTask,
    steps: &ShownSteps,
    flow: &[FlowTask],
) -> Markup {
    if steps.entries.is_empty() && steps.kept.is_empty() {
        return html! { section #steps data-live {} };
    }
    html! {
        section #steps .card data-live {
            h2 { "Steps" }
            @if viewer.may(Role::Operator) {
                @for wait in steps.waits() { (signal::form(app, task.row.id, wait, steps.now)) }
            }
            @if !steps.entries.is_empty() {
                (chart::show(app, steps))
                (table::show(app, viewer, task, steps, flow))
            }
            @if !steps.kept.is_empty() { (kept(app, steps)) }
        }
    }
}

fn kept(app: &App, steps: &ShownSteps) -> Markup {
    html! {
        h3 { "Signals that are kept" }
        ul .reasons {
            @for signal in &steps.kept {
                li { b .name { (signal.name) } ", sent " (parts::time(app, signal.sent_at, steps.now))
                    ". The task gets it when it waits for it." }
            }
        }
    }
}

/// `2026-11-21 14:00 (in 3 days)`.
fn deadline(app: &App, at: Timestamp, now: Timestamp) -> Markup {
    let clock = at.to_zoned(app.zone.clone()).strftime("%Y-%m-%d %H:%M").to_string();
    html! {
        time datetime=(at) title=(parts::exact(app, at)) { (clock) " (" (display::relative(at, now)) ")" }
    }
}
