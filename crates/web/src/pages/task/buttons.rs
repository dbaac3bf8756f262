//! The buttons of a task's page, each with its consequence.

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::task::{TaskDetails, TaskStatus};
use task_engine_store::token::Role;

use crate::app::{App, encoded};
use crate::layout::Viewer;
use crate::parts::Button;

/// A button that the status of the task allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskButton {
    RunNow,
    Retry,
    Cancel,
    Rerun,
    Edit,
    Delete,
}

fn buttons(task: &TaskDetails, now: Timestamp) -> Vec<TaskButton> {
    match task.row.status {
        // Run now would leave it blocked.
        TaskStatus::Waiting if task.row.is_blocked => vec![TaskButton::Cancel, TaskButton::Edit],
        TaskStatus::Waiting if task.row.scheduled_at > now => {
            vec![TaskButton::RunNow, TaskButton::Cancel, TaskButton::Edit]
        }
        TaskStatus::Waiting => vec![TaskButton::Cancel, TaskButton::Edit],
        TaskStatus::Running if task.cancel_requested => vec![],
        TaskStatus::Running => vec![TaskButton::Cancel],
        TaskStatus::Failed | TaskStatus::Cancelled => {
            vec![TaskButton::Retry, TaskButton::Rerun, TaskButton::Delete]
        }
        TaskStatus::Stopped => vec![TaskButton::Rerun, TaskButton::Delete],
    }
}

impl TaskButton {
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
    let allowed: Vec<_> =
        buttons(task, now).into_iter().filter(|button| viewer.may(button.needs())).collect();
    html! {
        section #actions .card data-live {
            @if allowed.is_empty() { p .soft { (none(viewer, task)) } }
            @else {
                h2 .visually-hidden { "Actions" }
                ul .task-actions {
                    @for button in allowed {
                        @let (label, consequence) = button.text();
                        li data-key=(label) { (show_button(app, viewer, task, button)) small { (consequence) } }
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

fn show_button(app: &App, viewer: &Viewer, task: &TaskDetails, button: TaskButton) -> Markup {
    let id = task.row.id.to_string();
    let (label, consequence) = button.text();
    let (to, shortcut, extra) = match button {
        TaskButton::RunNow | TaskButton::Retry => ("/operations/retry", Some("retry"), ("", "")),
        TaskButton::Cancel => ("/operations/cancel", Some("cancel"), ("", "")),
        TaskButton::Rerun => ("/operations/rerun", None, ("then", "created")),
        TaskButton::Edit => {
            return html! { a .button .plain href=(app.path(&format!("/tasks/{id}/edit"))) { (label) } };
        }
        TaskButton::Delete => {
            let back = encoded("/tasks");
            let to = app.path(&format!("/tasks/preview?operation=delete&ids={id}&back={back}"));
            return html! { a .button .plain href=(to) { (label) } };
        }
    };
    let mut fields = vec![("ids", id.as_str())];
    fields.extend(Some(extra).filter(|(name, _)| !name.is_empty()));
    Button { to, fields: &fields, label, consequence, class: "plain", shortcut }
        .show(app, &viewer.here)
}
