//! What fails, in groups of the same error.

mod group;

use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use task_engine_core::ParseError;
use task_engine_core::display::{brief, count, count_text};
use task_engine_core::filter::Filter;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_operations::errors::{ErrorGroup, Failures, HOURS, LIMIT};
use task_engine_operations::search::SearchPage;
use task_engine_store::token::Role::Viewer as AsViewer;

use super::actions::Fields;
use crate::app::App;
use crate::layout::{self, Viewer};
use crate::problem::Problem;
use crate::routes::Routes;
use crate::{parts, shown};

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.get("/errors", AsViewer, page).get("/errors/{key}", AsViewer, group::page)
}

/// Which failures: those that were given up, or those that are retried.
#[derive(Debug, Clone, Copy)]
struct Asked {
    status: TaskStatus,
    before: Option<TaskId>,
}

impl Asked {
    fn read(fields: &Fields) -> Result<Self, Problem> {
        let status = match fields.get("status").unwrap_or("failed") {
            "failed" => TaskStatus::Failed,
            "waiting" => TaskStatus::Waiting,
            other => {
                let why = format!("Errors are of failed or waiting tasks, not of {other:?}.");
                return Err(Problem::field("/status", why));
            }
        };
        let before = fields.get("before").map(str::parse).transpose();
        let before = before.map_err(|why: ParseError| Problem::field("/before", why))?;
        Ok(Self { status, before })
    }

    /// The newest of them, as many as one look can take.
    async fn find(&self, app: &App) -> Result<Failures, Problem> {
        let filter = Filter::default().and_status(&[self.status]);
        Ok(Failures::find(&*app.store, filter, self.before, LIMIT).await?)
    }

    /// The same look, at a page of it.
    fn address(&self, app: &App, path: &str) -> String {
        let before = self.before.map_or_else(String::new, |id| format!("&before={id}"));
        app.path(&format!("{path}?status={}{before}", self.status))
    }
}

async fn page(State(app): State<App>, viewer: Viewer, query: RawQuery) -> Result<Markup, Problem> {
    let asked = Asked::read(&Fields::of_query(&query))?;
    let failures = asked.find(&app).await?;
    let groups = failures.groups();
    let main = html! {
        h1 { "Errors" }
        (switch(&app, asked))
        section #groups .card data-live {
            (sample(&failures))
            @if groups.is_empty() { (nothing(asked, &failures.found)) }
            @else { (table(&app, asked, &groups, &failures.found)) }
            (how_far(&app, asked, &failures, "/errors", None))
        }
    };
    Ok(layout::page(&app, &viewer, "Errors", "/errors", main).await)
}

fn switch(app: &App, asked: Asked) -> Markup {
    html! {
        ul .chips aria-label="Which failures" {
            @for (status, words) in [(TaskStatus::Failed, "Given up"), (TaskStatus::Waiting, "Being retried")] {
                li {
                    a href=(Asked { status, before: None }.address(app, "/errors"))
                      aria-current=[(asked.status == status).then_some("true")] { (words) }
                }
            }
        }
    }
}

fn nothing(asked: Asked, found: &SearchPage) -> Markup {
    match (asked.status, found.next) {
        (_, Some(_)) => parts::empty("Nothing found yet.", ""),
        (TaskStatus::Failed, None) => parts::empty(
            "No task has failed. One that fails, and has no retry left, is here until somebody retries or deletes it.",
            "task-engine errors",
        ),
        _ => parts::empty("No task waits for a retry.", "task-engine errors status=waiting"),
    }
}

fn table(app: &App, asked: Asked, groups: &[ErrorGroup], found: &SearchPage) -> Markup {
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
                                a href=(asked.address(app, &format!("/errors/{}", group.key()))) {
                                    (group.exception) ": " (brief(shown::message(&group.message), 160))
                                }
                                @if group.example != group.message {
                                    br; small .soft { "e.g. " (brief(shown::message(&group.example), 160)) }
                                }
                            }
                            td .name { (group.task_class) }
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

/// A bar for each hour; the highest is full, and what is not nothing is seen.
fn trend(per_hour: &[usize; HOURS]) -> Markup {
    const WIDTH: usize = 8;
    const HEIGHT: usize = 24;
    let most = per_hour.iter().copied().max().unwrap_or(0).max(1);
    let words = format!(
        "{} in the last hour, {} in the last {HOURS} hours",
        per_hour[HOURS - 1],
        per_hour.iter().sum::<usize>()
    );
    html! {
        svg .trend viewBox={ "0 0 " (HOURS * WIDTH) " " (HEIGHT) } role="img" aria-label=(words) {
            title { (words) }
            @for (hour, number) in per_hour.iter().enumerate() {
                @let height = (number * HEIGHT).div_ceil(most).max(1);
                rect .(if *number == 0 { "none" } else { "bad" })
                     x=(hour * WIDTH) y=(HEIGHT - height) width=(WIDTH - 2) height=(height) {}
            }
        }
    }
}

/// Above all numbers that are not of all failures.
pub(super) fn sample(failures: &Failures) -> Markup {
    let looked_at = failures.found.tasks.len();
    html! {
        @if failures.is_sample() {
            p .soft .sum {
                "A sample: the newest " (looked_at)
                @if let Some(total) = failures.total { " of " (count_text(total)) " failed tasks" }
                @else { " tasks with an error" }
                ". Older ones are not counted."
            }
        }
    }
}

/// How far this page has looked; on the page of a group, how many of those are its own.
fn how_far(
    app: &App,
    asked: Asked,
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
                None => span .soft { (number) ": all there are" @if asked.before.is_some() { " below that task" } "." },
                Some(next) => {
                    span .soft { (number) ": searched down to task " (next) "; older ones are not counted." }
                    a .button .plain rel="next" href=(Asked { before: Some(next), ..asked }.address(app, path)) {
                        "Go on below task " (next)
                    }
                }
            }
            @if asked.before.is_some() {
                a .button .plain href=(Asked { before: None, ..asked }.address(app, path)) { "Newest" }
            }
        }
    }
}
