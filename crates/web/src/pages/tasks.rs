//! The list of tasks, filtered, newest first.

mod preview;
mod suggest;
mod table;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use task_engine_core::ParseError;
use task_engine_core::display::capitalize;
use task_engine_core::filter::{Filter, InvalidFilter};
use task_engine_core::queue::BoundedCount;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_operations::search::{Search, SearchPage, TIMEOUT};
use task_engine_store::token::Role;

use super::operations::FormFields;
use crate::app::{App, encoded};
use crate::cache::LiveState;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::parts;
use crate::routes::Routes;
use task_engine_operations::tasks::TaskOperation;

pub(crate) use suggest::{KnownNames, Suggestions};
pub(crate) use table::table;

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.get("/tasks", Role::Viewer, page).get("/suggestions", Role::Viewer, suggestions).get(
        "/tasks/preview",
        Role::Operator,
        preview::page,
    )
}

/// Tasks per page.
const ROWS: u32 = 50;

/// The query of the page.
struct TasksQuery {
    text: String,
    filter: Result<Filter, InvalidFilter>,
    before: Option<TaskId>,
}

async fn page(
    State(app): State<App>,
    viewer: Viewer,
    fields: FormFields,
) -> Result<Response, ApiError> {
    let query = TasksQuery::read(&app, &fields)?;
    let now = app.cache.now().await?;
    let found = match &query.filter {
        Ok(filter) => {
            let filter = app.allowed(&viewer.actor, filter.clone()).await?;
            Some(search(&app, &filter, query.before).await?)
        }
        Err(_) => None,
    };
    let main = html! {
        div .row .between .head {
            h1 { "Tasks" }
            @if viewer.may(Role::Operator) {
                a .button .plain href=(app.path("/tasks/new")) { "New task" }
            }
        }
        (form(&app, &query))
        (chips(&app, &query, &now))
        @if let Some(found) = &found { (results(&app, &viewer, &query, found)) }
    };
    let status = if found.is_some() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    Ok((status, layout::page(&app, &viewer, "Tasks", "/tasks", main).await).into_response())
}

impl TasksQuery {
    fn read(app: &App, fields: &FormFields) -> Result<Self, ApiError> {
        let text = fields.get("filter").unwrap_or_default().to_owned();
        let before = fields.get("before").map(str::parse).transpose();
        let before = before.map_err(|why: ParseError| ApiError::field("/before", why))?;
        Ok(Self { filter: Filter::parse(&text, &app.zone), text, before })
    }
}

async fn search(
    app: &App,
    filter: &Filter,
    before: Option<TaskId>,
) -> Result<SearchPage, ApiError> {
    let search = Search { filter: filter.clone(), before, limit: ROWS, timeout: TIMEOUT };
    Ok(search.run(&*app.store).await?)
}

/// The address of a filtered list.
pub(crate) fn address(app: &App, filter: &str, before: Option<TaskId>) -> String {
    let mut query = Vec::new();
    if !filter.is_empty() {
        query.push(format!("filter={}", encoded(filter)));
    }
    query.extend(before.map(|id| format!("before={id}")));
    let joint = if query.is_empty() { "" } else { "?" };
    app.path(&format!("/tasks{joint}{}", query.join("&")))
}

fn form(app: &App, query: &TasksQuery) -> Markup {
    let wrong = query.filter.as_ref().err();
    html! {
        form .filter method="get" action=(app.path("/tasks")) role="search" {
            div .combo {
                input #filter type="search" name="filter" value=(query.text) data-filter
                      data-suggestions=(app.path("/suggestions")) aria-label="Filter"
                      placeholder="status=failed class=send_mail created>now-2h"
                      autocomplete="off" autocapitalize="off" spellcheck="false"
                      aria-invalid=[wrong.map(|_| "true")]
                      aria-describedby=[wrong.map(|_| "filter-wrong")];
            }
            button { "Find" }
        }
        @if let Some(wrong) = wrong {
            div #filter-wrong .flash .bad role="alert" {
                p { "Invalid filter: " (wrong) }
                pre .field-error { (query.text) "\n" (" ".repeat(wrong.at.saturating_sub(1))) "^" }
            }
        }
        (help())
    }
}

fn help() -> Markup {
    html! {
        details .help {
            summary { "How to write a filter" }
            p { "Separate terms by spaces: a task must match all. Separate values by commas: it must match one. "
                code { "status=failed,cancelled class=send_mail error~\"429\" created>now-2h params.user.id=42" } }
            p { code { "created>now-2h" } ": created within the last two hours, "
                code { "created<now-2h" } ": longer ago, " code { "created>2026-12-24" } ": after that time. "
                code { "~" } ": contains, ignoring case." }
            dl .facts {
                @for (name, operators, about) in suggest::FIELDS {
                    dt { code { (name) @if operators.is_empty() { "…" } } }
                    dd { (about) " " small { (operators.join(" ")) } }
                }
            }
        }
    }
}

/// The statuses, with their counts where they are known.
fn chips(app: &App, query: &TasksQuery, now: &LiveState) -> Markup {
    let filter = query.filter.clone().unwrap_or_default();
    let chosen = match (filter.has_status(), &filter.statuses()[..]) {
        (false, _) => Some(None),
        (true, [one]) => Some(Some(*one)),
        _ => None,
    };
    let rest = filter.without_status();
    let all = [None].into_iter().chain(TaskStatus::ALL.into_iter().map(Some));
    html! {
        ul #chips .chips data-live aria-label="Status" {
            @for status in all {
                @let with = status.map(|status| Filter::default().and_status(&[status]));
                @let text = with.unwrap_or_default().and(rest.clone()).to_string();
                li {
                    a href=(address(app, &text, None))
                      aria-current=[(query.filter.is_ok() && chosen == Some(status)).then_some("true")] {
                        @match status {
                            None => "All",
                            Some(status) => (capitalize(status.explained())),
                        }
                        @if let Some(count) = status.and_then(|status| count(now, status)) {
                            small .number { (parts::number(count)) }
                        }
                    }
                }
            }
        }
    }
}

/// Counts all tasks, regardless of the filter. Succeeded tasks are not counted.
fn count(now: &LiveState, status: TaskStatus) -> Option<BoundedCount> {
    let stats = &now.stats;
    match status {
        TaskStatus::Waiting => Some(BoundedCount {
            counted: stats.due.counted + stats.later.counted,
            and_more: stats.due.and_more || stats.later.and_more,
        }),
        TaskStatus::Running => {
            Some(BoundedCount { counted: i64::try_from(stats.running).ok()?, and_more: false })
        }
        TaskStatus::Stopped => None,
        TaskStatus::Failed => Some(stats.failure_counts.failed),
        TaskStatus::Cancelled => Some(stats.failure_counts.cancelled),
    }
}

fn results(app: &App, viewer: &Viewer, query: &TasksQuery, found: &SearchPage) -> Markup {
    let can_act = viewer.may(Role::Operator);
    let empty = found.tasks.is_empty();
    let list = html! {
        section #results .card data-live data-hold aria-label="Tasks" {
            @if !empty { (table(app, &found.tasks, found.now, can_act)) }
            @else if found.next.is_none() { (nothing(query)) }
            (paging(app, query, found))
        }
    };
    html! {
        button .pill type="button" hidden data-pill {}
        @if can_act {
            form method="get" action=(app.path("/tasks/preview")) {
                input type="hidden" name="back" value=(viewer.here);
                (list)
                @if !empty { (bulk(app, viewer, query)) }
            }
        } @else { (list) }
    }
}

fn nothing(query: &TasksQuery) -> Markup {
    if query.text.is_empty() && query.before.is_none() {
        return parts::empty(
            "There are no tasks yet. Create one:",
            "task-engine create WaitingTask '{\"waiting_time\": 2}'",
        );
    }
    if query.before.is_some() {
        return parts::empty("No older tasks.", "");
    }
    parts::empty("No tasks match.", "")
}

fn paging(app: &App, query: &TasksQuery, found: &SearchPage) -> Markup {
    html! {
        div .row .paging {
            @if let Some(next) = found.next {
                @if found.tasks.is_empty() {
                    span { "Nothing found yet: searched down to task " (next) "." }
                } @else if found.tasks.len() < ROWS as usize {
                    span { "Searched down to task " (next) "; there may be more." }
                }
                a .button .plain rel="next" href=(address(app, &query.text, Some(next))) {
                    @if found.tasks.len() < ROWS as usize { "Go on below task " (next) } @else { "Older" }
                }
            }
            @if query.before.is_some() {
                a .button .plain href=(address(app, &query.text, None)) { "Newest" }
            }
        }
    }
}

/// Bulk operations on the selected tasks, or on all that match.
fn bulk(app: &App, viewer: &Viewer, query: &TasksQuery) -> Markup {
    let operations =
        || TaskOperation::ALL.into_iter().filter(|operation| viewer.may(operation.needs()));
    html! {
        div .bulk .row data-selected {
            span { b data-selected-count { "Selected" } " selected" }
            @for operation in operations() {
                button .plain name="operation" value=(operation.as_str()) data-bulk=(operation.as_str())
                       title=(operation.consequence()) { (capitalize(operation.as_str())) }
            }
        }
        @if !query.text.is_empty() {
            p .row .soft {
                span { "All matching tasks, on every page:" }
                @for operation in operations() {
                    a href=(preview_address(app, operation, &query.text, &viewer.here))
                      title=(operation.consequence()) { (capitalize(operation.as_str())) " all matching" }
                }
            }
        }
    }
}

/// The address of the preview of a bulk action.
pub(crate) fn preview_address(
    app: &App,
    operation: TaskOperation,
    filter: &str,
    back: &str,
) -> String {
    let (operation, filter, back) = (operation.as_str(), encoded(filter), encoded(back));
    app.path(&format!("/tasks/preview?operation={operation}&filter={filter}&back={back}"))
}

async fn suggestions(
    State(app): State<App>,
    fields: FormFields,
) -> Result<Json<Suggestions>, ApiError> {
    let text = fields.all("text").next().unwrap_or_default();
    let at = fields.get("at").and_then(|at| at.parse().ok()).unwrap_or(usize::MAX);
    let known = KnownNames::of(&*app.cache.now().await?);
    Ok(Json(suggest::suggest(text, at, &known)))
}

impl KnownNames {
    /// Names that engines know, or that tasks use now.
    pub(crate) fn of(now: &LiveState) -> Self {
        let engines = || now.engines.iter();
        let mut classes: Vec<_> =
            engines().flat_map(|engine| engine.classes.keys().cloned()).collect();
        classes.extend(now.activity.next.iter().map(|next| next.class.clone()));
        classes.extend(now.activity.held.iter().map(|held| held.class.clone()));
        let mut queues: Vec<_> = engines().flat_map(|engine| engine.queues.clone()).collect();
        queues.extend(now.stats.queues.iter().map(|queue| queue.row.name.clone()));
        let instances = engines().map(|engine| engine.name.clone()).collect();
        Self { classes: sorted(classes), queues: sorted(queues), instances: sorted(instances) }
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}
