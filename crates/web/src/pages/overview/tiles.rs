//! The numbers that tell at a glance how it goes.

use std::time::Duration;

use maud::{Markup, html};

use crate::app::App;
use crate::glance::Now;
use crate::pages::links;
use crate::parts;

/// From when on waiting is worth a colour.
const LATE: f64 = 60.0;
const VERY_LATE: f64 = 300.0;

pub(super) fn all(app: &App, now: &Now) -> Markup {
    let figures = &now.figures;
    let by_status = |status| links::tasks(app, &[("status", status)]);
    let (late, late_class) = lateness(now);
    let alive = figures.engines.len();
    let busy: i64 = figures.engines.iter().map(|engine| engine.busy).sum();
    let workers: i32 = figures.engines.iter().map(|engine| engine.workers).sum();
    let nobody = alive == 0 && figures.due.counted > 0;
    html! {
        div .tiles {
            (tile(&by_status("waiting"), "", &parts::number(figures.due), "due"))
            (tile(&by_status("waiting"), "", &parts::number(figures.later), "later"))
            (tile(&by_status("running"), "", &figures.running.to_string(), "running"))
            (tile(&app.path("/queues"), late_class, &late, "oldest due"))
            (tile(&by_status("failed"), if figures.failure_counts.failed.counted > 0 { "bad" } else { "" },
                  &parts::number(figures.failure_counts.failed), "failed"))
            (tile(&app.path("/instances"), if nobody { "bad" } else { "" }, &alive.to_string(),
                  &format!("{} alive, {busy} of {workers} workers busy",
                           if alive == 1 { "engine" } else { "engines" })))
        }
    }
}

fn tile(to: &str, class: &str, number: &str, words: &str) -> Markup {
    html! { a .tile .(class) href=(to) { b { (number) } span { (words) } } }
}

/// For how long the oldest task has been due, in queues that are not paused.
fn lateness(now: &Now) -> (String, &'static str) {
    let open = now.figures.queues.iter().filter(|queue| queue.row.paused.is_none());
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
