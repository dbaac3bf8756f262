//! What needs somebody, the most urgent first.

use maud::{Markup, html};
use task_engine_core::display::{brief, count};
use task_engine_operations::errors::{ErrorGroup, Failures};
use task_engine_operations::stats::QueueStats;
use task_engine_store::check::{Check, Verdict};
use task_engine_store::token::Role;

use crate::app::App;
use crate::glance::Now;
use crate::layout::Viewer;
use crate::pages::{health, instances, links, queues};
use crate::parts;
use crate::problem::Problem;
use crate::shown;

/// These have lines of their own, with buttons.
const TOLD_ELSEWHERE: [&str; 2] = ["orphaned_tasks", "paused_queues"];
const GROUPS_SHOWN: usize = 5;
const QUEUES_SHOWN: usize = 5;
/// A queue whose oldest task is younger is not waiting.
const WAITS_SECS: f64 = 10.0;

pub(super) async fn all(app: &App, viewer: &Viewer, now: &Now) -> Result<Markup, Problem> {
    let checks = app.glance.checks().await?;
    let mut bad: Vec<&Check> = checks
        .iter()
        .filter(|check| check.verdict >= Verdict::Warning && !TOLD_ELSEWHERE.contains(&check.name))
        .collect();
    bad.sort_by_key(|check| std::cmp::Reverse(check.verdict));
    let paused: Vec<_> =
        now.figures.queues.iter().filter(|queue| queue.row.paused.is_some()).collect();
    let has_orphans = now.engines.iter().any(|engine| !engine.is_alive() && engine.held > 0);
    let failures = app.glance.failing().await?;
    let failing = failures.groups();
    let late = late(now);
    let is_calm = bad.is_empty() && paused.is_empty() && !has_orphans;
    Ok(html! {
        (instances::orphans(app, viewer, now))
        @if !is_calm && (!bad.is_empty() || !paused.is_empty()) {
            section .card .needs .bad[bad.iter().any(|check| check.verdict == Verdict::Wrong)] {
                h2 { "Needs attention" }
                ul .attention {
                    @for check in bad { li data-key={ "check-" (check.name) } {
                        (health::verdict(check.verdict))
                        div .what {
                            strong { (check.title()) } ": " (check.reason)
                            @if let Some(remedy) = &check.remedy { (health::mend(remedy)) }
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

fn pause(app: &App, viewer: &Viewer, now: &Now, queue: &QueueStats) -> Markup {
    let name = &queue.row.name;
    html! {
        li data-key={ "paused-" (name) } {
            (parts::state("warn", "paused"))
            div .what {
                "queue " a href=(app.path("/queues")) { (name) }
                @if let Some(paused) = &queue.row.paused {
                    " " (parts::time(app, paused.paused_at, now.figures.at))
                    @if let Some(reason) = &paused.reason { ": " (reason) }
                }
                @if queue.row.due.counted > 0 { "; " (parts::number(queue.row.due)) " due in it" }
            }
            @if viewer.may(Role::Operator) { (queues::resume(app, viewer, name)) }
        }
    }
}

fn errors(app: &App, now: &Now, failures: &Failures, groups: &[ErrorGroup]) -> Markup {
    html! {
        section .card {
            div .row .between {
                h2 { "What fails most" }
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
                            small .under { (brief(shown::message(&group.message), 120)) }
                        }
                        small { (parts::time(app, group.last_seen, now.figures.at)) }
                    }
                }
            }
        }
    }
}

/// The queues whose oldest task has waited longest.
fn late(now: &Now) -> Vec<&QueueStats> {
    let age = |queue: &&QueueStats| queue.oldest_due_secs.unwrap_or(0.0);
    let open = now.figures.queues.iter().filter(|queue| queue.row.paused.is_none());
    let mut late: Vec<_> = open.filter(|queue| age(queue) >= WAITS_SECS).collect();
    late.sort_by(|one, other| age(other).total_cmp(&age(one)));
    late.truncate(QUEUES_SHOWN);
    late
}

fn waiting(app: &App, late: &[&QueueStats]) -> Markup {
    html! {
        section .card {
            div .row .between {
                h2 { "What waits longest" }
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
