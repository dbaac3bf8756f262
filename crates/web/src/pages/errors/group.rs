//! One error group: an example, its tasks and actions. One task is retried as a
//! trial, then the rest.

use axum::extract::{Path, State};
use maud::{Markup, html};
use task_engine_core::display::{brief, count};
use task_engine_core::filter::FoundTask;
use task_engine_core::task::{TaskDetails, TaskId, TaskStatus};
use task_engine_operations::errors::{ErrorGroup, Failures};
use task_engine_store::token::Role::Operator;

use super::{ErrorsQuery, sample, search_range, trend};
use crate::app::App;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::pages::operations::FormFields;
use crate::pages::tasks::{address, preview_address, table};
use crate::parts;
use task_engine_operations::tasks::TaskOperation;

/// Tasks per page.
const TASKS_MAX: usize = 50;

pub(super) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Path(key): Path<String>,
    fields: FormFields,
) -> Result<Markup, ApiError> {
    if key.len() != 16 || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ApiError::not_found("No such error group."));
    }
    let query = ErrorsQuery::read(&fields)?;
    let trial = trial(&app, &fields).await?;
    let failures = query.find(&app).await?;
    let group = failures.groups().into_iter().find(|group| group.key() == key);
    let path = format!("/errors/{key}");
    let main = match &group {
        None => html! {
            h1 { "Error " (key) }
            (trial_note(&app, trial.as_ref()))
            section .card {
                @let which = if query.status == TaskStatus::Failed { "failed" } else { "waiting" };
                p { "No " (which) " task with this error was found." }
                (search_range(&app, query, &failures, &path, None))
                p { a href=(query.address(&app, "/errors")) { "All errors" } }
            }
        },
        Some(group) => html! {
            h1 { (group.exception) ": " (brief(&group.message, 200)) }
            (trial_note(&app, trial.as_ref()))
            (about(&app, group, &failures))
            @if viewer.may(Operator) { (actions(&app, &viewer, query, group, &path)) }
            (example(&app, group).await?)
            (tasks(&app, query, group, &failures, &path))
        },
    };
    Ok(layout::page(&app, &viewer, "Error", "/errors", main).await)
}

/// The task that was retried as a trial.
async fn trial(app: &App, fields: &FormFields) -> Result<Option<TaskDetails>, ApiError> {
    let id = fields.get("trial").map(str::parse::<TaskId>).transpose();
    match id.map_err(|why| ApiError::field("/trial", why))? {
        // It may have been removed since.
        Some(id) => Ok(app.task(id).await.ok().map(|task| task.task)),
        None => Ok(None),
    }
}

fn trial_note(app: &App, trial: Option<&TaskDetails>) -> Markup {
    let note = match trial.map(|task| task.row.status) {
        Some(TaskStatus::Stopped) => "It succeeded: retry the rest.",
        Some(TaskStatus::Failed) => "It failed again.",
        Some(TaskStatus::Cancelled) => "It was cancelled.",
        Some(TaskStatus::Waiting | TaskStatus::Running) => "It has not ended yet.",
        None => "",
    };
    html! {
        div #trial data-live {
            @if let Some(task) = trial {
                section .card .needs {
                    "The trial: task " (parts::task_link(app, task.row.id)) " "
                    (parts::status(task.row.status)) " " (note)
                }
            }
        }
    }
}

fn about(app: &App, group: &ErrorGroup, failures: &Failures) -> Markup {
    let now = failures.found.now;
    let tasks = address(app, &group.filter().to_string(), None);
    html! {
        section #about .card data-live {
            (sample(failures))
            dl .facts {
                dt { "Class" } dd { (group.class) }
                dt { "Found" } dd { (count(group.count, "task")) " · " a href=(tasks) { "as a filter" } }
                dt { "First seen" } dd { (parts::time(app, group.first_seen, now)) }
                dt { "Last seen" } dd { (parts::time(app, group.last_seen, now)) }
                dt { "Last 12 hours" } dd { (trend(&group.per_hour)) }
                dt { "Message" } dd { code { (&group.message) } }
            }
        }
    }
}

fn actions(
    app: &App,
    viewer: &Viewer,
    query: ErrorsQuery,
    group: &ErrorGroup,
    path: &str,
) -> Markup {
    let newest = group.newest_task.to_string();
    let here = format!("{path}?status={}", query.status);
    let filter = group.filter().to_string();
    let verbs = match query.status {
        TaskStatus::Failed => [TaskOperation::Retry, TaskOperation::Rerun, TaskOperation::Delete],
        _ => [TaskOperation::Retry, TaskOperation::Cancel, TaskOperation::Rerun],
    };
    let trial = parts::Button {
        to: "/operations/retry",
        fields: &[("ids", &newest)],
        label: "Retry the newest as a trial",
        consequence: "It waits again and is due at once.",
        class: "sure",
        shortcut: Some("retry"),
    };
    html! {
        section .card {
            h2 { "Actions" }
            div .row {
                (trial.show(app, &format!("{here}&trial={newest}")))
                @for verb in verbs.into_iter().filter(|verb| viewer.may(verb.needs())) {
                    a .button .plain href=(preview_address(app, verb, &filter, &here))
                      title=(verb.consequence()) { (label(verb)) "…" }
                }
            }
            p .soft { "The trial is task " (newest) ". Bulk actions show a preview first. They use the filter "
                code { (filter) } ", which may match similar errors, too." }
        }
    }
}

fn label(verb: TaskOperation) -> &'static str {
    match verb {
        TaskOperation::Retry => "Retry the rest",
        TaskOperation::Cancel => "Cancel all",
        TaskOperation::Rerun => "Rerun all",
        TaskOperation::Delete => "Delete all",
    }
}

/// The newest task: searches do not return backtraces.
async fn example(app: &App, group: &ErrorGroup) -> Result<Markup, ApiError> {
    let task = app.task(group.newest_task).await.ok();
    let error = task.as_ref().and_then(|task| {
        let last = task.executions.iter().rev().find_map(|execution| execution.error.as_ref());
        last.or(task.row.error.as_ref())
    });
    Ok(html! {
        section .card {
            h2 { "Example: task " (parts::task_link(app, group.newest_task)) }
            @match error {
                Some(error) => (parts::task_error(error)),
                None => p { (&group.example) },
            }
        }
    })
}

fn tasks(
    app: &App,
    query: ErrorsQuery,
    group: &ErrorGroup,
    failures: &Failures,
    path: &str,
) -> Markup {
    let found = &failures.found;
    let of: Vec<FoundTask> =
        found.tasks.iter().filter(|task| group.contains(task)).take(TASKS_MAX).cloned().collect();
    html! {
        section #tasks .card data-live {
            h2 { @if of.len() < group.count { "The newest " (of.len()) " of its tasks" } @else { "Its tasks" } }
            (table(app, &of, found.now, false))
            (search_range(app, query, failures, path, Some(group)))
        }
    }
}
