//! The tasks that a bulk operation would change, before it is confirmed.

use std::time::Duration;

use axum::extract::State;
use maud::{Markup, html};
use task_engine_core::display::{capitalize, count};
use task_engine_core::queue::REASON_BYTES_MAX;
use task_engine_operations::tasks::{
    FindOptions, REQUEST_TASKS_MAX, SelectedTasks, Selection, TaskOperation,
};

use super::table;
use crate::app::App;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::pages::operations::FormFields;

/// How long the preview searches.
const TIMEOUT: Duration = Duration::from_millis(250);

pub(super) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    fields: FormFields,
) -> Result<Markup, ApiError> {
    let operation = operation(&fields)?;
    if !viewer.may(operation.needs()) {
        return Err(ApiError::forbidden(format!(
            "To {} tasks needs the role {}.",
            operation.as_str(),
            operation.needs()
        )));
    }
    let selection = fields.selection(&app)?;
    let now = app.cache.now().await?.stats.at;
    let options = FindOptions { timeout: Some(TIMEOUT), ..FindOptions::of_request() };
    let found = app.operator(&viewer.actor).find(operation, &selection, options).await?;
    let back = fields.get("back").unwrap_or("/tasks");
    let title = format!("{}: preview", capitalize(operation.as_str()));
    let main = html! {
        h1 { (capitalize(operation.as_str())) " " (number(&found)) "?" }
        section .card {
            p { (operation.consequence()) }
            @if let Selection::Filter(_) = &selection {
                p .soft { "Selected by the filter " code { (found.target) }
                          ". It is applied again when you confirm: tasks that have changed by then may not match." }
            }
            @if let Some(searched_to) = found.searched_to {
                p { "The preview has searched down to task " (searched_to) "; older tasks are searched when you confirm. At most "
                    (REQUEST_TASKS_MAX) " tasks are changed at once." }
            }
            @if found.ids.is_empty() && found.searched_to.is_none() {
                p { b { "No task matches." } " There is nothing to do." }
            } @else {
                (confirm(&app, &viewer, operation, &selection, &found, back))
            }
            p { a href=(crate::pages::links::return_to(&app, back)) { "Back, and change nothing" } }
        }
        @if !found.sample.is_empty() {
            section .card {
                h2 { @if found.sample.len() < found.ids.len() { "The newest of them" } @else { "These" } }
                (table(&app, &found.sample, now, false))
            }
        }
    };
    Ok(layout::page(&app, &viewer, &title, "/tasks", main).await)
}

fn operation(fields: &FormFields) -> Result<TaskOperation, ApiError> {
    let name = fields.need("operation")?;
    TaskOperation::from_token(name).ok_or_else(|| {
        let all: Vec<_> = TaskOperation::ALL.into_iter().map(TaskOperation::as_str).collect();
        ApiError::field(
            "/operation",
            format!("There is no {name:?}; there are {}.", all.join(", ")),
        )
    })
}

fn number(found: &SelectedTasks) -> String {
    let number = count(found.ids.len(), "task");
    match (found.and_more, found.searched_to) {
        (true, _) => format!("the newest {number} of more"),
        (_, Some(_)) => format!("at least {number}"),
        _ => number,
    }
}

fn confirm(
    app: &App,
    viewer: &Viewer,
    operation: TaskOperation,
    selection: &Selection,
    found: &SelectedTasks,
    back: &str,
) -> Markup {
    let back = if back == viewer.here { "/tasks" } else { back };
    html! {
        form method="post" action=(app.path(&format!("/operations/{}", operation.as_str()))) {
            input type="hidden" name="back" value=(back);
            @match selection {
                Selection::Ids(ids) => @for id in ids { input type="hidden" name="ids" value=(id); },
                Selection::Filter(filter) => input type="hidden" name="filter" value=(filter);,
            }
            div .fields {
                label .wide {
                    "Why (for the audit; may be empty)"
                    input type="text" name="reason" maxlength=(REASON_BYTES_MAX);
                }
            }
            button .(if operation == TaskOperation::Delete { "danger" } else { "sure" }) {
                (capitalize(operation.as_str())) " " (number(found))
            }
        }
    }
}
