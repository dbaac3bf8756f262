//! Operations on a stored schedule.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use task_engine_core::schedule::row::ScheduleRow;
use task_engine_operations::Actor;
use task_engine_store::token::Role;

use crate::app::{App, encoded};
use crate::error::ApiError;
use crate::layout::Viewer;
use crate::operation::{form_key, one_time, unique};
use crate::pages::operations::{FormFields, perform_and_return};
use crate::parts::{Button, ReasonForm};

/// The operations that this viewer may perform.
pub(super) fn all(app: &App, viewer: &Viewer, row: &ScheduleRow) -> Markup {
    let name = row.name.as_str();
    html! {
        div .row .actions {
            @if viewer.may(Role::Operator) {
                (run_button(app, viewer, name))
                @if row.state.paused.is_some() || row.state.error.is_some() {
                    (resume_button(app, viewer, name))
                } @else {
                    (pause_form(viewer, name).show(app))
                }
            }
            @if viewer.may(Role::Admin) {
                a .button .plain href=(app.path(&format!("/schedules/edit?name={}", encoded(name)))) { "Edit" }
                (remove_form(name).show(app))
            }
        }
    }
}

pub(super) fn run_button(app: &App, viewer: &Viewer, name: &str) -> Markup {
    let button = Button {
        to: "/operations/run-schedule",
        fields: &[("name", name), ("once", &one_time())],
        label: "Run now",
        consequence: "Creates one task now, besides those of its slots",
        class: "plain",
        shortcut: None,
    };
    button.show(app, &viewer.here)
}

pub(super) fn resume_button(app: &App, viewer: &Viewer, name: &str) -> Markup {
    let button = Button {
        to: "/operations/resume-schedule",
        fields: &[("name", name)],
        label: "Resume",
        consequence: "It fires again from now on; slots that passed meanwhile are skipped",
        class: "plain",
        shortcut: None,
    };
    button.show(app, &viewer.here)
}

fn pause_form<'a>(viewer: &'a Viewer, name: &'a str) -> ReasonForm<'a> {
    ReasonForm {
        to: "/operations/pause-schedule",
        back: &viewer.here,
        name,
        verb: "Pause",
        consequence: "It does not fire until it is resumed. Tasks that it has created are not affected.",
        danger: false,
    }
}

fn remove_form(name: &str) -> ReasonForm<'_> {
    ReasonForm {
        to: "/operations/remove-schedule",
        back: "/schedules",
        name,
        verb: "Remove",
        consequence: "It is removed with its history; its tasks stay. An application that declares it brings it back at its next start. This cannot be undone.",
        danger: true,
    }
}

/// Creates one task; a form that is sent twice creates it once.
pub(crate) async fn run(
    State(app): State<App>,
    actor: Actor,
    fields: FormFields,
) -> Result<Response, ApiError> {
    let name = fields.name()?.to_owned();
    let once = fields.get("once").map(|once| unique(&form_key(once), 0));
    perform_and_return(&app, &actor, &fields, |operator| async move {
        operator.run_schedule(&name, once).await
    })
    .await
}
