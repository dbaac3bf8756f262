//! Errors, grouped.

mod group;

use axum::extract::State;
use maud::{Markup, html};
use task_engine_core::ParseError;
use task_engine_core::display::{brief, count, count_text};
use task_engine_core::filter::Filter;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_operations::errors::{ErrorGroup, Failures, HOURS, LIMIT};
use task_engine_operations::search::SearchPage;
use task_engine_store::token::Role;

use super::operations::FormFields;
use crate::app::App;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::routes::Routes;
use crate::{chart, parts};

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.get("/errors", Role::Viewer, page).get("/errors/{key}", Role::Viewer, group::page)
}

/// Which failures: final ones, or those that are retried.
#[derive(Debug, Clone, Copy)]
struct ErrorsQuery {
    status: TaskStatus,
    before: Option<TaskId>,
}

impl ErrorsQuery {
    fn read(fields: &FormFields) -> Result<Self, ApiError> {
        let status = match fields.get("status").unwrap_or("failed") {
            "failed" => TaskStatus::Failed,
            "waiting" => TaskStatus::Waiting,
            other => {
                let why = format!("Errors are of failed or waiting tasks, not of {other:?}.");
                return Err(ApiError::field("/status", why));
            }
        };
        let before = fields.get("before").map(str::parse).transpose();
        let before = before.map_err(|why: ParseError| ApiError::field("/before", why))?;
        Ok(Self { status, before })
    }

    /// The newest failures, up to the limit.
    async fn find(&self, app: &App) -> Result<Failures, ApiError> {
        let filter = Filter::default().and_status(&[self.status]);
        Ok(Failures::find(&*app.store, filter, self.before, LIMIT).await?)
    }

    /// The same query for another page.
    fn address(&self, app: &App, path: &str) -> String {
        let before = self.before.map_or_else(String::new, |id| format!("&before={id}"));
        app.path(&format!("{path}?status={}{before}", self.status))
    }
}

async fn page(
    State(app): State<App>,
    viewer: Viewer,
    fields: FormFields,
) -> Result<Markup, ApiError> {
    let query = ErrorsQuery::read(&fields)?;
    let failures = query.find(&app).await?;
    let groups = failures.groups();
    let main = html! {
        h1 { "Errors" }
        (switch(&app, query))
        section #groups .card data-live {
            (sample(&failures))
            @if groups.is_empty() { (nothing(query, &failures.found)) }
            @else { (table(&app, query, &groups, &failures.found)) }
            (search_range(&app, query, &failures, "/errors", None))
        }
    };
    Ok(layout::page(&app, &viewer, "Errors", "/errors", main).await)
}

fn switch(app: &App, query: ErrorsQuery) -> Markup {
    html! {
        ul .chips aria-label="Which failures" {
            @for (status, label) in [(TaskStatus::Failed, "Failed"), (TaskStatus::Waiting, "Being retried")] {
                li {
                    a href=(ErrorsQuery { status, before: None }.address(app, "/errors"))
                      aria-current=[(query.status == status).then_some("true")] { (label) }
                }
            }
        }
    }
}

fn nothing(query: ErrorsQuery, found: &SearchPage) -> Markup {
    match (query.status, found.next) {
        (_, Some(_)) => parts::empty("Nothing found yet.", ""),
        (TaskStatus::Failed, None) => parts::empty(
            "No task has failed. A task without retries left stays here until it is retried or deleted.",
            "task-engine errors",
        ),
        _ => parts::empty("No task waits for a retry.", "task-engine errors status=waiting"),
    }
}

fn table(app: &App, query: ErrorsQuery, groups: &[ErrorGroup], found: &SearchPage) -> Markup {
    html! {
        div .scroll {
            table .stack {
                thead {
                    tr {
                        th .number scope="col" { "Tasks" }
                        th scope="col" { "Error" }
                        th scope="col" { "Class" }
                        th scope="col" { "First seen" }
                        th scope="col" { "Last seen" }
                        th scope="col" { "Last " (HOURS) " hours" }
                        th .number scope="col" { "Newest" }
                    }
                }
                tbody {
                    @for group in groups {
                        tr data-key=(group.key()) {
                            td .number data-label="tasks" { (group.count) }
                            td {
                                a href=(query.address(app, &format!("/errors/{}", group.key()))) {
                                    (group.exception) ": " (brief(&group.message, 160))
                                }
                                @if group.example != group.message {
                                    br; small .soft { "e.g. " (brief(&group.example, 160)) }
                                }
                            }
                            td .name { (group.class) }
                            td .nowrap data-label="first" { (parts::time(app, group.first_seen, found.now)) }
                            td .nowrap data-label="last" { (parts::time(app, group.last_seen, found.now)) }
                            td { (trend(&group.per_hour)) }
                            td .number data-label="newest" { (parts::task_link(app, group.newest_task)) }
                        }
                    }
                }
            }
        }
    }
}

fn trend(per_hour: &[usize; HOURS]) -> Markup {
    let about = format!(
        "{} in the last hour, {} in the last {HOURS} hours",
        per_hour[HOURS - 1],
        per_hour.iter().sum::<usize>()
    );
    chart::sparkline(per_hour, &about)
}

/// A note if not all failures were counted.
pub(super) fn sample(failures: &Failures) -> Markup {
    let searched = failures.found.tasks.len();
    html! {
        @if failures.is_sample() {
            p .soft .sum {
                "A sample: the newest " (searched)
                @if let Some(total) = failures.total { " of " (count_text(total)) " failed tasks" }
                @else { " tasks with an error" }
                ". Older ones are not counted."
            }
        }
    }
}

/// Which tasks were searched; on the page of a group, how many belong to it.
fn search_range(
    app: &App,
    query: ErrorsQuery,
    failures: &Failures,
    path: &str,
    group: Option<&ErrorGroup>,
) -> Markup {
    let all = format!("{} with an error", count(failures.found.tasks.len(), "task"));
    let number = match group {
        Some(group) => format!("{} of {all} have this error", group.count),
        None => all,
    };
    html! {
        div .row .paging {
            @match failures.found.next {
                None => span .soft { (number) ": all there are" @if query.before.is_some() { " below that task" } "." },
                Some(next) => {
                    span .soft { (number) ": searched down to task " (next) "; older ones are not counted." }
                    a .button .plain rel="next" href=(ErrorsQuery { before: Some(next), ..query }.address(app, path)) {
                        "Go on below task " (next)
                    }
                }
            }
            @if query.before.is_some() {
                a .button .plain href=(ErrorsQuery { before: None, ..query }.address(app, path)) { "Newest" }
            }
        }
    }
}
