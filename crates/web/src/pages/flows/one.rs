//! The page of a flow.

use axum::extract::{Path, State};
use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::dependency::FlowCounts;
use task_engine_core::display::{capitalize, count, span};
use task_engine_core::filter::Filter;
use task_engine_core::task::TaskStatus;
use task_engine_operations::flows::graph::Graph;
use task_engine_operations::flows::{self, FlowDetails, TASKS_READ_MAX};
use task_engine_operations::tasks::TaskOperation;

use super::{graph, progress, state};
use crate::app::App;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::pages::links;
use crate::pages::tasks::{address, preview_address};
use crate::parts;

pub(crate) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Path(correlation_id): Path<String>,
) -> Result<Markup, ApiError> {
    show(&app, &viewer, &correlation_id).await
}

pub(super) async fn show(app: &App, viewer: &Viewer, id: &str) -> Result<Markup, ApiError> {
    let Some(flow) = flows::read(&*app.store, id, TASKS_READ_MAX).await? else {
        let why = format!("No task has the correlation id {id:?}.");
        return Err(ApiError::not_found(why));
    };
    let now = app.cache.now().await?.stats.at;
    let counts = flow.counts();
    let graph = Graph::of(&flow);
    let title = flow.name.as_deref().unwrap_or(id);
    let main = html! {
        div .row .head #head data-live {
            h1 { "Flow " span .name { (title) } }
            (state(flow.state(), &counts))
        }
        section .card #flow-facts data-live {
            h2 { "Progress" }
            (progress(&counts))
            (facts(app, &flow, now))
            (operations(app, viewer, &flow, &counts))
        }
        section .card #flow-graph data-live {
            h2 { "Graph" }
            (graph::show(app, &flow, &graph))
        }
        section .card #flow-tasks data-live {
            h2 { "Tasks" }
            (graph::table(app, &flow, &graph, now))
        }
    };
    Ok(layout::page(app, viewer, &format!("Flow {title}"), "/flows", main).await)
}

fn facts(app: &App, flow: &FlowDetails, now: Timestamp) -> Markup {
    let filter = filter_of(flow).to_string();
    let begun = flow.tasks.iter().map(|task| task.row.created_at).min();
    let ended = flow.tasks.iter().map(|task| task.row.updated_at).max();
    let is_over = flow.counts().open() == 0 && !flow.and_more;
    html! {
        dl .facts .gap {
            dt { "Correlation" } dd { code { (flow.correlation_id) } }
            @if let Some(begun) = flow.created_at.or(begun) {
                dt { "Created" } dd { (parts::time(app, begun, now)) }
            }
            @if let Some((begun, ended)) = begun.zip(ended).filter(|_| is_over) {
                dt { "Ended" }
                dd { (parts::time(app, ended, now)) ", after " (span(ended.duration_since(begun).unsigned_abs())) }
            }
            dt { "Tasks" }
            dd {
                a href=(address(app, &filter, None)) {
                    @if flow.and_more { "the first " (flow.tasks.len()) ", and more" }
                    @else { (count(flow.tasks.len(), "task")) }
                }
            }
        }
    }
}

/// The tasks of a flow.
pub(super) fn filter_of(flow: &FlowDetails) -> Filter {
    Filter::default().and_correlation(&flow.correlation_id)
}

/// Links to the previews of operations on the whole flow.
fn operations(app: &App, viewer: &Viewer, flow: &FlowDetails, counts: &FlowCounts) -> Markup {
    let links = [
        (TaskOperation::Retry, &[TaskStatus::Failed][..], counts.failed, "failed"),
        (
            TaskOperation::Cancel,
            &[TaskStatus::Waiting, TaskStatus::Running][..],
            counts.open(),
            "open",
        ),
        (
            TaskOperation::Rerun,
            TaskOperation::Rerun.default_statuses(),
            if counts.open() == 0 { counts.ended() } else { 0 },
            "ended",
        ),
    ];
    let links: Vec<_> = links
        .into_iter()
        .filter(|(operation, _, number, _)| *number > 0 && viewer.may(operation.needs()))
        .collect();
    if links.is_empty() {
        return html! {};
    }
    let back = links::flow(app, &flow.correlation_id);
    let back = back.strip_prefix(app.base.as_str()).unwrap_or(&back);
    html! {
        div .row .actions {
            @for (operation, statuses, number, what) in links {
                @let filter = filter_of(flow).and_status(statuses).to_string();
                a .button .plain href=(preview_address(app, operation, &filter, back)) {
                    (capitalize(operation.as_str())) " " (number) " " (what) "…"
                }
            }
        }
    }
}
