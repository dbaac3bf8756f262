//! Engines: who lives, what each is doing, and what the dead have left.

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
use crate::glance::Now;
use crate::layout::{self, Viewer};
use crate::parts::{self, Button};
use crate::problem::Problem;

/// So many engines are shown: the page is read again whenever something changes.
const ROWS_MAX: usize = 200;
/// So many tasks of an engine are listed; the list of tasks has the rest.
const HELD_SHOWN: usize = 10;

pub(crate) async fn page(State(app): State<App>, viewer: Viewer) -> Result<Markup, Problem> {
    let now = app.glance.now().await?;
    let main = html! {
        h1 { "Instances" }
        div #orphans data-live { (orphans(&app, &viewer, &now)) }
        section .card #engines data-live {
            @if now.engines.is_empty() {
                (parts::empty("No engine has run here lately. Start one:", "task-engine start"))
            } @else {
                (table(&app, &now))
            }
        }
        p .soft {
            "Whether wake-ups arrive is among the checks of "
            a href=(app.path("/health?depth=usual")) { "a closer look" } "."
        }
    };
    Ok(layout::page(&app, &viewer, "Instances", "/instances", main).await)
}

/// What the dead have left, by name: all their lives are recovered together.
pub(super) fn orphans(app: &App, viewer: &Viewer, now: &Now) -> Markup {
    let mut by_name: BTreeMap<&str, Vec<&InstanceRow>> = BTreeMap::new();
    for engine in now.engines.iter().filter(|engine| !engine.is_alive() && engine.held > 0) {
        by_name.entry(&engine.name).or_default().push(engine);
    }
    html! {
        @for (name, lives) in by_name {
            @let number: i64 = lives.iter().map(|life| life.held).sum();
            @let held: Vec<_> = held_by(now, &lives.iter().map(|life| life.id).collect::<Vec<_>>());
            section .card .needs .bad data-key={ "orphans-" (name) } {
                h2 { (name) " is dead and holds " (count(usize::try_from(number).unwrap_or(0), "task")) }
                (doing(app, now, &held, name))
                p .gap {
                    "Recovering takes them back: each attempt ends as failed (InstanceLost), and the task waits for its next retry or, if none is left, has failed. "
                    "Should the engine be alive after all, what it still says changes nothing."
                }
                @if viewer.may(Role::Operator) { (recover(app, viewer, name)) }
                @else { pre { "task-engine recover " (name) } }
            }
        }
    }
}

fn recover(app: &App, viewer: &Viewer, name: &str) -> Markup {
    let button = Button {
        to: "/actions/recover",
        fields: &[("instance", name)],
        words: "Recover",
        consequence: "Ends the attempts of the dead engine and lets their tasks go on",
        class: "",
        act: None,
    };
    button.show(app, &viewer.here)
}

fn table(app: &App, now: &Now) -> Markup {
    html! {
        div .scroll {
            table .stack {
                thead { tr {
                    th scope="col" { "Instance" }
                    th scope="col" { "State" }
                    th scope="col" { "Heartbeat" }
                    th scope="col" .number { "Busy" }
                    th scope="col" { "Takes" }
                    th scope="col" { "Doing" }
                } }
                tbody { @for engine in shown(&now.engines) { (row(app, now, engine)) } }
            }
        }
        @if now.engines.len() > ROWS_MAX {
            p .soft .last { "These are " (ROWS_MAX) " of " (now.engines.len()) " engines, the living first. "
                code { "task-engine instances" } " has all of them." }
        }
    }
}

/// The newest, in their order. Of those that have ended only as many as there
/// is room for beside the others.
fn shown(engines: &[InstanceRow]) -> Vec<&InstanceRow> {
    let mut shown: Vec<(usize, &InstanceRow)> = engines.iter().enumerate().collect();
    shown.sort_by_key(|(place, engine)| (engine.has_ended() && engine.held == 0, *place));
    shown.truncate(ROWS_MAX);
    shown.sort_by_key(|(place, _)| *place);
    shown.into_iter().map(|(_, engine)| engine).collect()
}

fn row(app: &App, now: &Now, engine: &InstanceRow) -> Markup {
    // Counted where they are listed: `engine.held` was read a moment later.
    let held = held_by(now, &[engine.id]);
    html! {
        tr data-key=(engine.id) {
            td {
                strong { (engine.name) }
                small .under { "process " (engine.pid) " on " (engine.host) }
                small .under { "version " (engine.version) ", started " (parts::time(app, engine.started_at, now.figures.at)) }
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

/// Tenths of a second would make every look differ from the one before.
fn rough(age: std::time::Duration) -> std::time::Duration {
    std::time::Duration::from_secs(age.as_secs())
}

fn state(app: &App, now: &Now, engine: &InstanceRow) -> Markup {
    let since = |time| html! { small .under { (parts::time(app, time, now.figures.at)) } };
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
        @for pool in &engine.pools { span .item { (pool_words(pool)) } }
        @if !engine.classes.is_empty() {
            details {
                summary { (count(engine.classes.len(), "class")) }
                ul .plain-list {
                    @for (class, rules) in &engine.classes {
                        @let rules = Json::encode(rules).map_or_else(|_| String::new(), |json| json.to_string());
                        li title=(rules) { code { (class) } }
                    }
                }
            }
        }
    }
}

fn pool_words(pool: &Pool) -> String {
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

fn held_by<'a>(now: &'a Now, lives: &[InstanceId]) -> Vec<&'a HeldAttempt> {
    now.moving.held.iter().filter(|held| lives.contains(&held.instance_id)).collect()
}

fn doing(app: &App, now: &Now, held: &[&HeldAttempt], instance: &str) -> Markup {
    html! {
        @if held.is_empty() { span .soft { "nothing" } }
        @else {
            ul .plain-list {
                @for one in held.iter().take(HELD_SHOWN) {
                    li data-key=(one.task_id) {
                        (parts::task_link(app, one.task_id)) " " (one.class)
                        " " small { "claimed " (parts::time(app, one.claimed_at, now.figures.at)) }
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
