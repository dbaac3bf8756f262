//! Queues: what waits in each, who serves it, and whether it is paused.

use std::time::Duration;

use axum::extract::State;
use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::queue::{QueueService, queue_services};
use task_engine_operations::stats::QueueStats;
use task_engine_store::token::Role;

use super::links;
use crate::app::App;
use crate::glance::{Now, Span};
use crate::layout::{self, Viewer};
use crate::parts::{self, Button};
use crate::problem::Problem;

/// So many queues are shown: the page is read again whenever something changes.
const ROWS_MAX: usize = 200;

pub(crate) async fn page(State(app): State<App>, viewer: Viewer) -> Result<Markup, Problem> {
    let now = app.glance.now().await?;
    let main = html! {
        h1 { "Queues" }
        section .card #queues data-live {
            @if now.figures.queues.is_empty() {
                (parts::empty(
                    "No task waits, no queue is paused, and no engine serves one. Start an engine:",
                    "task-engine start --queue default",
                ))
            } @else {
                (table(&app, &viewer, &now))
                (forecast(&app, &now).await?)
            }
        }
        @if viewer.may(Role::Operator) { (pause_any(&app, &viewer)) }
    };
    Ok(layout::page(&app, &viewer, "Queues", "/queues", main).await)
}

/// When what is due would be done, if it goes on like this.
async fn forecast(app: &App, now: &Now) -> Result<Markup, Problem> {
    let goes_on = |queue: &&QueueStats| {
        queue.row.paused.is_none() && !queue_services(&queue.row.name, &now.engines).is_empty()
    };
    let due: i64 =
        now.figures.queues.iter().filter(goes_on).map(|queue| queue.row.due.counted).sum();
    let series = app.glance.series(Span::Hour, now.figures.at).await?;
    let Some(rate) = series.ok_per_sec(now.figures.at).filter(|_| due > 0) else {
        return Ok(html! {});
    };
    #[allow(clippy::cast_precision_loss)]
    let left = Duration::try_from_secs_f64(due as f64 / rate).unwrap_or(Duration::MAX);
    if left < Duration::from_secs(1) {
        return Ok(html! {});
    }
    let rate = if rate >= 1.0 {
        format!("{rate:.0} a second")
    } else {
        format!("{:.0} a minute", (rate * 60.0).max(1.0))
    };
    Ok(html! {
        p .soft .last {
            "At the pace of the last minutes (" (rate) "), what is due in queues that are open and served would be done in about "
            (parts::span(left)) ", if nothing new came."
        }
    })
}

fn table(app: &App, viewer: &Viewer, now: &Now) -> Markup {
    html! {
        div .scroll {
            table .stack {
                thead { tr {
                    th scope="col" { "Queue" }
                    th scope="col" .number { "Due" }
                    th scope="col" .number { "Later" }
                    th scope="col" .number { "Running" }
                    th scope="col" .number { "Oldest due" }
                    th scope="col" { "Workers" }
                    th scope="col" { "State" }
                    th scope="col" { span .visually-hidden { "Actions" } }
                } }
                tbody {
                    @for queue in now.figures.queues.iter().take(ROWS_MAX) { (row(app, viewer, now, queue)) }
                }
            }
        }
        @if now.figures.queues.len() > ROWS_MAX {
            p .soft .last { "These are " (ROWS_MAX) " of " (now.figures.queues.len()) " queues. "
                code { "task-engine queues" } " has all of them." }
        }
    }
}

fn row(app: &App, viewer: &Viewer, now: &Now, queue: &QueueStats) -> Markup {
    let name = &queue.row.name;
    html! {
        tr data-key=(name) {
            td { a href=(links::tasks(app, &[("queue", name)])) { (name) } }
            td .number data-label="due" { (parts::number(queue.row.due)) }
            td .number data-label="later" { (parts::number(queue.row.later)) }
            td .number data-label="running" { (queue.row.running) }
            td .number data-label="oldest due" { (oldest(queue)) }
            td data-label="workers" { (served(&queue_services(name, &now.engines), queue.row.due.counted > 0)) }
            td { (state(app, queue, now.figures.at)) }
            td .acts { @if viewer.may(Role::Operator) { (acts(app, viewer, queue)) } }
        }
    }
}

pub(super) fn oldest(queue: &QueueStats) -> String {
    let long = queue.oldest_due_secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
    // Less than a second is no time to wait.
    match long {
        Some(long) if long >= Duration::from_secs(1) => parts::span(long),
        Some(_) => "now".to_owned(),
        None => "–".to_owned(),
    }
}

fn served(services: &[QueueService], is_needed: bool) -> Markup {
    const SHOWN_MAX: usize = 4;
    html! {
        @if services.is_empty() {
            @if is_needed { (parts::state("warn", "nobody")) } @else { span .soft { "nobody" } }
        }
        @for service in services.iter().take(SHOWN_MAX) {
            span .item {
                (service.workers) " at " (service.instance)
                @if service.reserved > 0 {
                    small title="For tasks of a higher priority only" {
                        " +" (service.reserved) " reserved"
                    }
                }
            }
        }
        @if services.len() > SHOWN_MAX {
            details {
                summary { "and " (services.len() - SHOWN_MAX) " more" }
                @for service in services.iter().skip(SHOWN_MAX) {
                    span .item { (service.workers + service.reserved) " at " (service.instance) }
                }
            }
        }
    }
}

fn state(app: &App, queue: &QueueStats, now: Timestamp) -> Markup {
    let Some(paused) = &queue.row.paused else { return parts::state("good", "open") };
    html! {
        (parts::state("warn", "paused"))
        " " small { (parts::time(app, paused.paused_at, now)) }
        @if let Some(reason) = &paused.reason { div { (reason) } }
    }
}

fn acts(app: &App, viewer: &Viewer, queue: &QueueStats) -> Markup {
    let name = queue.row.name.as_str();
    if queue.row.paused.is_some() {
        return resume(app, viewer, name);
    }
    html! {
        details .ask {
            summary { "Pause" }
            form method="post" action=(app.path("/actions/pause-queue")) {
                input type="hidden" name="back" value=(viewer.here);
                input type="hidden" name="queue" value=(name);
                (reason())
                p .soft { "No task of it starts until it is resumed. Those that run finish." }
                button { "Pause " (name) }
            }
        }
    }
}

pub(super) fn resume(app: &App, viewer: &Viewer, name: &str) -> Markup {
    let button = Button {
        to: "/actions/resume-queue",
        fields: &[("queue", name)],
        words: "Resume",
        consequence: "Its tasks may start again, at once",
        class: "plain",
        act: None,
    };
    button.show(app, &viewer.here)
}

/// A queue that nobody knows yet can be paused, too.
fn pause_any(app: &App, viewer: &Viewer) -> Markup {
    html! {
        details .card .ask {
            summary { "Pause another queue" }
            form method="post" action=(app.path("/actions/pause-queue")) {
                input type="hidden" name="back" value=(viewer.here);
                div .fields {
                    label { "Queue" input type="text" name="queue" required maxlength="200"; }
                    (reason())
                }
                p .soft { "The pause is for what may come: it holds until it is ended, whatever is started meanwhile." }
                button { "Pause" }
            }
        }
    }
}

pub(super) fn reason() -> Markup {
    html! {
        label { "Why (for whoever wonders)" input type="text" name="reason" maxlength="1000"; }
    }
}
