//! The overview: tiles, problems and charts.

mod attention;
mod charts;
mod tiles;

use axum::extract::{Query, State};
use maud::{Markup, html};
use serde::Deserialize;

use crate::app::App;
use crate::cache::{LiveState, Span};
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::parts;

#[derive(Debug, Deserialize)]
pub(crate) struct OverviewQuery {
    span: Option<String>,
}

pub(crate) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Query(query): Query<OverviewQuery>,
) -> Result<Markup, ApiError> {
    let over = match query.span.as_deref() {
        None | Some("hour") => Span::Hour,
        Some("day") => Span::Day,
        Some(_) => return Err(ApiError::field("/span", "span is hour or day.")),
    };
    let now = app.cache.now().await?;
    let main = html! {
        h1 { "Overview" }
        div #tiles data-live { (tiles::all(&app, &now)) }
        // One region: the start help is replaced by the rest.
        div #rest data-live {
            @if is_new(&now) { section .card #start { (first_steps()) } }
            @else {
                div #attention { (attention::all(&app, &viewer, &now).await?) }
                div #charts { (charts::all(&app, &now, over).await?) }
            }
        }
    };
    Ok(layout::page(&app, &viewer, "Overview", "/", main).await)
}

/// No task was ever created, and no engine has ever run.
fn is_new(now: &LiveState) -> bool {
    now.stats.newest_task.is_none() && now.engines.is_empty()
}

fn first_steps() -> Markup {
    parts::empty(
        "There are no tasks yet. Create one, and start an engine that runs it:",
        "task-engine create WaitingTask '{\"waiting_time\": 5}'\ntask-engine start --samples",
    )
}
