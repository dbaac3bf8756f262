//! Queues: backlog, workers and pauses.

use std::time::Duration;

use axum::extract::State;
use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::queue::{QueueService, queue_services};
use task_engine_operations::stats::QueueStats;
use task_engine_store::token::Role;

use super::links;
use crate::app::App;
use crate::cache::{LiveState, Span};
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::parts::Heading::{Hidden, Number, Text};
use crate::parts::{self, Button, ReasonForm};

/// Queues per page: the page is reloaded at every change.
const ROWS_MAX: usize = 200;

pub(crate) async fn page(State(app): State<App>, viewer: Viewer) -> Result<Markup, ApiError> {
    let now = app.cache.now().await?;
    let main = html! {
        h1 { "Queues" }
        section .card #queues data-live {
            @if now.stats.queues.is_empty() {
                (parts::empty(
                    "There are no queues: no task waits, and no engine serves one. Start an engine:",
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

/// The time to work off the backlog at the current throughput.
async fn forecast(app: &App, now: &LiveState) -> Result<Markup, ApiError> {
    let goes_on = |queue: &&QueueStats| {
        queue.row.paused.is_none() && !queue_services(&queue.row.name, &now.engines).is_empty()
    };
    let due: i64 = now.stats.queues.iter().filter(goes_on).map(|queue| queue.row.due.counted).sum();
    let series = app.cache.series(Span::Hour, now.stats.at).await?;
    let Some(rate) = series.ok_per_sec(now.stats.at).filter(|_| due > 0) else {
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
            "At the throughput of the last minutes (" (rate) "), the backlog of served queues takes about "
            (parts::span(left)) ", if no tasks are added."
        }
    })
}

fn table(app: &App, viewer: &Viewer, now: &LiveState) -> Markup {
    html! {
        (parts::table(&[
            Text("Queue"), Number("Backlog"), Number("Scheduled"), Number("Running"),
            Number("Queue latency"), Text("Workers"), Text("State"), Hidden("Actions"),
        ], &html! {
            @for queue in now.stats.queues.iter().take(ROWS_MAX) { (row(app, viewer, now, queue)) }
        }))
        @if now.stats.queues.len() > ROWS_MAX {
            p .soft .last { "These are " (ROWS_MAX) " of " (now.stats.queues.len()) " queues. "
                code { "task-engine queues" } " lists all." }
        }
    }
}

fn row(app: &App, viewer: &Viewer, now: &LiveState, queue: &QueueStats) -> Markup {
    let name = &queue.row.name;
    html! {
        tr data-key=(name) {
            td { a href=(links::tasks(app, &[("queue", name)])) { (name) } }
            td .number data-label="backlog" { (parts::number(queue.row.due)) }
            td .number data-label="scheduled" { (parts::number(queue.row.later)) }
            td .number data-label="running" { (queue.row.running) }
            td .number data-label="latency" { (oldest(queue)) }
            td data-label="workers" { (served(&queue_services(name, &now.engines), queue.row.due.counted > 0)) }
            td { (state(app, queue, now.stats.at)) }
            td .actions { @if viewer.may(Role::Operator) { (actions(app, viewer, queue)) } }
        }
    }
}

pub(super) fn oldest(queue: &QueueStats) -> String {
    let long = queue.oldest_due_secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
    // Below a second, not worth a number.
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
            @if is_needed { (parts::state("warn", "none")) } @else { span .soft { "none" } }
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

fn actions(app: &App, viewer: &Viewer, queue: &QueueStats) -> Markup {
    let name = queue.row.name.as_str();
    if queue.row.paused.is_some() {
        return resume(app, viewer, name);
    }
    let pause = ReasonForm {
        to: "/operations/pause-queue",
        back: &viewer.here,
        name,
        verb: "Pause",
        consequence: "No task of this queue starts until it is resumed. Running tasks finish.",
        danger: false,
    };
    pause.show(app)
}

pub(super) fn resume(app: &App, viewer: &Viewer, name: &str) -> Markup {
    let button = Button {
        to: "/operations/resume-queue",
        fields: &[("name", name)],
        label: "Resume",
        consequence: "Tasks of this queue start again",
        class: "plain",
        shortcut: None,
    };
    button.show(app, &viewer.here)
}

/// A queue that does not exist yet can be paused, too.
fn pause_any(app: &App, viewer: &Viewer) -> Markup {
    html! {
        details .card .ask {
            summary { "Pause another queue" }
            form method="post" action=(app.path("/operations/pause-queue")) {
                input type="hidden" name="back" value=(viewer.here);
                div .fields {
                    label { "Queue" input type="text" name="name" required maxlength="200"; }
                    (parts::reason_field())
                }
                p .soft { "The queue stays paused until it is resumed, also for tasks that are created later." }
                button { "Pause" }
            }
        }
    }
}
