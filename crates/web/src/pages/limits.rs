//! Limits: what they allow, who holds them, and which tasks they block.

mod form;
mod list;
mod one;

use task_engine_core::limit::LimitRow;
use task_engine_store::token::Role::{Operator, Viewer};

use crate::routes::Routes;

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .get("/limits", Viewer, list::page)
        .get("/limits/{name}", Viewer, one::page)
        .post("/operations/set-limit", Operator, form::set)
        .post("/operations/open-limit", Operator, form::open)
}

fn set_by(row: &LimitRow) -> &'static str {
    match (row.set_by_operator, row.declared.is_some()) {
        (true, true) => "an operator, over the declared one",
        (true, false) => "an operator",
        (false, _) => "declared by engines",
    }
}
