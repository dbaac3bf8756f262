//! Flows, newest first.

use std::sync::Arc;

use axum::extract::{Query, State};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use task_engine_operations::flows::{self, FlowSummary};

use super::{one, progress, state};
use crate::app::App;
use crate::cache::FLOWS_SHOWN;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::pages::links;
use crate::parts;
use crate::parts::Heading::Text;

#[derive(Debug, Deserialize)]
pub(crate) struct ListQuery {
    /// A flow whose correlation id cannot be a path segment.
    show: Option<String>,
    before: Option<i64>,
}

pub(crate) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Query(query): Query<ListQuery>,
) -> Result<Markup, ApiError> {
    if let Some(id) = query.show {
        return one::show(&app, &viewer, &id).await;
    }
    let page = match query.before {
        // All that watch the newest flows share one read.
        None => app.cache.flows().await?,
        Some(_) => Arc::new(flows::list(&*app.store, query.before, FLOWS_SHOWN).await?),
    };
    let now = app.cache.now().await?.stats.at;
    let main = html! {
        h1 { "Flows" }
        section .card #flows data-live {
            @if page.flows.is_empty() {
                @if query.before.is_some() { p .soft { "There are no older flows." } }
                @else {
                    (parts::empty(
                        "There are no flows: tasks that depend on others, created together. Write one in a file, and run it:",
                        "task-engine flow run flow.toml",
                    ))
                }
            } @else {
                (table(&app, &page.flows, now))
            }
            @if let Some(next) = page.next {
                p .paging { a href=(app.path(&format!("/flows?before={next}"))) rel="next" { "Older flows" } }
            }
        }
    };
    Ok(layout::page(&app, &viewer, "Flows", "/flows", main).await)
}

fn table(app: &App, flows: &[FlowSummary], now: Timestamp) -> Markup {
    html! {
        (parts::table(&[
            Text("Flow"), Text("State"), Text("Progress"), Text("Created"),
        ], &html! { @for flow in flows { (row(app, flow, now)) } }))
    }
}

fn row(app: &App, flow: &FlowSummary, now: Timestamp) -> Markup {
    let id = &flow.row.correlation_id;
    html! {
        tr data-key=(flow.row.id) {
            td .name {
                a href=(links::flow(app, id)) { (flow.row.name.as_ref().unwrap_or(id)) }
                @if flow.row.name.as_ref().is_some_and(|name| name != id) { small .under { (id) } }
            }
            td { (state(flow.state, &flow.row.counts)) }
            td .flow-progress { (progress(&flow.row.counts)) }
            td .nowrap data-label="created" { (parts::time(app, flow.row.created_at, now)) }
        }
    }
}
