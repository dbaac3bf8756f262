//! The flow of a task, as a tree of parents and children.

use std::collections::HashMap;

use maud::{Markup, html};
use task_engine_core::dependency::DependencyCondition;
use task_engine_core::display::count;
use task_engine_operations::flows::{RelatedTask, TaskRelations};

use super::{ApiError, App, FlowPage, FlowTask, TaskDetails, TaskId, parts};
use crate::pages::links;
use crate::pages::tasks::address;

/// The oldest tasks that are shown.
const SHOWN_MAX: u32 = 100;

/// The tasks that are shown, and the own entry of the task.
pub(super) async fn read(
    app: &App,
    task: &TaskDetails,
) -> Result<(Vec<FlowTask>, Option<FlowTask>), ApiError> {
    let correlation_id = task.correlation_id.clone();
    let page = FlowPage { correlation_id, after: None, limit: SHOWN_MAX };
    let flow = app.store.flow(&page).await?;
    let own = match flow.iter().find(|other| other.row.id == task.row.id) {
        Some(own) => Some(own.clone()),
        None => {
            let after = Some(TaskId(task.row.id.0 - 1));
            let page = FlowPage { after, limit: 1, ..page };
            let found = app.store.flow(&page).await?.into_iter().next();
            found.filter(|found| found.row.id == task.row.id)
        }
    };
    Ok((flow, own))
}

pub(super) fn show(
    app: &App,
    task: &TaskDetails,
    flow: &[FlowTask],
    relations: &TaskRelations,
) -> Markup {
    if flow.len() < 2 && task.parent_id.is_none() && relations.is_empty() {
        return html! { section #flow data-live {} };
    }
    let filter = task_engine_core::filter::Filter::default().and_correlation(&task.correlation_id);
    html! {
        section #flow .card data-live {
            h2 { "Flow" }
            p { "Correlation " code { (task.correlation_id) } ": "
                a href=(address(app, &filter.to_string(), None)) {
                    @if flow.len() < SHOWN_MAX as usize { (count(flow.len(), "task")) }
                    @else { "the first " (flow.len()) " tasks; all of them" }
                }
                " · " a href=(links::flow(app, &task.correlation_id)) { "the flow as a graph" }
            }
            (related(app, "It depends on", "It starts after", &relations.dependencies))
            (related(app, "Depend on it", "Start after it", &relations.dependents))
            @if relations.relations_and_more {
                p .soft { "There are more; " code { "task-engine trace " (task.row.id) } " lists them." }
            }
            ul .flow {
                @for (index, depth) in order(flow) {
                    @let row = &flow[index].row;
                    li .(format!("depth-{}", depth.min(DEPTH_SHOWN_MAX))) data-key=(row.id)
                       aria-current=[(row.id == task.row.id).then_some("true")] {
                        (parts::task_link(app, row.id)) " " span .name { (row.class) } " "
                        (parts::status_of(row))
                        @if depth > 0 { span .visually-hidden { " level " (depth) } }
                    }
                }
            }
        }
    }
}

/// Tasks that it depends on, or that depend on it.
fn related(app: &App, heading: &str, about: &str, tasks: &[RelatedTask]) -> Markup {
    if tasks.is_empty() {
        return html! {};
    }
    html! {
        h3 title=(about) { (heading) }
        ul .flow .related {
            @for task in tasks {
                li data-key={ (heading) (task.id) } {
                    (parts::task_link(app, task.id)) " "
                    @if let Some(name) = &task.name { span .name { (name) } " " }
                    @match task.status {
                        Some(status) => (parts::status(status)),
                        None => span .soft { "removed" },
                    }
                    @match task.condition {
                        DependencyCondition::End => { " " small { "after its end" } }
                        DependencyCondition::Failure => { " " small { "after a failure" } }
                        _ => {}
                    }
                }
            }
        }
    }
}

const DEPTH_SHOWN_MAX: usize = 8;

/// Each task after its parent, with its depth. Parents come before their children,
/// so a task without its parent is a root.
fn order(flow: &[FlowTask]) -> Vec<(usize, usize)> {
    let indexes: HashMap<TaskId, usize> =
        flow.iter().enumerate().map(|(index, task)| (task.row.id, index)).collect();
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut stack = Vec::new();
    for (index, task) in flow.iter().enumerate() {
        let parent = task.parent_id.and_then(|id| indexes.get(&id)).filter(|it| **it < index);
        match parent {
            Some(parent) => children.entry(*parent).or_default().push(index),
            None => stack.push((index, 0)),
        }
    }
    stack.reverse();
    let mut order = Vec::with_capacity(flow.len());
    while let Some((index, depth)) = stack.pop() {
        order.push((index, depth));
        let own = children.remove(&index).unwrap_or_default();
        stack.extend(own.into_iter().rev().map(|child| (child, depth + 1)));
    }
    order
}
