//! What goes on, and what needs somebody.

mod attention;
mod charts;
mod tiles;

use axum::extract::{Query, State};
use maud::{Markup, html};
use serde::Deserialize;

use crate::app::App;
use crate::glance::{Now, Span};
use crate::layout::{self, Viewer};
use crate::parts;
use crate::problem::Problem;

#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    span: Option<String>,
}

pub(crate) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Query(asked): Query<Asked>,
) -> Result<Markup, Problem> {
    let over = match asked.span.as_deref() {
        None | Some("hour") => Span::Hour,
        Some("day") => Span::Day,
        Some(_) => return Err(Problem::field("/span", "span is hour or day.")),
    };
    let now = app.glance.now().await?;
    let main = html! {
        h1 { "Overview" }
        div #tiles data-live { (tiles::all(&app, &now)) }
        // One region, so that what is there on the first day gives way to the rest.
        div #rest data-live {
            @if is_new(&now) { section .card #begin { (begin()) } }
            @else {
                div #attention { (attention::all(&app, &viewer, &now).await?) }
                div #charts { (charts::all(&app, &now, over).await?) }
            }
        }
    };
    Ok(layout::page(&app, &viewer, "Overview", "/", main).await)
}

/// Nothing was ever created here, and nobody has ever worked.
fn is_new(now: &Now) -> bool {
    now.figures.newest_task.is_none() && now.engines.is_empty()
}

fn begin() -> Markup {
    parts::empty(
        "Nothing has happened here yet. Create a task, and start an engine that does it:",
        "task-engine create WaitingTask '{\"waiting_time\": 5}'\ntask-engine start --samples",
    )
}
