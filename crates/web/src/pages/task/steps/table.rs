//! The steps of a task as a table.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use task_engine_core::display::{StepEntry, StepState, count};
use task_engine_core::flow::FlowTask;
use task_engine_core::json::Json;
use task_engine_core::step::StepKind;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_operations::redaction::RedactedTask;
use task_engine_store::token::Role;

use super::{ApiError, App, ShownSteps, Timestamp, Viewer, deadline, parts};
use crate::access::Actor;
use crate::json_tree;
use crate::pages::operations::{FormFields, perform_and_return};
use crate::pages::task::id_of;
use crate::parts::Heading::{Hidden, Number, Text};

/// Shorter results are shown in one line.
const LINE_BYTES_MAX: usize = 80;
/// The results of all steps on one page; the others are downloads.
const RESULTS_BYTES_MAX: usize = json_tree::SHOWN_BYTES_MAX;
/// So many children of a call are linked.
const CHILDREN_MAX: usize = 10;

/// Creates a task with the steps before this one.
pub(in crate::pages::task) async fn rerun(
    State(app): State<App>,
    actor: Actor,
    fields: FormFields,
) -> Result<Response, ApiError> {
    let id = id_of(fields.need("ids")?)?;
    let from = fields.name()?.to_owned();
    perform_and_return(&app, &actor, &fields, |operator| async move {
        operator.rerun_from(id, &from).await
    })
    .await
}

/// What the rows need.
struct StepTable<'a> {
    app: &'a App,
    viewer: &'a Viewer,
    task: &'a RedactedTask,
    flow: &'a [FlowTask],
    now: Timestamp,
    /// Bytes of results that may still be shown.
    left: std::cell::Cell<usize>,
}

pub(super) fn show(
    app: &App,
    viewer: &Viewer,
    task: &RedactedTask,
    steps: &ShownSteps,
    flow: &[FlowTask],
) -> Markup {
    let left = RESULTS_BYTES_MAX.into();
    let table = StepTable { app, viewer, task, flow, now: steps.now, left };
    let (first, hidden, last) = steps.shown();
    let page = format!("/tasks/{}", task.row.id);
    html! {
        div .scroll {
            table .stack .steps {
                thead {
                    tr {
                        (parts::headings(&[
                            Number("#"), Text("Step"), Text("State"), Number("Attempt"),
                            Text("Started"), Number("Took"), Text("Result"), Hidden("Action"),
                        ]))
                    }
                }
                tbody {
                    @for entry in first { (table.row(entry)) }
                    @if hidden > 0 {
                        tr data-key="more" {
                            td colspan="8" {
                                "… " (count(hidden, "step")) ": "
                                a href=(app.path(&format!("{page}?steps=all#steps"))) { "show all steps" }
                            }
                        }
                    }
                    @for entry in last { (table.row(entry)) }
                }
            }
        }
        @if steps.all { p .paging { a href=(app.path(&format!("{page}#steps"))) { "Show fewer steps" } } }
    }
}

impl StepTable<'_> {
    fn row(&self, entry: &StepEntry) -> Markup {
        let took = entry.ended_at.unwrap_or(self.now).duration_since(entry.started_at);
        html! {
            tr data-key=(entry.number) {
                td .number { (entry.number) }
                td { b .name { (entry.name) } " " small { (entry.kind) } }
                td { (state(entry.state)) }
                td .number data-label="attempt" {
                    @if entry.attempt == 0 { span .soft title="Kept from the task that was rerun" { "kept" } }
                    @else { (entry.attempt) }
                }
                td .nowrap { (parts::time(self.app, entry.started_at, self.now)) }
                td .number data-label="took" { (parts::span(took.unsigned_abs())) }
                td .result { (self.result(entry)) }
                td .actions { @if self.may_rerun() { (self.rerun_button(entry)) } }
            }
        }
    }

    fn result(&self, entry: &StepEntry) -> Markup {
        let until = html! {
            @if let Some(until) = entry.until { "until " (deadline(self.app, until, self.now)) }
        };
        match (entry.kind, entry.state) {
            (StepKind::Sleep, StepState::Sleeping) => until,
            (StepKind::Sleep, _) => html! { span .soft { (until) } },
            (_, StepState::Waiting) => html! {
                "waiting for signal " b .name { (entry.name) } " " (until)
            },
            (_, StepState::TimedOut) => html! { span .soft { "no signal " (until) } },
            (StepKind::Call, _) => self.children(&entry.children),
            _ => entry
                .result
                .as_ref()
                .map_or_else(Markup::default, |result| self.json(entry.number, result)),
        }
    }

    /// The tree of a result, or a link to it.
    fn json(&self, number: u32, result: &Json) -> Markup {
        let (text, file) = (result.as_str(), format!("step-{number}.json"));
        if text == "null" {
            return html! { span .soft { "no result" } };
        }
        if text.len() <= LINE_BYTES_MAX {
            return html! { code .name { (text) } };
        }
        match self.left.get().checked_sub(text.len()) {
            Some(left) => {
                self.left.set(left);
                parts::json(self.app, self.task.row.id, &format!("step-{number}"), &file, text)
            }
            None => html! {
                span .badge { (json_tree::bytes(text.len())) } " "
                a href=(self.app.path(&format!("/tasks/{}/{file}", self.task.row.id))) { "download" }
            },
        }
    }

    /// Links to child tasks, with their status if it is known.
    fn children(&self, children: &[TaskId]) -> Markup {
        let status = |id: TaskId| {
            self.flow.iter().find(|task| task.row.id == id).map(|task| task.row.status)
        };
        html! {
            @for id in children.iter().take(CHILDREN_MAX) {
                span .item {
                    "task " (parts::task_link(self.app, *id)) " "
                    @if let Some(status) = status(*id) { (parts::status(status)) }
                }
            }
            @if children.len() > CHILDREN_MAX {
                span .item { "and " a href="#flow" { (children.len() - CHILDREN_MAX) " more" } }
            }
        }
    }

    /// As for a rerun from the beginning: a copy beside a task that still runs is no repair.
    fn may_rerun(&self) -> bool {
        let open = matches!(self.task.row.status, TaskStatus::Waiting | TaskStatus::Running);
        !open && self.viewer.may(Role::Operator)
    }

    fn rerun_button(&self, entry: &StepEntry) -> Markup {
        let id = self.task.row.id.to_string();
        let fields = [("ids", id.as_str()), ("name", &entry.name), ("then", "created")];
        parts::Button {
            to: "/operations/rerun-from",
            fields: &fields,
            label: "Rerun from here",
            consequence: "A new task is created. It keeps the steps before this one and runs the rest again.",
            class: "plain",
            shortcut: None,
        }
        .show(self.app, &self.viewer.here)
    }
}

fn state(state: StepState) -> Markup {
    let (class, label) = match state {
        StepState::Recorded => ("stopped", "recorded"),
        StepState::Sleeping => ("waiting", "sleeping"),
        StepState::Slept => ("stopped", "slept"),
        StepState::Waiting => ("waiting", "waiting"),
        StepState::Received => ("stopped", "received"),
        StepState::TimedOut => ("failed", "timed out"),
        StepState::Running => ("running", "running"),
        StepState::Ended => ("stopped", "ended"),
        _ => ("cancelled", "unfinished"),
    };
    parts::state(class, label)
}
