//! What goes on, and what needs somebody.

use axum::extract::State;
use maud::{Markup, html};

use crate::app::App;
use crate::layout::{self, Viewer};
use crate::problem::Problem;

pub(crate) async fn page(State(app): State<App>, viewer: Viewer) -> Result<Markup, Problem> {
    let now = app.glance.now().await?;
    let main = html! { h1 { "Overview" } p { (now.figures.running) } };
    Ok(layout::page(&app, &viewer, "Overview", "/", main).await)
}
