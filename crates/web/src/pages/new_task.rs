//! The form that creates a task.

use axum::extract::{RawForm, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use task_engine_core::task::NewTask;
use task_engine_core::unique::Unique;
use task_engine_operations::OperationError;
use task_engine_operations::schemas::{Schemas, outline};
use task_engine_store::token::Role::Operator;

use super::operations::{FormFields, perform_and_return};
use super::task_form::{self, FormError, FormField, check_box, lists, parameters_field, schema_of};
use super::tasks::KnownNames;
use crate::access::Actor;
use crate::app::{App, encoded};
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::operation::{NewTasks, mark_all, mark_of, one_time, sentence};
use crate::routes::Routes;

/// Classes with a schema that the form links to.
const CLASSES_LINKED_MAX: usize = 30;

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.get("/tasks/new", Operator, page).post("/operations/create", Operator, create)
}

/// The query fills the fields: for links to a similar task.
async fn page(
    State(app): State<App>,
    viewer: Viewer,
    fields: FormFields,
) -> Result<Markup, ApiError> {
    form(&app, &viewer, &fields, None).await
}

async fn create(
    State(app): State<App>,
    viewer: Viewer,
    actor: Actor,
    body: RawForm,
) -> Result<Response, ApiError> {
    let fields = FormFields::read(&body);
    if fields.get("do") == Some("fields") {
        return Ok(form(&app, &viewer, &fields, None).await?.into_response());
    }
    let now = app.cache.now().await?.stats.at;
    let task = match task(&app, &fields, now) {
        Ok(task) => match app.check_placeholders([(&task, String::new())]).await {
            Ok(()) if !task_form::checks_parameters(&fields) => Ok(task),
            Ok(()) => match app.check_parameters([(&task, "")]).await {
                Ok(()) => Ok(task),
                Err(OperationError::Store(error)) => return Err(error.into()),
                Err(unfit) => Err(FormError::by_schema(&sentence(&unfit.to_string()))),
            },
            Err(misplaced) => Err(FormError::new("parameters", &misplaced.detail)),
        },
        invalid => invalid,
    };
    match task {
        Ok(task) => {
            let new = once(&app, task, &fields, &body).await?;
            let of_app = app.clone();
            perform_and_return(&app, &actor, &fields, |operator| {
                new.create_audited(of_app, operator)
            })
            .await
        }
        Err(error) => {
            let again = form(&app, &viewer, &fields, Some(&error)).await?;
            Ok((StatusCode::BAD_REQUEST, again).into_response())
        }
    }
}

/// A form that is sent twice creates one task. A unique key does that already.
async fn once(
    app: &App,
    task: NewTask,
    fields: &FormFields,
    RawForm(body): &RawForm,
) -> Result<NewTasks, ApiError> {
    let mut tasks = vec![task];
    if fields.get("once").is_none() || tasks[0].unique.is_some() {
        return Ok(NewTasks { tasks, marks: None });
    }
    let mark = mark_of(app.keys.get(&*app.store).await?, "form", body);
    let marks = vec![mark];
    mark_all(&mut tasks, &marks[0], &marks)?;
    Ok(NewTasks { tasks, marks: Some(marks) })
}

fn task(app: &App, fields: &FormFields, now: jiff::Timestamp) -> Result<NewTask, FormError> {
    let parameters = task_form::parameters(fields.get("parameters").unwrap_or_default())?;
    let class = fields.get("class").unwrap_or_default();
    let mut task = NewTask::new(class, parameters).map_err(|bad| FormError::new("class", &bad))?;
    if let Some(queue) = fields.get("queue") {
        task = task.queue(queue).map_err(|bad| FormError::new("queue", &bad))?;
    }
    if let Some(priority) = task_form::priority(fields)? {
        task = task.priority(priority);
    }
    if let Some(due) = task_form::due(app, fields, now)? {
        task.due = due;
    }
    match fields.get("unique") {
        Some(key) => task.unique(Unique::by(key)).map_err(|bad| FormError::new("unique", &bad)),
        None => Ok(task),
    }
}

async fn form(
    app: &App,
    viewer: &Viewer,
    fields: &FormFields,
    error: Option<&FormError>,
) -> Result<Markup, ApiError> {
    let now = app.cache.now().await?;
    let known = KnownNames::of(&now);
    let schemas = Schemas::of(&now.engines);
    let class = fields.get("class").unwrap_or_default();
    let schema = schemas.newest(class);
    let others = schemas.classes().map(|(other, _)| other).filter(|other| *other != class);
    let others: Vec<&str> = others.take(CLASSES_LINKED_MAX).collect();
    let skeleton = schema
        .map(|schema| serde_json::to_string_pretty(&outline::skeleton(schema)).unwrap_or_default());
    let value = |name: &str| fields.get(name).unwrap_or_default();
    let field = |name, label, hint, list, required| {
        FormField { name, label, hint, value: value(name), list, required }.show(error)
    };
    let main = html! {
        h1 { "New task" }
        section .card {
            form method="post" action=(app.path("/operations/create")) {
                input type="hidden" name="then" value="created";
                input type="hidden" name="back" value="/tasks";
                input type="hidden" name="once" value=(one_time());
                (lists(&known))
                div .fields {
                    (field("class", "Class", "A class that an engine handles.", Some("classes"), true))
                    (field("queue", "Queue", "Empty: default.", Some("queues"), false))
                    (field("priority", "Priority", "Higher runs first. Empty: 0.", None, false))
                    (parameters_field(fields.get("parameters").or(skeleton.as_deref()).unwrap_or_default(), "Empty: {}.", error))
                    (check_box(Some(fields), error))
                    @if let Some(schema) = schema { (schema_of(schema)) }
                    (field("at", "Scheduled at", "2026-12-24 18:00, or the next 18:00. Empty: now.", None, false))
                    (field("after", "Or after", "10m, 1h30m, 2 days.", None, false))
                    (field("unique", "Unique key", "No task is created if one of this class with this key waits or runs.", None, false))
                }
                div .row {
                    button { "Create" }
                    @if schemas.classes().next().is_some() {
                        button .plain name="do" value="fields" { "Show fields" }
                    }
                }
                @if !others.is_empty() {
                    p .soft {
                        "Classes with a schema: "
                        @for (at, other) in others.iter().enumerate() {
                            @if at > 0 { ", " }
                            a href=(app.path(&format!("/tasks/new?class={}", encoded(other)))) { (other) }
                        }
                    }
                }
            }
        }
    };
    Ok(layout::page(app, viewer, "New task", "/tasks", main).await)
}
