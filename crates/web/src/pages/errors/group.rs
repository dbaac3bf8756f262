//! One error: an example, its tasks, and what to do about them. One is retried
//! first; if that goes well, the rest.

use axum::extract::{Path, RawQuery, State};
use maud::{Markup, html};
use task_engine_core::display::{brief, count};
use task_engine_core::filter::FoundTask;
use task_engine_core::task::{TaskDetails, TaskId, TaskStatus};
use task_engine_operations::errors::{ErrorGroup, Failures};
use task_engine_store::token::Role::Operator;

use super::{Asked, how_far, sample, trend};
use crate::app::App;
use crate::layout::{self, Viewer};
use crate::pages::actions::Fields;
use crate::pages::tasks::{address, preview_address, table};
use crate::problem::Problem;
use crate::{parts, shown};
use task_engine_operations::tasks::TaskOperation;

/// So many of its tasks are shown.
const TASKS_MAX: usize = 50;

pub(super) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Path(key): Path<String>,
    query: RawQuery,
) -> Result<Markup, Problem> {
    if key.len() != 16 || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Problem::not_found("There is no such error; the page of errors has all."));
    }
    let fields = Fields::of_query(&query);
    let asked = Asked::read(&fields)?;
    let trial = trial(&app, &fields).await?;
    let failures = asked.find(&app).await?;
    let group = failures.groups().into_iter().find(|group| group.key() == key);
    let path = format!("/errors/{key}");
    let main = match &group {
        None => html! {
            h1 { "Error " (key) }
            (trial_words(&app, trial.as_ref()))
            section .card {
                @let which = if asked.status == TaskStatus::Failed { "failed" } else { "waiting" };
                p { "No " (which) " task has this error, of those that were looked at." }
                (how_far(&app, asked, &failures, &path, None))
                p { a href=(asked.address(&app, "/errors")) { "All errors" } }
            }
        },
        Some(group) => html! {
            h1 { (group.exception) ": " (brief(shown::message(&group.message), 200)) }
            (trial_words(&app, trial.as_ref()))
            (about(&app, group, &failures))
            @if viewer.may(Operator) { (acts(&app, &viewer, asked, group, &path)) }
            (example(&app, group).await?)
            (tasks(&app, asked, group, &failures, &path))
        },
    };
    Ok(layout::page(&app, &viewer, "Error", "/errors", main).await)
}

/// The task that was retried to see whether it works now.
async fn trial(app: &App, fields: &Fields) -> Result<Option<TaskDetails>, Problem> {
    let id = fields.get("trial").map(str::parse::<TaskId>).transpose();
    match id.map_err(|why| Problem::field("/trial", why))? {
        // It may have been removed since.
        Some(id) => Ok(app.task(id).await.ok().map(|seen| seen.task)),
        None => Ok(None),
    }
}

fn trial_words(app: &App, trial: Option<&TaskDetails>) -> Markup {
    let words = match trial.map(|task| task.row.status) {
        Some(TaskStatus::Stopped) => "It did its work: the rest may do so, too.",
        Some(TaskStatus::Failed) => "It has failed again.",
        Some(TaskStatus::Cancelled) => "It was cancelled.",
        Some(TaskStatus::Waiting | TaskStatus::Running) => "Wait for how it ends.",
        None => "",
    };
    html! {
        div #trial data-live {
            @if let Some(task) = trial {
                section .card .needs {
                    "The trial: task " (parts::task_link(app, task.row.id)) " "
                    (parts::status(task.row.status)) " " (words)
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
                dt { "Class" } dd { (group.task_class) }
                dt { "Found" } dd { (count(group.count, "task")) " · " a href=(tasks) { "as a filter" } }
                dt { "First seen" } dd { (parts::time(app, group.first_seen, now)) }
                dt { "Last seen" } dd { (parts::time(app, group.last_seen, now)) }
                dt { "Last 12 hours" } dd { (trend(&group.per_hour)) }
                dt { "Message" } dd { code { (shown::message(&group.message)) } }
            }
        }
    }
}

fn acts(app: &App, viewer: &Viewer, asked: Asked, group: &ErrorGroup, path: &str) -> Markup {
    let newest = group.newest_task.to_string();
    let here = format!("{path}?status={}", asked.status);
    let filter = group.filter().to_string();
    let verbs = match asked.status {
        TaskStatus::Failed => [TaskOperation::Retry, TaskOperation::Rerun, TaskOperation::Delete],
        _ => [TaskOperation::Retry, TaskOperation::Cancel, TaskOperation::Rerun],
    };
    let trial = parts::Button {
        to: "/actions/retry",
        fields: &[("ids", &newest)],
        words: "Retry the newest as a trial",
        consequence: "It waits again and is due at once.",
        class: "sure",
        act: Some("retry"),
    };
    html! {
        section .card {
            h2 { "What to do" }
            div .row {
                (trial.show(app, &format!("{here}&trial={newest}")))
                @for verb in verbs.into_iter().filter(|verb| viewer.may(verb.needs())) {
                    a .button .plain href=(preview_address(app, verb, &filter, &here))
                      title=(verb.consequence()) { (words(verb)) "…" }
                }
            }
            p .soft { "The trial is task " (newest) ". What is done to all of them is shown before it is done. They are found by "
                code { (filter) } ", which may mean others with a similar error, too." }
        }
    }
}

fn words(verb: TaskOperation) -> &'static str {
    match verb {
        TaskOperation::Retry => "Retry the rest",
        TaskOperation::Cancel => "Cancel all",
        TaskOperation::Rerun => "Rerun all",
        TaskOperation::Delete => "Delete all",
    }
}

/// The newest as it is: searches leave backtraces out.
async fn example(app: &App, group: &ErrorGroup) -> Result<Markup, Problem> {
    let task = app.task(group.newest_task).await.ok();
    let error = task.as_ref().and_then(|task| {
        let last = task.executions.iter().rev().find_map(|execution| execution.error.as_ref());
        last.or(task.row.error.as_ref())
    });
    Ok(html! {
        section .card {
            h2 { "Example: task " (parts::task_link(app, group.newest_task)) }
            @match error {
                Some(error) => (shown::error(error)),
                None => p { (shown::message(&group.example)) },
            }
        }
    })
}

fn tasks(app: &App, asked: Asked, group: &ErrorGroup, failures: &Failures, path: &str) -> Markup {
    let found = &failures.found;
    let of: Vec<FoundTask> =
        found.tasks.iter().filter(|task| group.contains(task)).take(TASKS_MAX).cloned().collect();
    html! {
        section #tasks .card data-live {
            h2 { @if of.len() < group.count { "The newest " (of.len()) " of its tasks" } @else { "Its tasks" } }
            (table(app, &of, found.now, false))
            (how_far(app, asked, failures, path, Some(group)))
        }
    }
}
