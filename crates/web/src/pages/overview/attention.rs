//! What needs attention, the most urgent first.

use maud::{Markup, html};
use task_engine_core::display::{brief, count};
use task_engine_operations::errors::{ErrorGroup, Failures};
use task_engine_operations::stats::QueueStats;
use task_engine_store::check::{Check, Verdict};
use task_engine_store::token::Role;

use crate::app::App;
use crate::cache::LiveState;
use crate::error::ApiError;
use crate::layout::Viewer;
use crate::pages::{health, instances, links, queues};
use crate::parts;

/// These have entries of their own, with buttons.
const SHOWN_SEPARATELY: [&str; 2] = ["orphaned_tasks", "paused_queues"];
const GROUPS_SHOWN: usize = 5;
const QUEUES_SHOWN: usize = 5;
/// Queues with a shorter backlog are not listed.
const LATE_SECS: f64 = 10.0;

pub(super) async fn all(app: &App, viewer: &Viewer, now: &LiveState) -> Result<Markup, ApiError> {
    let checks = app.cache.checks().await?;
    let mut bad: Vec<&Check> = checks
        .iter()
        .filter(|check| {
            check.verdict >= Verdict::Warning && !SHOWN_SEPARATELY.contains(&check.name)
        })
        .collect();
    bad.sort_by_key(|check| std::cmp::Reverse(check.verdict));
    let paused: Vec<_> =
        now.stats.queues.iter().filter(|queue| queue.row.paused.is_some()).collect();
    let failures = app.cache.failing().await?;
    let failing = failures.groups();
    let late = late(now);
    Ok(html! {
        (instances::orphans(app, viewer, now))
        @if !bad.is_empty() || !paused.is_empty() {
            section .card .needs .bad[bad.iter().any(|check| check.verdict == Verdict::Wrong)] {
                h2 { "Needs attention" }
                ul .attention {
                    @for check in bad { li data-key={ "check-" (check.name) } {
                        (health::verdict(check.verdict))
                        div .what {
                            strong { (check.title()) } ": " (check.message)
                            @if let Some(remedy) = &check.remedy { (health::remedy_block(remedy)) }
                        }
                    } }
                    @for queue in paused { (pause(app, viewer, now, queue)) }
                }
            }
        }
        @if !failing.is_empty() || !late.is_empty() {
            div .grid {
                @if !failing.is_empty() { (errors(app, now, &failures, &failing)) }
                @if !late.is_empty() { (waiting(app, &late)) }
            }
        }
    })
}

fn pause(app: &App, viewer: &Viewer, now: &LiveState, queue: &QueueStats) -> Markup {
    let name = &queue.row.name;
    html! {
        li data-key={ "paused-" (name) } {
            (parts::state("warn", "paused"))
            div .what {
                "queue " a href=(app.path("/queues")) { (name) }
                @if let Some(paused) = &queue.row.paused {
                    " " (parts::time(app, paused.paused_at, now.stats.at))
                    @if let Some(reason) = &paused.reason { ": " (reason) }
                }
                @if queue.row.due.counted > 0 { "; " (parts::number(queue.row.due)) " due in it" }
            }
            @if viewer.may(Role::Operator) { (queues::resume(app, viewer, name)) }
        }
    }
}

fn errors(app: &App, now: &LiveState, failures: &Failures, groups: &[ErrorGroup]) -> Markup {
    html! {
        section .card {
            div .row .between {
                h2 { "Most frequent errors" }
                a href=(app.path("/errors")) { "All errors" }
            }
            (super::super::errors::sample(failures))
            ul .attention {
                @for group in groups.iter().take(GROUPS_SHOWN) {
                    li data-key=(group.key()) {
                        (parts::state("failed", &count(group.count, "task")))
                        div .what {
                            a href=(links::error_group(app, group.key())) {
                                (group.class) ": " (group.exception)
                            }
                            small .under { (brief(&group.message, 120)) }
                        }
                        small { (parts::time(app, group.last_seen, now.stats.at)) }
                    }
                }
            }
        }
    }
}

/// The queues with the oldest due task.
fn late(now: &LiveState) -> Vec<&QueueStats> {
    let age = |queue: &&QueueStats| queue.oldest_due_secs.unwrap_or(0.0);
    let open = now.stats.queues.iter().filter(|queue| queue.row.paused.is_none());
    let mut late: Vec<_> = open.filter(|queue| age(queue) >= LATE_SECS).collect();
    late.sort_by(|one, other| age(other).total_cmp(&age(one)));
    late.truncate(QUEUES_SHOWN);
    late
}

fn waiting(app: &App, late: &[&QueueStats]) -> Markup {
    html! {
        section .card {
            div .row .between {
                h2 { "Longest backlog" }
                a href=(app.path("/queues")) { "All queues" }
            }
            ul .attention {
                @for queue in late {
                    li data-key=(queue.row.name) {
                        div .what {
                            "queue " a href=(links::tasks(app, &[("queue", &queue.row.name), ("status", "waiting")])) { (queue.row.name) }
                        }
                        span { (parts::number(queue.row.due)) " due, the oldest for " (queues::oldest(queue)) }
                    }
                }
            }
        }
    }
}
