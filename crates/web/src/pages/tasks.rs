//! The tasks that a filter means, newest first.

mod preview;
mod suggest;
mod table;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use task_engine_core::ParseError;
use task_engine_core::display::capitalize;
use task_engine_core::filter::{Filter, InvalidFilter};
use task_engine_core::queue::BoundedCount;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_operations::search::{Search, SearchPage, TIMEOUT};
use task_engine_store::token::Role::{Operator, Viewer as AsViewer};

use super::actions::Fields;
use crate::app::{App, encoded};
use crate::glance::Now;
use crate::layout::{self, Viewer};
use crate::parts;
use crate::problem::Problem;
use crate::routes::Routes;
use task_engine_operations::tasks::TaskOperation;

pub(crate) use suggest::{Known, Suggestions};
pub(crate) use table::table;

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.get("/tasks", AsViewer, page).get("/suggestions", AsViewer, suggestions).get(
        "/tasks/preview",
        Operator,
        preview::page,
    )
}

/// How many tasks a page has.
const ROWS: u32 = 50;

/// What the address asks for.
struct Asked {
    text: String,
    filter: Result<Filter, InvalidFilter>,
    before: Option<TaskId>,
}

async fn page(
    State(app): State<App>,
    viewer: Viewer,
    query: RawQuery,
) -> Result<Response, Problem> {
    let asked = Asked::read(&app, &Fields::of_query(&query))?;
    let now = app.glance.now().await?;
    let found = match &asked.filter {
        Ok(filter) => {
            let filter = app.allowed(&viewer.actor, filter.clone()).await?;
            Some(search(&app, &filter, asked.before).await?)
        }
        Err(_) => None,
    };
    let main = html! {
        div .row .between .head {
            h1 { "Tasks" }
            @if viewer.may(Operator) {
                a .button .plain href=(app.path("/tasks/new")) { "New task" }
            }
        }
        (form(&app, &asked))
        (chips(&app, &asked, &now))
        @if let Some(found) = &found { (results(&app, &viewer, &asked, found)) }
    };
    let status = if found.is_some() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    Ok((status, layout::page(&app, &viewer, "Tasks", "/tasks", main).await).into_response())
}

impl Asked {
    fn read(app: &App, fields: &Fields) -> Result<Self, Problem> {
        let text = fields.get("filter").unwrap_or_default().to_owned();
        let before = fields.get("before").map(str::parse).transpose();
        let before = before.map_err(|why: ParseError| Problem::field("/before", why))?;
        Ok(Self { filter: Filter::parse(&text, &app.zone), text, before })
    }
}

async fn search(app: &App, filter: &Filter, before: Option<TaskId>) -> Result<SearchPage, Problem> {
    let search = Search { filter: filter.clone(), before, limit: ROWS, timeout: TIMEOUT };
    Ok(search.run(&*app.store).await?)
}

/// The address of the tasks that a filter means.
pub(crate) fn address(app: &App, filter: &str, before: Option<TaskId>) -> String {
    let mut query = Vec::new();
    if !filter.is_empty() {
        query.push(format!("filter={}", encoded(filter)));
    }
    query.extend(before.map(|id| format!("before={id}")));
    let joint = if query.is_empty() { "" } else { "?" };
    app.path(&format!("/tasks{joint}{}", query.join("&")))
}

fn form(app: &App, asked: &Asked) -> Markup {
    let wrong = asked.filter.as_ref().err();
    html! {
        form .filter method="get" action=(app.path("/tasks")) role="search" {
            div .combo {
                input #filter type="search" name="filter" value=(asked.text) data-filter
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
                p { "This filter cannot be read: " (wrong) }
                pre .mistake { (asked.text) "\n" (" ".repeat(wrong.at.saturating_sub(1))) "^" }
            }
        }
        (help())
    }
}

fn help() -> Markup {
    html! {
        details .help {
            summary { "How to write a filter" }
            p { "Terms with spaces between; all of them must hold. Several values with commas between mean any of them: "
                code { "status=failed,cancelled class=send_mail error~\"429\" created>now-2h params.user.id=42" } }
            p { code { "created>now-2h" } " was created within the last two hours, "
                code { "created<now-2h" } " longer ago; " code { "created>2026-12-24" } " after that time. "
                code { "~" } " finds a text anywhere inside, in either case." }
            dl .facts {
                @for (name, operators, about) in suggest::FIELDS {
                    dt { code { (name) @if operators.is_empty() { "…" } } }
                    dd { (about) " " small { (operators.join(" ")) } }
                }
            }
        }
    }
}

/// The statuses, each with how many there are where that is known.
fn chips(app: &App, asked: &Asked, now: &Now) -> Markup {
    let filter = asked.filter.clone().unwrap_or_default();
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
                      aria-current=[(asked.filter.is_ok() && chosen == Some(status)).then_some("true")] {
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

/// Counted for all tasks, whatever else the filter says. How many have done
/// their work, nobody counts.
fn count(now: &Now, status: TaskStatus) -> Option<BoundedCount> {
    let figures = &now.figures;
    match status {
        TaskStatus::Waiting => Some(BoundedCount {
            counted: figures.due.counted + figures.later.counted,
            and_more: figures.due.and_more || figures.later.and_more,
        }),
        TaskStatus::Running => {
            Some(BoundedCount { counted: i64::try_from(figures.running).ok()?, and_more: false })
        }
        TaskStatus::Stopped => None,
        TaskStatus::Failed => Some(figures.failure_counts.failed),
        TaskStatus::Cancelled => Some(figures.failure_counts.cancelled),
    }
}

fn results(app: &App, viewer: &Viewer, asked: &Asked, found: &SearchPage) -> Markup {
    let acts = viewer.may(Operator);
    let empty = found.tasks.is_empty();
    let list = html! {
        section #results .card data-live data-hold aria-label="Tasks" {
            @if !empty { (table(app, &found.tasks, found.now, acts)) }
            @else if found.next.is_none() { (nothing(asked)) }
            (paging(app, asked, found))
        }
    };
    html! {
        button .pill type="button" hidden data-pill {}
        @if acts {
            form method="get" action=(app.path("/tasks/preview")) {
                input type="hidden" name="back" value=(viewer.here);
                (list)
                @if !empty { (bulk(app, viewer, asked)) }
            }
        } @else { (list) }
    }
}

fn nothing(asked: &Asked) -> Markup {
    if asked.text.is_empty() && asked.before.is_none() {
        return parts::empty(
            "There is no task yet. This creates one:",
            "task-engine create WaitingTask '{\"waiting_time\": 2}'",
        );
    }
    if asked.before.is_some() {
        return parts::empty("There are no older ones.", "");
    }
    parts::empty("No task is meant by this filter.", "")
}

fn paging(app: &App, asked: &Asked, found: &SearchPage) -> Markup {
    html! {
        div .row .paging {
            @if let Some(next) = found.next {
                @if found.tasks.is_empty() {
                    span { "Nothing found yet: searched down to task " (next) "." }
                } @else if found.tasks.len() < ROWS as usize {
                    span { "These were found down to task " (next) "; there may be more." }
                }
                a .button .plain rel="next" href=(address(app, &asked.text, Some(next))) {
                    @if found.tasks.len() < ROWS as usize { "Go on below task " (next) } @else { "Older" }
                }
            }
            @if asked.before.is_some() {
                a .button .plain href=(address(app, &asked.text, None)) { "Newest" }
            }
        }
    }
}

/// What can be done to those that are chosen, or to all that are meant.
fn bulk(app: &App, viewer: &Viewer, asked: &Asked) -> Markup {
    let verbs = || TaskOperation::ALL.into_iter().filter(|verb| viewer.may(verb.needs()));
    html! {
        div .bulk .row data-selected {
            span { b data-selected-count { "Selected" } " selected" }
            @for verb in verbs() {
                button .plain name="verb" value=(verb.as_str()) data-bulk=(verb.as_str())
                       title=(verb.consequence()) { (capitalize(verb.as_str())) }
            }
        }
        @if !asked.text.is_empty() {
            p .row .soft {
                span { "All that this filter means, on every page:" }
                @for verb in verbs() {
                    a href=(preview_address(app, verb, &asked.text, &viewer.here))
                      title=(verb.consequence()) { (capitalize(verb.as_str())) " all matching" }
                }
            }
        }
    }
}

/// Where somebody sees what would happen before it does.
pub(crate) fn preview_address(app: &App, verb: TaskOperation, filter: &str, back: &str) -> String {
    let (verb, filter, back) = (verb.as_str(), encoded(filter), encoded(back));
    app.path(&format!("/tasks/preview?verb={verb}&filter={filter}&back={back}"))
}

async fn suggestions(
    State(app): State<App>,
    query: RawQuery,
) -> Result<Json<Suggestions>, Problem> {
    let fields = Fields::of_query(&query);
    let text = fields.all("text").next().unwrap_or_default();
    let at = fields.get("at").and_then(|at| at.parse().ok()).unwrap_or(usize::MAX);
    let known = Known::of(&*app.glance.now().await?);
    Ok(Json(suggest::suggest(text, at, &known)))
}

impl Known {
    /// Names that engines know, or that are in use now.
    pub(crate) fn of(now: &Now) -> Self {
        let engines = || now.engines.iter();
        let mut classes: Vec<_> =
            engines().flat_map(|engine| engine.classes.keys().cloned()).collect();
        classes.extend(now.moving.next.iter().map(|next| next.task_class.clone()));
        classes.extend(now.moving.held.iter().map(|held| held.task_class.clone()));
        let mut queues: Vec<_> = engines().flat_map(|engine| engine.queues.clone()).collect();
        queues.extend(now.figures.queues.iter().map(|queue| queue.row.name.clone()));
        let instances = engines().map(|engine| engine.name.clone()).collect();
        Self { classes: sorted(classes), queues: sorted(queues), instances: sorted(instances) }
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}
