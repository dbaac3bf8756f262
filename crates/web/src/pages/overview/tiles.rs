//! The key numbers.

use std::time::Duration;

use maud::{Markup, html};

use crate::app::App;
use crate::cache::LiveState;
use crate::pages::links;
use crate::parts;

/// Latencies that get a colour.
const LATE: f64 = 60.0;
const VERY_LATE: f64 = 300.0;

pub(super) fn all(app: &App, now: &LiveState) -> Markup {
    let stats = &now.stats;
    let by_status = |status| links::tasks(app, &[("status", status)]);
    let (late, late_class) = latency(now);
    let alive = stats.engines.len();
    let busy: i64 = stats.engines.iter().map(|engine| engine.busy).sum();
    let workers: i32 = stats.engines.iter().map(|engine| engine.workers).sum();
    let is_unserved = alive == 0 && stats.due.counted > 0;
    html! {
        div .tiles {
            (tile(&by_status("waiting"), "", &parts::number(stats.due), "Backlog"))
            (tile(&by_status("waiting"), "", &parts::number(stats.later), "Scheduled"))
            (tile(&by_status("running"), "", &stats.running.to_string(), "Running"))
            (tile(&app.path("/queues"), late_class, &late, "Queue latency"))
            (tile(&by_status("failed"), if stats.failure_counts.failed.counted > 0 { "bad" } else { "" },
                  &parts::number(stats.failure_counts.failed), "Failed"))
            (tile(&app.path("/instances"), if is_unserved { "bad" } else { "" }, &alive.to_string(),
                  &format!("{} alive, {busy} of {workers} workers busy",
                           if alive == 1 { "engine" } else { "engines" })))
        }
    }
}

fn tile(to: &str, class: &str, number: &str, label: &str) -> Markup {
    html! { a .tile .(class) href=(to) { b { (number) } span { (label) } } }
}

/// For how long the oldest task has been due, in queues that are not paused.
fn latency(now: &LiveState) -> (String, &'static str) {
    let open = now.stats.queues.iter().filter(|queue| queue.row.paused.is_none());
    let secs = open.filter_map(|queue| queue.oldest_due_secs).fold(0.0, f64::max);
    let class = if secs >= VERY_LATE {
        "bad"
    } else if secs >= LATE {
        "warn"
    } else {
        ""
    };
    if secs < 1.0 {
        return ("–".to_owned(), class);
    }
    (parts::span(Duration::try_from_secs_f64(secs).unwrap_or_default()), class)
}
