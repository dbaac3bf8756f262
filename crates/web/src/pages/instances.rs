//! Engines: their state, their tasks, and tasks of dead engines.

use std::collections::BTreeMap;

use axum::extract::State;
use maud::{Markup, html};
use task_engine_core::display::{count, progress_text};
use task_engine_core::instance::InstanceId;
use task_engine_core::instance::InstanceRow;
use task_engine_core::json::Json;
use task_engine_core::queue::Pool;
use task_engine_store::activity::HeldAttempt;
use task_engine_store::token::Role;

use super::links;
use crate::app::App;
use crate::cache::LiveState;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::parts::Heading::{Number, Text};
use crate::parts::{self, Button};

/// Engines per page: the page is reloaded at every change.
const ROWS_MAX: usize = 200;
/// Tasks listed per engine; the list of tasks has the rest.
const HELD_SHOWN: usize = 10;

pub(crate) async fn page(State(app): State<App>, viewer: Viewer) -> Result<Markup, ApiError> {
    let now = app.cache.now().await?;
    let main = html! {
        h1 { "Instances" }
        div #orphans data-live { (orphans(&app, &viewer, &now)) }
        section .card #engines data-live {
            @if now.engines.is_empty() {
                (parts::empty("No engine has run recently. Start one:", "task-engine start"))
            } @else {
                (table(&app, &now))
            }
        }
        p .soft {
            a href=(app.path("/health?depth=standard")) { "Health" } " checks whether wake-ups arrive."
        }
    };
    Ok(layout::page(&app, &viewer, "Instances", "/instances", main).await)
}

/// Tasks held by dead engines, by name: all sessions of a name are recovered
/// together.
pub(super) fn orphans(app: &App, viewer: &Viewer, now: &LiveState) -> Markup {
    let mut by_name: BTreeMap<&str, Vec<&InstanceRow>> = BTreeMap::new();
    for engine in now.engines.iter().filter(|engine| !engine.is_alive() && engine.held > 0) {
        by_name.entry(&engine.name).or_default().push(engine);
    }
    html! {
        @for (name, sessions) in by_name {
            @let number: i64 = sessions.iter().map(|session| session.held).sum();
            @let held: Vec<_> = held_by(now, &sessions.iter().map(|session| session.id).collect::<Vec<_>>());
            section .card .needs .bad data-key={ "orphans-" (name) } {
                h2 { (name) " is dead and holds " (count(usize::try_from(number).unwrap_or(0), "task")) }
                (doing(app, now, &held, name))
                p .gap {
                    "Recovery reclaims them: each attempt fails (InstanceLost), and the task is retried or, without retries left, fails. "
                    "If the engine is alive after all, its late results change nothing."
                }
                @if viewer.may(Role::Operator) { (recover(app, viewer, name)) }
                @else { pre { "task-engine recover " (name) } }
            }
        }
    }
}

fn recover(app: &App, viewer: &Viewer, name: &str) -> Markup {
    let button = Button {
        to: "/operations/recover",
        fields: &[("name", name)],
        label: "Recover",
        consequence: "Ends the attempts of the dead engine and requeues their tasks",
        class: "",
        shortcut: None,
    };
    button.show(app, &viewer.here)
}

fn table(app: &App, now: &LiveState) -> Markup {
    html! {
        (parts::table(&[
            Text("Instance"), Text("State"), Text("Heartbeat"), Number("Busy"),
            Text("Takes"), Text("Doing"),
        ], &html! { @for engine in shown(&now.engines) { (row(app, now, engine)) } }))
        @if now.engines.len() > ROWS_MAX {
            p .soft .last { "These are " (ROWS_MAX) " of " (now.engines.len()) " engines, live ones first. "
                code { "task-engine instances" } " lists all." }
        }
    }
}

/// The newest first. Ended engines only if there is room for them.
fn shown(engines: &[InstanceRow]) -> Vec<&InstanceRow> {
    let mut shown: Vec<(usize, &InstanceRow)> = engines.iter().enumerate().collect();
    shown.sort_by_key(|(place, engine)| (engine.has_ended() && engine.held == 0, *place));
    shown.truncate(ROWS_MAX);
    shown.sort_by_key(|(place, _)| *place);
    shown.into_iter().map(|(_, engine)| engine).collect()
}

fn row(app: &App, now: &LiveState, engine: &InstanceRow) -> Markup {
    // Not `engine.held`, which was read a moment later than the list.
    let held = held_by(now, &[engine.id]);
    html! {
        tr data-key=(engine.id) {
            td {
                strong { (engine.name) }
                small .under { "process " (engine.pid) " on " (engine.host) }
                small .under { "version " (engine.version) ", started " (parts::time(app, engine.started_at, now.stats.at)) }
            }
            td { (state(app, now, engine)) }
            td data-label="heartbeat" {
                @if engine.has_ended() { "–" } @else {
                    (parts::span(rough(engine.heartbeat_age))) " ago"
                    small .under { "lease " (parts::span(engine.lease)) }
                }
            }
            td .number data-label="busy" { (held.len()) " of " (engine.workers) }
            td data-label="takes" { (takes(engine)) }
            td data-label="doing" { (doing(app, now, &held, &engine.name)) }
        }
    }
}

/// Whole seconds, so that the page does not change at every read.
fn rough(age: std::time::Duration) -> std::time::Duration {
    std::time::Duration::from_secs(age.as_secs())
}

fn state(app: &App, now: &LiveState, engine: &InstanceRow) -> Markup {
    let since = |time| html! { small .under { (parts::time(app, time, now.stats.at)) } };
    match (engine.stopped_at, engine.lost_at) {
        (_, Some(lost)) => html! { (parts::state("bad", "lost")) (since(lost)) },
        (Some(stopped), _) => html! { (parts::state("off", "stopped")) (since(stopped)) },
        _ if !engine.is_alive() => parts::state("bad", engine.state().label()),
        _ if engine.heartbeat_age > engine.lease / 2 => parts::state("warn", "late"),
        _ => parts::state("good", "alive"),
    }
}

fn takes(engine: &InstanceRow) -> Markup {
    html! {
        @for pool in &engine.pools { span .item { (pool_text(pool)) } }
        @if !engine.classes.is_empty() {
            details {
                summary { (count(engine.classes.len(), "class")) }
                ul .plain-list {
                    @for (class, options) in &engine.classes {
                        @let options = Json::encode(options).map_or_else(|_| String::new(), |json| json.to_string());
                        li title=(options) { code { (class) } }
                    }
                }
            }
        }
    }
}

fn pool_text(pool: &Pool) -> String {
    let workers = count(usize::try_from(pool.workers).unwrap_or(0), "worker");
    let queues = pool.queues.join(", ");
    if let Some(classes) = &pool.classes {
        return format!("{queues}: {workers} for class {}", classes.join(", "));
    }
    match pool.lowest_priority {
        None => format!("{queues}: {workers}"),
        Some(lowest) => format!("{queues}: {workers} for priority {lowest} and higher"),
    }
}

fn held_by<'a>(now: &'a LiveState, sessions: &[InstanceId]) -> Vec<&'a HeldAttempt> {
    now.activity.held.iter().filter(|held| sessions.contains(&held.instance_id)).collect()
}

fn doing(app: &App, now: &LiveState, held: &[&HeldAttempt], instance: &str) -> Markup {
    html! {
        @if held.is_empty() { span .soft { "nothing" } }
        @else {
            ul .plain-list {
                @for one in held.iter().take(HELD_SHOWN) {
                    li data-key=(one.task_id) {
                        (parts::task_link(app, one.task_id)) " " (one.class)
                        " " small { "claimed " (parts::time(app, one.claimed_at, now.stats.at)) }
                        @if let Some(progress) = &one.progress { " " small { (progress_text(progress)) } }
                    }
                }
                @if held.len() > HELD_SHOWN {
                    li { a href=(links::tasks(app, &[("status", "running"), ("instance", instance)])) {
                        "and " (held.len() - HELD_SHOWN) " more"
                    } }
                }
            }
        }
    }
}
