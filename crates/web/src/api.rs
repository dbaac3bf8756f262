//! The HTTP API under `/api/v1`; `openapi` describes it.

mod body;
mod changes;
mod creation;
mod health;
mod metrics;
mod openapi;
mod operators;
mod query;
mod schedules;
mod tasks;
mod times;
mod watch;

use task_engine_store::token::Role::{Admin, Operator, Viewer};

use crate::pages::events;
use crate::routes::Routes;

pub(crate) fn routes(routes: Routes) -> Routes {
    let routes = routes
        .open("/livez", health::livez)
        .open("/readyz", health::readyz)
        .get("/api/v1/openapi.json", Viewer, openapi::openapi)
        .get("/metrics", Viewer, metrics::metrics);
    on_schedules(on_tasks(routes))
        .get("/api/v1/flows/{correlation_id}", Viewer, watch::flow)
        .get("/api/v1/stats", Viewer, watch::stats)
        .get("/api/v1/errors", Viewer, watch::errors)
        .get("/api/v1/checks", Viewer, watch::checks)
        .get("/api/v1/events", Viewer, events::events)
        .get("/api/v1/queues", Viewer, watch::queues)
        .post("/api/v1/queues/{name}/pause", Operator, changes::pause_queue)
        .post("/api/v1/queues/{name}/resume", Operator, changes::resume_queue)
        .get("/api/v1/instances", Viewer, watch::instances)
        .post("/api/v1/instances/{name}/recover", Operator, changes::recover)
        .get("/api/v1/audit", Admin, operators::audit)
        .get("/api/v1/tokens", Admin, operators::tokens)
        .post("/api/v1/tokens", Admin, operators::create_token)
        .delete("/api/v1/tokens/{name}", Admin, operators::revoke_token)
}

fn on_tasks(routes: Routes) -> Routes {
    routes
        .get("/api/v1/tasks", Viewer, tasks::list)
        .post("/api/v1/tasks", Operator, creation::create)
        .post("/api/v1/tasks/retry", Operator, changes::retry_many)
        .post("/api/v1/tasks/cancel", Operator, changes::cancel_many)
        .post("/api/v1/tasks/rerun", Operator, changes::rerun_many)
        .post("/api/v1/tasks/delete", Admin, changes::delete_many)
        .get("/api/v1/tasks/{id}", Viewer, tasks::show)
        .patch("/api/v1/tasks/{id}", Operator, changes::edit)
        .delete("/api/v1/tasks/{id}", Admin, changes::delete)
        .get("/api/v1/tasks/{id}/logs", Viewer, tasks::logs)
        .get("/api/v1/tasks/{id}/why", Viewer, tasks::why)
        .post("/api/v1/tasks/{id}/retry", Operator, changes::retry)
        .post("/api/v1/tasks/{id}/cancel", Operator, changes::cancel)
        .post("/api/v1/tasks/{id}/rerun", Operator, changes::rerun)
}

fn on_schedules(routes: Routes) -> Routes {
    routes
        // Not below `schedules`: a schedule may have this name.
        .get("/api/v1/schedule-preview", Viewer, schedules::preview)
        .get("/api/v1/schedules", Viewer, schedules::list)
        .post("/api/v1/schedules", Admin, schedules::create)
        .get("/api/v1/schedules/{name}", Viewer, schedules::show)
        .put("/api/v1/schedules/{name}", Admin, schedules::write)
        .delete("/api/v1/schedules/{name}", Admin, schedules::remove)
        .post("/api/v1/schedules/{name}/pause", Operator, schedules::pause)
        .post("/api/v1/schedules/{name}/resume", Operator, schedules::resume)
        .post("/api/v1/schedules/{name}/run", Operator, schedules::run)
}
