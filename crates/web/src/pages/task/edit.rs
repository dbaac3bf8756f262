//! The form that edits a waiting task.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use task_engine_core::change::Edit;
use task_engine_core::task::{NewTask, TaskDetails, TaskStatus};
use task_engine_operations::OperationError;
use task_engine_operations::redaction::RedactedTask;
use task_engine_operations::schemas::Schemas;

use super::{ApiError, App, TaskId, Viewer, id_of};
use crate::access::Actor;
use crate::json_tree::SHOWN_BYTES_MAX;
use crate::operation::sentence;
use crate::pages::operations::{FormFields, perform_and_return};
use crate::pages::task_form::{
    self, FormError, FormField, check_box, lists, parameters_field, schema_of,
};
use crate::pages::tasks::KnownNames;
use crate::{layout, parts};

pub(super) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Markup, ApiError> {
    let task = task(&app, id_of(&id)?).await?;
    form(&app, &viewer, &task, None, None).await
}

pub(super) async fn edit(
    State(app): State<App>,
    viewer: Viewer,
    actor: Actor,
    fields: FormFields,
) -> Result<Response, ApiError> {
    let id = id_of(fields.need("id")?)?;
    let task = task(&app, id).await?;
    let now = app.cache.now().await?.stats.at;
    let edit = match changes(&app, &fields, &task, now) {
        Ok(edit) => match app.with_secrets_restored(id, edit).await {
            Ok(edit) => unfit(&app, &fields, &task, &edit).await?.map_or(Ok(edit), Err),
            Err(error) if error.pointer.is_some() => {
                Err(FormError::new("parameters", &error.detail))
            }
            Err(error) => return Err(error),
        },
        Err(error) => Err(error),
    };
    match edit {
        Ok(edit) => {
            let check = task_form::checks_parameters(&fields);
            perform_and_return(&app, &actor, &fields, |operator| async move {
                operator.checking_parameters(check).edit(id, edit).await
            })
            .await
        }
        Err(error) => {
            let again = form(&app, &viewer, &task, Some(&fields), Some(&error)).await?;
            Ok((StatusCode::BAD_REQUEST, again).into_response())
        }
    }
}

/// Whether new parameters do not fit the schema of the class.
async fn unfit(
    app: &App,
    fields: &FormFields,
    task: &RedactedTask,
    edit: &Edit,
) -> Result<Option<FormError>, ApiError> {
    let Some(parameters) = edit.parameters.clone().filter(|_| task_form::checks_parameters(fields))
    else {
        return Ok(None);
    };
    let Ok(mut new) = NewTask::new(task.row.class.as_str(), parameters) else { return Ok(None) };
    new.context = task.context.clone();
    match app.check_parameters([(&new, "")]).await {
        Ok(()) => Ok(None),
        Err(OperationError::Store(error)) => Err(error.into()),
        Err(unfit) => Ok(Some(FormError::by_schema(&sentence(&unfit.to_string())))),
    }
}

async fn task(app: &App, id: TaskId) -> Result<RedactedTask, ApiError> {
    let task = app.task(id).await?;
    if task.row.status != TaskStatus::Waiting {
        return Err(ApiError::conflict(format!(
            "Task {id} is {}; only a waiting task can be edited. Rerun creates a copy.",
            task.row.status
        )));
    }
    Ok(task)
}

/// The changed fields.
fn changes(
    app: &App,
    fields: &FormFields,
    task: &TaskDetails,
    now: jiff::Timestamp,
) -> Result<Edit, FormError> {
    let given = fields.get("parameters").map(|text| text.replace("\r\n", "\n"));
    let given = given.filter(|text| text != task.parameters.as_str().trim());
    let parameters = given.map(|text| task_form::parameters(&text)).transpose()?;
    let priority = task_form::priority(fields)?.filter(|priority| *priority != task.row.priority);
    let queue = fields.get("queue").filter(|queue| *queue != task.row.queue).map(str::to_owned);
    if let Some(queue) = &queue {
        task_engine_core::queue::check_queue_name(queue)
            .map_err(|bad| FormError::new("queue", &bad))?;
    }
    let edit = Edit { parameters, due: task_form::due(app, fields, now)?, priority, queue };
    if edit.is_empty() {
        return Err(FormError::new("form", "no field was changed"));
    }
    Ok(edit)
}

async fn form(
    app: &App,
    viewer: &Viewer,
    task: &RedactedTask,
    fields: Option<&FormFields>,
    error: Option<&FormError>,
) -> Result<Markup, ApiError> {
    let now = app.cache.now().await?;
    let known = KnownNames::of(&now);
    let schemas = Schemas::of(&now.engines);
    let row = &task.row;
    let priority = row.priority.to_string();
    let value = |name: &str, own: &str| -> String {
        fields.map_or(own, |fields| fields.get(name).unwrap_or_default()).to_owned()
    };
    let field = |name, label, hint, own: &str, list| {
        FormField { name, label, hint, value: &value(name, own), list, required: false }.show(error)
    };
    let parameters = task.parameters.as_str();
    let (own, hint) = if task.has_secrets() {
        ("", "Some are secret: write all of them. Empty: unchanged.")
    } else if parameters.len() > SHOWN_BYTES_MAX {
        ("", "Too large to be shown here. Empty: unchanged.")
    } else {
        (parameters, "Empty: unchanged.")
    };
    let page = format!("/tasks/{}", row.id);
    let whole = error.filter(|error| error.field == "form");
    let main = html! {
        h1 { "Edit task " (row.id) " " span .name { (row.class) } }
        section .card {
            p { "Waiting, due " (parts::time(app, row.scheduled_at, now.stats.at))
                ". Nothing is changed if an engine claims it first. Attempts and retries stay counted." }
            @if let Some(whole) = whole { p .flash .bad role="alert" { "Nothing to change: " (whole.why) "." } }
            form method="post" action=(app.path("/operations/edit")) {
                input type="hidden" name="id" value=(row.id);
                input type="hidden" name="back" value=(page);
                (lists(&known))
                div .fields {
                    (parameters_field(&value("parameters", own), hint, error))
                    (check_box(fields, error))
                    @if let Some(schema) = schemas.newest(&row.class) { (schema_of(schema)) }
                    (field("queue", "Queue", "Empty: unchanged.", &row.queue, Some("queues")))
                    (field("priority", "Priority", "Higher runs first. Empty: unchanged.", &priority, None))
                    (field("at", "Scheduled at", "2026-12-24 18:00, or the next 18:00. Empty: unchanged.", "", None))
                    (field("after", "Or after", "0s, 10m, 1h30m.", "", None))
                    (field("reason", "Reason", "For the audit; may be empty.", "", None))
                }
                div .row {
                    button { "Save" }
                    a href=(app.path(&page)) { "Back" }
                }
            }
        }
    };
    Ok(layout::page(app, viewer, "Edit", "/tasks", main).await)
}
