//! Whether all is well: the checks of `doctor`, with what mends what is wrong.

use std::sync::Arc;

use axum::extract::{Query, State};
use maud::{Markup, html};
use serde::Deserialize;
use task_engine_core::display::count;
use task_engine_store::check::{Check, Verdict};

use crate::app::App;
use crate::layout::{self, Viewer};
use crate::parts;
use crate::problem::Problem;

#[derive(Debug, Deserialize)]
pub(crate) struct How {
    depth: Option<String>,
}

pub(crate) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Query(how): Query<How>,
) -> Result<Markup, Problem> {
    let closer = match how.depth.as_deref() {
        None | Some("glance") => false,
        Some("usual") => true,
        Some(_) => {
            return Err(Problem::field(
                "/depth",
                "depth is glance or usual; `task-engine doctor --deep` looks at everything.",
            ));
        }
    };
    let checks: Arc<Vec<Check>> =
        if closer { app.glance.closer_checks().await? } else { app.glance.checks().await? };
    let main = html! {
        h1 { "Health" }
        // A closer look costs something: it is not repeated by itself.
        section .card #checks data-live[!closer] {
            div .row .between {
                p .sum { (verdict(worst(&checks))) " " (summary(&checks)) }
                @if closer {
                    a .button .plain href=(app.path("/health")) { "A quick look" }
                } @else {
                    a .button .plain href=(app.path("/health?depth=usual"))
                      title="Also opens connections, compares the tables with what they should be, and sends a wake-up" {
                        "Look closer"
                    }
                }
            }
            (table(&checks))
        }
        (commands(&app, closer))
    };
    Ok(layout::page(&app, &viewer, "Health", "/health", main).await)
}

fn worst(checks: &[Check]) -> Verdict {
    checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Unknown)
}

fn summary(checks: &[Check]) -> String {
    let number = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    format!(
        "{} wrong, {}, of {}",
        number(Verdict::Wrong),
        count(number(Verdict::Warning), "warning"),
        count(checks.len(), "check")
    )
}

/// A verdict: an icon, a word and a colour.
pub(super) fn verdict(verdict: Verdict) -> Markup {
    let class = match verdict {
        Verdict::Ok => "good",
        Verdict::Unknown => "off",
        Verdict::Warning => "warn",
        Verdict::Wrong => "bad",
    };
    parts::state(class, verdict.as_str())
}

/// The worst first; of equal ones, in the order of the doctor.
fn table(checks: &[Check]) -> Markup {
    let mut sorted: Vec<&Check> = checks.iter().collect();
    sorted.sort_by_key(|check| std::cmp::Reverse(check.verdict));
    html! {
        div .scroll {
            table .stack {
                thead { tr {
                    th scope="col" { "Verdict" }
                    th scope="col" { "Check" }
                    th scope="col" { "Why, and what mends it" }
                } }
                tbody {
                    @for check in sorted {
                        tr data-key=(check.name) {
                            td { (verdict(check.verdict)) }
                            td .nowrap { (check.title()) }
                            td { (check.reason) @if let Some(remedy) = &check.remedy { (mend(remedy)) } }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn mend(remedy: &str) -> Markup {
    html! { pre .remedy { (remedy) } }
}

fn commands(app: &App, closer: bool) -> Markup {
    html! {
        section .card {
            h2 { "Elsewhere" }
            dl .facts {
                @if !closer {
                    dt { code { "task-engine doctor" } } dd { "the closer look, for scripts: it ends with 6 if something is wrong" }
                }
                dt { code { "task-engine doctor --deep" } } dd { "also reads everything: the invariants of all tasks" }
                dt { code { "task-engine verify" } } dd { "lists every invariant that is broken" }
                dt { a href=(app.path("/livez")) { "/livez" } ", " a href=(app.path("/readyz")) { "/readyz" } }
                dd { "for load balancers and orchestrators" }
                dt { a href=(app.path("/metrics")) { "/metrics" } } dd { "for Prometheus" }
            }
        }
    }
}
