//! The page of a task.

mod buttons;
mod copy_as;
mod edit;
mod executions;
mod flow;
mod gantt;
mod journey;
mod logs;
mod reveal;
mod steps;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::ParseError;
use task_engine_core::display;
use task_engine_core::flow::{FlowPage, FlowTask};
use task_engine_core::limit::TaskLimit;
use task_engine_core::task::{TaskDetails, TaskId};
use task_engine_operations::flows::{TASK_RELATIONS_SHOWN, TaskRelations};
use task_engine_operations::why::Explanation;
use task_engine_store::token::Role;

use super::links;
use super::operations::FormFields;
use crate::app::App;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::parts;
use crate::routes::Routes;
use task_engine_operations::redaction::RedactedTask;

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .get("/tasks/{id}", Role::Viewer, page)
        .get("/tasks/{id}/{file}", Role::Viewer, file)
        .get("/tasks/{id}/edit", Role::Operator, edit::page)
        .post("/operations/edit", Role::Operator, edit::edit)
        .post("/operations/signal", Role::Operator, steps::send)
        .post("/operations/rerun-from", Role::Operator, steps::rerun)
        .post("/operations/reveal", Role::Admin, reveal::reveal)
}

/// The id of a path; an invalid one is not found.
fn id_of(text: &str) -> Result<TaskId, ApiError> {
    text.parse().map_err(|why: ParseError| ApiError::not_found(format!("No such task: {why}.")))
}

async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Path(id): Path<String>,
    headers: HeaderMap,
    fields: FormFields,
) -> Result<Markup, ApiError> {
    let id = id_of(&id)?;
    let (why, redacted) = app.why(id).await?;
    let task = &redacted.task;
    let (flow, own) = flow::read(&app, task).await?;
    let due_at = own.as_ref().map_or(task.row.created_at, |own| own.due_at);
    let steps = steps::read(&app, &redacted, &fields).await?;
    let log = logs::read(&app, &redacted, &fields).await?;
    let relations = TaskRelations::read(&*app.store, id, TASK_RELATIONS_SHOWN).await?;
    let title = format!("Task {id}");
    let main = html! {
        div .row .head #head data-live {
            h1 { "Task " (id) " " span .name { (task.row.class) } }
            @if task.row.is_blocked { (parts::state("blocked", "waiting for other tasks")) }
            @else { (parts::state(task.row.status.as_str(), task.row.status.explained())) }
        }
        (journey::show(&app, task, due_at, why.at, steps.open()))
        (buttons::show(&app, &viewer, &redacted, why.at))
        div .grid {
            (reasons(&app, &why))
            (facts(&app, task, &why.limits, due_at, why.at, steps.horizon()))
        }
        (steps::show(&app, &viewer, &redacted, &steps, &flow))
        (runs(&app, task, due_at, why.at, steps.horizon()))
        (payload(&app, &viewer, &redacted))
        (logs::show(&app, task, &log))
        (flow::show(&app, task, &flow, &relations))
        (copy_as::show(&app, task, &headers))
    };
    Ok(layout::page(&app, &viewer, &title, "/tasks", main).await)
}

/// The reasons for its state.
fn reasons(app: &App, why: &Explanation) -> Markup {
    let reasons = why
        .reasons
        .iter()
        .map(|reason| task_engine_operations::why::sentences::reason(reason, why.at, &app.zone));
    html! {
        section #why .card data-live {
            h2 { "Why" }
            ul .reasons {
                @for reason in reasons { li { (display::capitalize(&reason)) "." } }
            }
        }
    }
}

fn facts(
    app: &App,
    task: &TaskDetails,
    limits: &[TaskLimit],
    due_at: Timestamp,
    now: Timestamp,
    horizon: Timestamp,
) -> Markup {
    let row = &task.row;
    let origin = task_engine_core::flow::Origin::of(row.id, &task.context);
    html! {
        section #facts .card data-live {
            h2 { "Facts" }
            dl .facts {
                dt { "Queue" } dd { (row.queue) }
                dt { "Priority" } dd { (row.priority) }
                dt { "Created" } dd { (parts::time(app, row.created_at, now)) }
                dt { "Scheduled at" } dd { (parts::time(app, due_at, now)) }
                @if row.scheduled_at != due_at && row.scheduled_at <= horizon {
                    dt { "Next attempt at" } dd { (parts::time(app, row.scheduled_at, now)) }
                }
                dt { "Changed" } dd { (parts::time(app, row.updated_at, now)) }
                dt { "Attempts" } dd { (row.attempts) " (" (display::count(usize::try_from(row.retry_number).unwrap_or(0), "retry")) ")" }
                @if let Some(instance) = &row.instance { dt { "Engine" } dd { (instance) } }
                @if !limits.is_empty() {
                    dt { "Limits" }
                    dd { @for limit in limits { (limit_link(app, limit)) } }
                }
                @if let Some(parent) = task.parent_id {
                    dt { "Created by" } dd { "task " (parts::task_link(app, parent)) }
                }
                @if let Some(trace) = origin.traceparent { dt { "Trace" } dd { code { (trace) } } }
            }
        }
    }
}

/// A limit of the task, with the task's key.
fn limit_link(app: &App, limit: &TaskLimit) -> Markup {
    let definition = &limit.limit.limit;
    let key = display::limit_key_text(definition.options.key.as_deref(), &limit.usage.key);
    html! {
        span .item {
            a href=(links::limit(app, &definition.name)) { (definition.name) }
            small { " " (key) }
        }
    }
}

fn runs(
    app: &App,
    task: &TaskDetails,
    due_at: Timestamp,
    now: Timestamp,
    horizon: Timestamp,
) -> Markup {
    html! {
        section #executions .card data-live {
            h2 { "Executions" }
            @if task.executions.is_empty() { p .soft { "The task has not run yet." } }
            @else {
                (gantt::show(app, task, due_at, now, horizon))
                (executions::table(app, task, now, horizon))
            }
        }
    }
}

/// Its parameters and context.
fn payload(app: &App, viewer: &Viewer, task: &RedactedTask) -> Markup {
    let id = task.row.id;
    html! {
        div .grid {
            section .card {
                h2 { "Parameters" }
                (parts::json(app, id, "parameters", "parameters.json", task.parameters.as_str()))
                @if task.has_secrets() && viewer.may(Role::Admin) {
                    (reveal::button(app, viewer, &id.to_string()))
                }
            }
            section .card {
                h2 { "Context" }
                (parts::json(app, id, "context", "context.json", task.context.as_str()))
            }
        }
    }
}

/// JSON as a file: `parameters.json`, `context.json`, `result-3.json`, `step-3.json`.
async fn file(
    State(app): State<App>,
    Path((id, file)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let id = id_of(&id)?;
    let none = || ApiError::not_found(format!("Task {id} has no such file."));
    let name = file.strip_suffix(".json").ok_or_else(none)?;
    let task = app.task(id).await?;
    let json = match name.rsplit_once('-') {
        None if name == "parameters" => Some(task.parameters.clone()),
        None if name == "context" => Some(task.context.clone()),
        Some(("result", attempt)) => {
            let attempt: i32 = attempt.parse().map_err(|_| none())?;
            let execution = task.executions.iter().find(|it| it.attempt == attempt);
            execution.and_then(|it| it.result.clone())
        }
        Some(("step", number)) => {
            steps::result(&app, &task, number.parse().map_err(|_| none())?).await?
        }
        _ => None,
    };
    let name = format!("attachment; filename=\"task-{id}-{file}\"");
    let headers =
        [(header::CONTENT_TYPE, "application/json"), (header::CONTENT_DISPOSITION, &name)];
    Ok((headers, json.ok_or_else(none)?.as_str().to_owned()).into_response())
}
