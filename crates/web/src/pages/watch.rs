//! Routes of the monitoring pages and their actions.

use task_engine_store::token::Role::{Admin, Operator, Viewer};

use super::{audit, health, instances, overview, queues, schedules, tokens};
use crate::routes::Routes;

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .get("/", Viewer, overview::page)
        .get("/queues", Viewer, queues::page)
        .get("/instances", Viewer, instances::page)
        .get("/health", Viewer, health::page)
        .get("/audit", Admin, audit::page)
        .get("/tokens", Admin, tokens::page)
        .post("/actions/revoke-token", Admin, tokens::revoke_token)
        .get("/schedules", Viewer, schedules::list::page)
        .get("/schedules/{name}", Viewer, schedules::one::page)
        .get("/schedules/preview", Viewer, schedules::preview::fragment)
        .get("/schedules/new", Admin, schedules::write::new_page)
        .post("/schedules/new", Admin, schedules::write::add)
        .get("/schedules/edit", Admin, schedules::write::edit_page)
        .post("/schedules/edit", Admin, schedules::write::set)
        .post("/actions/pause-schedule", Operator, schedules::acts::pause)
        .post("/actions/resume-schedule", Operator, schedules::acts::resume)
        .post("/actions/run-schedule", Operator, schedules::acts::run)
        .post("/actions/remove-schedule", Admin, schedules::acts::remove)
}
