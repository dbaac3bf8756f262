//! The secret parameters of a task, for who may see them. It is not a page that
//! can be looked at twice: each time is on record.

use axum::extract::{RawForm, State};
use maud::{Markup, html};

use super::{App, Problem, Viewer, id_of};
use crate::action::perform;
use crate::pages::actions::Fields;
use crate::{layout, parts};

pub(super) async fn reveal(
    State(app): State<App>,
    viewer: Viewer,
    form: RawForm,
) -> Result<Markup, Problem> {
    let fields = Fields::read(&form);
    let id = id_of(fields.need("ids")?)?;
    perform(&app, &viewer.actor, fields.get("reason"), |operator| async move {
        operator.reveal(id).await
    })
    .await?;
    let task = app.task_revealed(id).await?;
    let main = html! {
        h1 { "Task " (id) " " span .name { (task.row.task_class) } }
        section .card {
            h2 { "All its parameters" }
            p .soft { "That you have looked at them is in the audit." }
            pre { (task.task_parameters.as_str()) }
            h2 { "All its context" }
            pre { (task.context.as_str()) }
            p { "Back to task " (parts::task_link(&app, id)) }
        }
    };
    Ok(layout::page(&app, &viewer, "Parameters", "/tasks", main).await)
}

/// What leads there.
pub(super) fn button(app: &App, viewer: &Viewer, id: &str) -> Markup {
    parts::Button {
        to: "/actions/reveal",
        fields: &[("ids", id)],
        words: "Show the secret ones",
        consequence: "Shows them to you, and writes into the audit that it did",
        class: "plain",
        act: None,
    }
    .show(app, &viewer.here)
}
