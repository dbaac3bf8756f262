//! A task that waits is changed.

use axum::extract::{Path, RawForm, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use task_engine_core::change::Edit;
use task_engine_core::task::{TaskDetails, TaskStatus};
use task_engine_operations::redaction::RedactedTask;

use super::{App, Problem, TaskId, Viewer, id_of};
use crate::access::Actor;
use crate::json_tree::SHOWN_BYTES_MAX;
use crate::pages::actions::{Fields, perform_and_return};
use crate::pages::task_form::{self, Field, Mistake, lists, parameters_field};
use crate::pages::tasks::Known;
use crate::{layout, parts, shown};

pub(super) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Markup, Problem> {
    let task = task(&app, id_of(&id)?).await?;
    form(&app, &viewer, &task, None, None).await
}

pub(super) async fn edit(
    State(app): State<App>,
    viewer: Viewer,
    actor: Actor,
    body: RawForm,
) -> Result<Response, Problem> {
    let fields = Fields::read(&body);
    let id = id_of(fields.need("id")?)?;
    let task = task(&app, id).await?;
    let now = app.glance.now().await?.figures.at;
    let edit = match wanted(&app, &fields, &task, now) {
        Ok(edit) => match app.with_secrets_restored(id, edit).await {
            Ok(edit) => Ok(edit),
            Err(stray) if stray.pointer.is_some() => Err(Mistake::new("parameters", &stray.detail)),
            Err(problem) => return Err(problem),
        },
        Err(mistake) => Err(mistake),
    };
    match edit {
        Ok(edit) => {
            perform_and_return(&app, &actor, &fields, |operator| async move {
                operator.edit(id, edit).await
            })
            .await
        }
        Err(mistake) => {
            let again = form(&app, &viewer, &task, Some(&fields), Some(&mistake)).await?;
            Ok((StatusCode::BAD_REQUEST, again).into_response())
        }
    }
}

async fn task(app: &App, id: TaskId) -> Result<RedactedTask, Problem> {
    let task = app.task(id).await?;
    if task.row.status != TaskStatus::Waiting {
        return Err(Problem::conflict(format!(
            "Task {id} is {}; only a task that waits can be changed. Rerun creates a new one like it.",
            task.row.status
        )));
    }
    Ok(task)
}

/// What is different from what the task has.
fn wanted(
    app: &App,
    fields: &Fields,
    task: &TaskDetails,
    now: jiff::Timestamp,
) -> Result<Edit, Mistake> {
    let given = fields.get("parameters").map(|text| text.replace("\r\n", "\n"));
    let given = given.filter(|text| text != shown::parameters(task).trim());
    let parameters = given.map(|text| task_form::parameters(&text)).transpose()?;
    let priority = task_form::priority(fields)?.filter(|priority| *priority != task.row.priority);
    let queue = fields.get("queue").filter(|queue| *queue != task.row.queue).map(str::to_owned);
    if let Some(queue) = &queue {
        task_engine_core::queue::check_queue_name(queue)
            .map_err(|bad| Mistake::new("queue", &bad))?;
    }
    let edit = Edit { parameters, due: task_form::due(app, fields, now)?, priority, queue };
    if edit.is_empty() {
        return Err(Mistake::new("form", "nothing is different from what the task has"));
    }
    Ok(edit)
}

async fn form(
    app: &App,
    viewer: &Viewer,
    task: &RedactedTask,
    fields: Option<&Fields>,
    mistake: Option<&Mistake>,
) -> Result<Markup, Problem> {
    let now = app.glance.now().await?;
    let known = Known::of(&now);
    let row = &task.row;
    let priority = row.priority.to_string();
    let typed = |name: &str, own: &str| -> String {
        fields.map_or(own, |fields| fields.get(name).unwrap_or_default()).to_owned()
    };
    let field = |name, label, hint, own: &str, list| {
        Field { name, label, hint, value: &typed(name, own), list, required: false }.show(mistake)
    };
    let parameters = shown::parameters(task);
    let (own, hint) = if task.has_secrets() {
        ("", "Some are secret: write all of them anew. Empty: they stay as they are.")
    } else if parameters.len() > SHOWN_BYTES_MAX {
        ("", "They are too large to be shown here. Empty: they stay as they are.")
    } else {
        (parameters, "Empty: they stay as they are.")
    };
    let page = format!("/tasks/{}", row.id);
    let whole = mistake.filter(|mistake| mistake.field == "form");
    let main = html! {
        h1 { "Edit task " (row.id) " " span .name { (row.task_class) } }
        section .card {
            p { "It waits, due " (parts::time(app, row.scheduled_at, now.figures.at))
                ". If an engine takes it first, nothing is changed. Its attempts and retries stay counted." }
            @if let Some(whole) = whole { p .flash .bad role="alert" { "Nothing to do: " (whole.why) "." } }
            form method="post" action=(app.path("/actions/edit")) {
                input type="hidden" name="id" value=(row.id);
                input type="hidden" name="back" value=(page);
                (lists(&known))
                div .fields {
                    (parameters_field(&typed("parameters", own), hint, mistake))
                    (field("queue", "Queue", "Empty: it stays.", &row.queue, Some("queues")))
                    (field("priority", "Priority", "Higher runs first. Empty: it stays.", &priority, None))
                    (field("at", "Not before", "2026-12-24 18:00, or 18:00 for the next time it is. Empty: its time stays.", "", None))
                    (field("in", "Or after a wait of", "0s, 10m, 1h30m.", "", None))
                    (field("reason", "Why", "For the audit; may be empty.", "", None))
                }
                div .row {
                    button { "Change it" }
                    a href=(app.path(&page)) { "Back, and change nothing" }
                }
            }
        }
    };
    Ok(layout::page(app, viewer, "Edit", "/tasks", main).await)
}
