//! Shows the secret parameters of a task to an admin. Each view is audited.

use axum::extract::State;
use maud::{Markup, html};

use super::{ApiError, App, Viewer, id_of};
use crate::operation::perform;
use crate::pages::operations::FormFields;
use crate::{layout, parts};

pub(super) async fn reveal(
    State(app): State<App>,
    viewer: Viewer,
    fields: FormFields,
) -> Result<Markup, ApiError> {
    let id = id_of(fields.need("ids")?)?;
    perform(&app, &viewer.actor, fields.get("reason"), |operator| async move {
        operator.reveal(id).await
    })
    .await?;
    let task = app.task_revealed(id).await?;
    let main = html! {
        h1 { "Task " (id) " " span .name { (task.row.class) } }
        section .card {
            h2 { "All parameters" }
            p .soft { "This view is recorded in the audit." }
            pre { (task.parameters.as_str()) }
            h2 { "All context" }
            pre { (task.context.as_str()) }
            p { "Back to task " (parts::task_link(&app, id)) }
        }
    };
    Ok(layout::page(&app, &viewer, "Parameters", "/tasks", main).await)
}

/// The button that reveals them.
pub(super) fn button(app: &App, viewer: &Viewer, id: &str) -> Markup {
    parts::Button {
        to: "/operations/reveal",
        fields: &[("ids", id)],
        label: "Show secrets",
        consequence: "Shows secret parameters; recorded in the audit",
        class: "plain",
        shortcut: None,
    }
    .show(app, &viewer.here)
}
