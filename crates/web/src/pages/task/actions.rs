//! The actions on a task, each with its consequence.

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::task::{TaskDetails, TaskStatus};
use task_engine_store::token::Role;

use crate::app::{App, encoded};
use crate::layout::Viewer;
use crate::parts::Button;

/// An action that the status of the task allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskAction {
    RunNow,
    Retry,
    Cancel,
    Rerun,
    Edit,
    Delete,
}

fn actions(task: &TaskDetails, now: Timestamp) -> Vec<TaskAction> {
    match task.row.status {
        TaskStatus::Waiting if task.row.scheduled_at > now => {
            vec![TaskAction::RunNow, TaskAction::Cancel, TaskAction::Edit]
        }
        TaskStatus::Waiting => vec![TaskAction::Cancel, TaskAction::Edit],
        TaskStatus::Running if task.cancel_requested => vec![],
        TaskStatus::Running => vec![TaskAction::Cancel],
        TaskStatus::Failed | TaskStatus::Cancelled => {
            vec![TaskAction::Retry, TaskAction::Rerun, TaskAction::Delete]
        }
        TaskStatus::Stopped => vec![TaskAction::Rerun, TaskAction::Delete],
    }
}

impl TaskAction {
    fn needs(self) -> Role {
        if self == Self::Delete { Role::Admin } else { Role::Operator }
    }

    fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::RunNow => ("Run now", "It becomes due at once."),
            Self::Retry => {
                ("Retry", "It waits again and is due at once; its attempts stay recorded.")
            }
            Self::Cancel => (
                "Cancel",
                "A waiting task never runs. A running task is asked to stop; code that ignores the request runs until its timeout.",
            ),
            Self::Rerun => (
                "Rerun",
                "A new task with the same parameters is created; this one stays as it is.",
            ),
            Self::Edit => ("Edit…", "Its parameters, time, priority or queue, while it waits."),
            Self::Delete => (
                "Delete…",
                "It is removed with its executions, results and logs. This cannot be undone.",
            ),
        }
    }
}

pub(super) fn show(app: &App, viewer: &Viewer, task: &TaskDetails, now: Timestamp) -> Markup {
    let actions: Vec<_> =
        actions(task, now).into_iter().filter(|action| viewer.may(action.needs())).collect();
    html! {
        section #actions .card data-live {
            @if actions.is_empty() { p .soft { (none(viewer, task)) } }
            @else {
                h2 .visually-hidden { "Actions" }
                ul .task-actions {
                    @for action in actions {
                        @let (label, consequence) = action.text();
                        li data-key=(label) { (button(app, viewer, task, action)) small { (consequence) } }
                    }
                }
            }
        }
    }
}

fn none(viewer: &Viewer, task: &TaskDetails) -> &'static str {
    if !viewer.may(Role::Operator) {
        "Changes need the role operator."
    } else if task.cancel_requested {
        "Cancellation was requested; see its executions below."
    } else {
        "No action is available for your role."
    }
}

fn button(app: &App, viewer: &Viewer, task: &TaskDetails, action: TaskAction) -> Markup {
    let id = task.row.id.to_string();
    let (label, consequence) = action.text();
    let (to, shortcut, extra) = match action {
        TaskAction::RunNow | TaskAction::Retry => ("/actions/retry", Some("retry"), ("", "")),
        TaskAction::Cancel => ("/actions/cancel", Some("cancel"), ("", "")),
        TaskAction::Rerun => ("/actions/rerun", None, ("then", "created")),
        TaskAction::Edit => {
            return html! { a .button .plain href=(app.path(&format!("/tasks/{id}/edit"))) { (label) } };
        }
        TaskAction::Delete => {
            let back = encoded("/tasks");
            let to = app.path(&format!("/tasks/preview?verb=delete&ids={id}&back={back}"));
            return html! { a .button .plain href=(to) { (label) } };
        }
    };
    let mut fields = vec![("ids", id.as_str())];
    fields.extend(Some(extra).filter(|(name, _)| !name.is_empty()));
    Button { to, fields: &fields, label, consequence, class: "plain", shortcut }
        .show(app, &viewer.here)
}
