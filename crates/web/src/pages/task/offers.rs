//! What can be done to a task, each with what will happen.

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::task::{TaskDetails, TaskStatus};
use task_engine_store::token::Role;

use crate::app::{App, encoded};
use crate::layout::Viewer;
use crate::parts::Button;

/// Something that fits the status of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offer {
    RunNow,
    Retry,
    Cancel,
    Rerun,
    Edit,
    Delete,
}

fn offers(task: &TaskDetails, now: Timestamp) -> Vec<Offer> {
    match task.row.status {
        TaskStatus::Waiting if task.row.scheduled_at > now => {
            vec![Offer::RunNow, Offer::Cancel, Offer::Edit]
        }
        TaskStatus::Waiting => vec![Offer::Cancel, Offer::Edit],
        TaskStatus::Running if task.cancel_requested => vec![],
        TaskStatus::Running => vec![Offer::Cancel],
        TaskStatus::Failed | TaskStatus::Cancelled => {
            vec![Offer::Retry, Offer::Rerun, Offer::Delete]
        }
        TaskStatus::Stopped => vec![Offer::Rerun, Offer::Delete],
    }
}

impl Offer {
    fn needs(self) -> Role {
        if self == Self::Delete { Role::Admin } else { Role::Operator }
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::RunNow => ("Run now", "It is due at once, instead of at its time."),
            Self::Retry => {
                ("Retry", "It waits again and is due at once; its attempts stay on record.")
            }
            Self::Cancel => (
                "Cancel",
                "If it waits, it never runs. If it runs, it is asked to stop; code that does not listen goes on until its limit.",
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
    let offers: Vec<_> =
        offers(task, now).into_iter().filter(|offer| viewer.may(offer.needs())).collect();
    html! {
        section #acts .card data-live {
            @if offers.is_empty() { p .soft { (none(viewer, task)) } }
            @else {
                h2 .visually-hidden { "What can be done" }
                ul .offers {
                    @for offer in offers {
                        @let (words, consequence) = offer.words();
                        li data-key=(words) { (button(app, viewer, task, offer)) small { (consequence) } }
                    }
                }
            }
        }
    }
}

fn none(viewer: &Viewer, task: &TaskDetails) -> &'static str {
    if !viewer.may(Role::Operator) {
        "You may look. To change something needs the role operator."
    } else if task.cancel_requested {
        "It was asked to stop; how it takes that is told below."
    } else {
        "There is nothing to do about it for your role."
    }
}

fn button(app: &App, viewer: &Viewer, task: &TaskDetails, offer: Offer) -> Markup {
    let id = task.row.id.to_string();
    let (words, consequence) = offer.words();
    let (to, act, extra) = match offer {
        Offer::RunNow | Offer::Retry => ("/actions/retry", Some("retry"), ("", "")),
        Offer::Cancel => ("/actions/cancel", Some("cancel"), ("", "")),
        Offer::Rerun => ("/actions/rerun", None, ("then", "created")),
        Offer::Edit => {
            return html! { a .button .plain href=(app.path(&format!("/tasks/{id}/edit"))) { (words) } };
        }
        Offer::Delete => {
            let back = encoded("/tasks");
            let to = app.path(&format!("/tasks/preview?verb=delete&ids={id}&back={back}"));
            return html! { a .button .plain href=(to) { (words) } };
        }
    };
    let mut fields = vec![("ids", id.as_str())];
    fields.extend(Some(extra).filter(|(name, _)| !name.is_empty()));
    Button { to, fields: &fields, words, consequence, class: "plain", act }.show(app, &viewer.here)
}
