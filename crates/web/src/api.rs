//! The HTTP API under `/api/v1`; `openapi` describes it.

mod audit;
mod body;
mod creation;
mod durable;
mod flows;
mod health;
mod limits;
mod metrics;
mod monitoring;
mod openapi;
mod operations;
mod query;
mod schedules;
mod tasks;
mod times;
mod tokens;

use axum::extract::State;
use task_engine_operations::Actor;
use task_engine_operations::tasks::TaskOperation;
use task_engine_store::token::Role::{Admin, Operator, Viewer};

use crate::app::App;
use crate::operation::NamedOperation;
use crate::pages::events;
use crate::routes::Routes;
use body::{Body, ChangeReason};
use query::{PathName, PathTask};

pub(crate) fn routes(routes: Routes) -> Routes {
    let routes = routes
        .open("/livez", health::livez)
        .open("/readyz", health::readyz)
        .get("/metrics", Viewer, metrics::metrics)
        .get("/api/v1/openapi.json", Viewer, openapi::openapi)
        .get("/api/v1/tasks", Viewer, tasks::list)
        .post("/api/v1/tasks", Operator, creation::create)
        .get("/api/v1/tasks/{id}", Viewer, tasks::show)
        .patch("/api/v1/tasks/{id}", Operator, operations::edit)
        .get("/api/v1/tasks/{id}/logs", Viewer, tasks::logs)
        .get("/api/v1/tasks/{id}/why", Viewer, tasks::why)
        .get("/api/v1/tasks/{id}/steps", Viewer, durable::steps)
        .post("/api/v1/tasks/{id}/signals/{name}", Operator, durable::signal_task)
        .post("/api/v1/signals", Operator, durable::signal_key)
        .post("/api/v1/tasks/{id}/rerun", TaskOperation::Rerun.needs(), durable::rerun)
        .get("/api/v1/flows", Viewer, flows::list)
        .post("/api/v1/flows", Operator, flows::create)
        .get("/api/v1/flows/{correlation_id}", Viewer, flows::show)
        .get("/api/v1/stats", Viewer, monitoring::stats)
        .get("/api/v1/errors", Viewer, monitoring::errors)
        .get("/api/v1/checks", Viewer, monitoring::checks)
        .get("/api/v1/events", Viewer, events::events)
        .get("/api/v1/queues", Viewer, monitoring::queues)
        .get("/api/v1/limits", Viewer, limits::list)
        .get("/api/v1/limits/{name}", Viewer, limits::show)
        .put("/api/v1/limits/{name}", Operator, limits::write)
        .post("/api/v1/limits/{name}/open", Operator, limits::open)
        .get("/api/v1/instances", Viewer, monitoring::instances)
        // Not below `schedules`: a schedule may have this name.
        .get("/api/v1/schedule-preview", Viewer, schedules::preview)
        .get("/api/v1/schedules", Viewer, schedules::list)
        .post("/api/v1/schedules", Admin, schedules::create)
        .get("/api/v1/schedules/{name}", Viewer, schedules::show)
        .put("/api/v1/schedules/{name}", Admin, schedules::write)
        .get("/api/v1/audit", Admin, audit::list)
        .get("/api/v1/tokens", Admin, tokens::list)
        .post("/api/v1/tokens", Admin, tokens::create);
    named_operations(task_operations(routes))
}

fn task_operations(mut routes: Routes) -> Routes {
    for (path, operation) in [
        ("/api/v1/tasks/retry", TaskOperation::Retry),
        ("/api/v1/tasks/cancel", TaskOperation::Cancel),
        ("/api/v1/tasks/rerun", TaskOperation::Rerun),
        ("/api/v1/tasks/delete", TaskOperation::Delete),
    ] {
        let change = move |app: State<App>, actor: Actor, body: Body| {
            operations::change_tasks(app, actor, body, operation)
        };
        routes = routes.post(path, operation.needs(), change);
    }
    for (method, path, operation) in [
        ("POST", "/api/v1/tasks/{id}/retry", TaskOperation::Retry),
        ("POST", "/api/v1/tasks/{id}/cancel", TaskOperation::Cancel),
        ("DELETE", "/api/v1/tasks/{id}", TaskOperation::Delete),
    ] {
        let change = move |app: State<App>, actor: Actor, id: PathTask, reason: ChangeReason| {
            operations::change_task(app, actor, id, reason, operation)
        };
        routes = match method {
            "DELETE" => routes.delete(path, operation.needs(), change),
            _ => routes.post(path, operation.needs(), change),
        };
    }
    routes
}

fn named_operations(mut routes: Routes) -> Routes {
    for (method, path, operation) in [
        ("POST", "/api/v1/queues/{name}/pause", NamedOperation::PauseQueue),
        ("POST", "/api/v1/queues/{name}/resume", NamedOperation::ResumeQueue),
        ("POST", "/api/v1/instances/{name}/recover", NamedOperation::Recover),
        ("DELETE", "/api/v1/limits/{name}", NamedOperation::ClearLimit),
        ("POST", "/api/v1/schedules/{name}/pause", NamedOperation::PauseSchedule),
        ("POST", "/api/v1/schedules/{name}/resume", NamedOperation::ResumeSchedule),
        ("POST", "/api/v1/schedules/{name}/run", NamedOperation::RunSchedule),
        ("DELETE", "/api/v1/schedules/{name}", NamedOperation::RemoveSchedule),
        ("DELETE", "/api/v1/tokens/{name}", NamedOperation::RevokeToken),
    ] {
        let change = move |app: State<App>, actor: Actor, name: PathName, reason: ChangeReason| {
            operations::change_named(app, actor, name, reason, operation)
        };
        routes = match method {
            "DELETE" => routes.delete(path, operation.needs(), change),
            _ => routes.post(path, operation.needs(), change),
        };
    }
    routes
}
