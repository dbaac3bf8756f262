//! Flows: their state and progress, and each as a graph.

mod graph;
mod list;
mod one;

use maud::{Markup, html};
use task_engine_core::dependency::{FlowCounts, FlowState};
use task_engine_store::token::Role::Viewer;

use crate::parts;
use crate::routes::Routes;

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.get("/flows", Viewer, list::page).get("/flows/{correlation_id}", Viewer, one::page)
}

/// The state of a flow: icon, word and colour.
fn state(state: FlowState, counts: &FlowCounts) -> Markup {
    match state {
        FlowState::Open if counts.failed > 0 => parts::state("failed", "open, with failures"),
        FlowState::Open if counts.running > 0 => parts::state("running", "running"),
        FlowState::Open => parts::state("waiting", "waiting"),
        FlowState::Succeeded => parts::state("good", "succeeded"),
        FlowState::Failed => parts::state("failed", "failed"),
        FlowState::Cancelled => parts::state("cancelled", "cancelled"),
    }
}

/// The counts as a bar and as text.
fn progress(counts: &FlowCounts) -> Markup {
    let all = counts.total().max(1);
    let parts = [
        ("stopped", counts.stopped),
        ("failed", counts.failed),
        ("cancelled", counts.cancelled + counts.not_needed),
        ("running", counts.running),
    ];
    let mut bars = Vec::new();
    let mut from = 0.0;
    for (class, number) in parts {
        let width = f64::from(number) * 100.0 / f64::from(all);
        if number > 0 {
            bars.push((class, from, width));
        }
        from += width;
    }
    html! {
        svg .progress aria-hidden="true" {
            @for (class, from, width) in bars {
                rect .(class) x={ (format!("{from:.2}")) "%" } width={ (format!("{width:.2}")) "%" } height="100%" {}
            }
        }
        small .under { (summary(counts)) }
    }
}

/// `3 of 12 ended, 1 failed`.
fn summary(counts: &FlowCounts) -> String {
    let more = if counts.and_more { "+" } else { "" };
    let ended = counts.total() - counts.open();
    let mut text = format!("{ended} of {}{more} ended", counts.total());
    for (number, what) in [
        (counts.running, "running"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
        (counts.not_needed, "not needed"),
        (counts.waiting, "waiting"),
        (counts.blocked, "blocked"),
    ] {
        if number > 0 {
            text.push_str(&format!(", {number} {what}"));
        }
    }
    text
}
