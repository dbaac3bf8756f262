//! The pages, one file each.

mod actions;
mod audit;
mod errors;
pub(crate) mod events;
mod health;
mod instances;
mod links;
mod login;
mod new_task;
mod overview;
mod queues;
mod schedules;
mod task;
mod task_form;
mod tasks;
mod tokens;
mod watch;

use task_engine_store::token::Role::{Admin, Operator, Viewer};

use crate::assets;
use crate::routes::Routes;

pub(crate) fn routes(routes: Routes) -> Routes {
    let routes = errors::routes(task::routes(new_task::routes(tasks::routes(routes))));
    let routes = watch::routes(routes);
    routes
        .open("/assets/{name}", assets::asset)
        .open("/login", login::page)
        .open_post("/login", login::log_in)
        .open_post("/logout", login::log_out)
        .open_post("/theme", login::theme)
        .get("/events", Viewer, events::changes)
        .post("/actions/retry", Operator, actions::retry)
        .post("/actions/cancel", Operator, actions::cancel)
        .post("/actions/rerun", Operator, actions::rerun)
        .post("/actions/delete", Admin, actions::delete)
        .post("/actions/recover", Operator, actions::recover)
        .post("/actions/pause-queue", Operator, actions::pause_queue)
        .post("/actions/resume-queue", Operator, actions::resume_queue)
}
