//! The pages, one file each.

mod audit;
mod errors;
pub(crate) mod events;
mod flows;
mod health;
mod instances;
mod limits;
mod links;
mod login;
mod new_task;
mod operations;
mod overview;
mod queues;
mod schedules;
mod task;
mod task_form;
mod tasks;
mod tokens;

use task_engine_store::token::Role::{Admin, Operator, Viewer};

use crate::assets;
use crate::routes::Routes;

pub(crate) fn routes(routes: Routes) -> Routes {
    let routes = errors::routes(task::routes(new_task::routes(tasks::routes(routes))));
    operations::routes(limits::routes(flows::routes(routes)))
        .open("/assets/{name}", assets::asset)
        .open("/login", login::page)
        .open_post("/login", login::log_in)
        .open_post("/logout", login::log_out)
        .open_post("/theme", login::theme)
        .get("/events", Viewer, events::changes)
        .get("/", Viewer, overview::page)
        .get("/queues", Viewer, queues::page)
        .get("/instances", Viewer, instances::page)
        .get("/health", Viewer, health::page)
        .get("/audit", Admin, audit::page)
        .get("/tokens", Admin, tokens::page)
        .get("/schedules", Viewer, schedules::list::page)
        .get("/schedules/{name}", Viewer, schedules::one::page)
        .get("/schedules/preview", Viewer, schedules::preview::fragment)
        .get("/schedules/new", Admin, schedules::write::new_page)
        .post("/schedules/new", Admin, schedules::write::add)
        .get("/schedules/edit", Admin, schedules::write::edit_page)
        .post("/schedules/edit", Admin, schedules::write::set)
        .post("/operations/run-schedule", Operator, schedules::buttons::run)
}
