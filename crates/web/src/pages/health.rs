//! The checks of `doctor`, with remedies.

use std::sync::Arc;

use axum::extract::{Query, State};
use maud::{Markup, html};
use serde::Deserialize;
use task_engine_core::display::count;
use task_engine_store::check::{Check, Verdict};

use crate::app::App;
use crate::error::ApiError;
use crate::layout::{self, Viewer};
use crate::parts;
use crate::parts::Heading::Text;

#[derive(Debug, Deserialize)]
pub(crate) struct HealthQuery {
    depth: Option<String>,
}

pub(crate) async fn page(
    State(app): State<App>,
    viewer: Viewer,
    Query(query): Query<HealthQuery>,
) -> Result<Markup, ApiError> {
    let is_standard = match query.depth.as_deref() {
        None | Some("quick") => false,
        Some("standard") => true,
        Some(_) => {
            return Err(ApiError::field(
                "/depth",
                "depth is quick or standard; `task-engine doctor --deep` checks everything.",
            ));
        }
    };
    let checks: Arc<Vec<Check>> =
        if is_standard { app.cache.standard_checks().await? } else { app.cache.checks().await? };
    let main = html! {
        h1 { "Health" }
        // The standard checks cost more: they are not repeated automatically.
        section .card #checks data-live[!is_standard] {
            div .row .between {
                p .sum { (verdict(worst(&checks))) " " (summary(&checks)) }
                @if is_standard {
                    a .button .plain href=(app.path("/health")) { "Quick checks" }
                } @else {
                    a .button .plain href=(app.path("/health?depth=standard"))
                      title="Also opens connections, compares the schema and sends a wake-up" {
                        "Run all checks"
                    }
                }
            }
            (table(&checks))
        }
        (commands(&app, is_standard))
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

/// A verdict: icon, word and colour.
pub(super) fn verdict(verdict: Verdict) -> Markup {
    let class = match verdict {
        Verdict::Ok => "good",
        Verdict::Unknown => "off",
        Verdict::Warning => "warn",
        Verdict::Wrong => "bad",
    };
    parts::state(class, verdict.as_str())
}

/// The worst first, then in the order of the doctor.
fn table(checks: &[Check]) -> Markup {
    let mut sorted: Vec<&Check> = checks.iter().collect();
    sorted.sort_by_key(|check| std::cmp::Reverse(check.verdict));
    html! {
        (parts::table(&[Text("Verdict"), Text("Check"), Text("Finding and remedy")], &html! {
            @for check in sorted {
                tr data-key=(check.name) {
                    td { (verdict(check.verdict)) }
                    td .nowrap { (check.title()) }
                    td { (check.message) @if let Some(remedy) = &check.remedy { (remedy_block(remedy)) } }
                }
            }
        }))
    }
}

pub(super) fn remedy_block(remedy: &str) -> Markup {
    html! { pre .remedy { (remedy) } }
}

fn commands(app: &App, is_standard: bool) -> Markup {
    html! {
        section .card {
            h2 { "More checks" }
            dl .facts {
                @if !is_standard {
                    dt { code { "task-engine doctor" } } dd { "the same checks for scripts: exit code 6 if one is wrong" }
                }
                dt { code { "task-engine doctor --deep" } } dd { "also verifies the invariants of all tasks" }
                dt { code { "task-engine verify" } } dd { "lists every broken invariant" }
                dt { a href=(app.path("/livez")) { "/livez" } ", " a href=(app.path("/readyz")) { "/readyz" } }
                dd { "for load balancers and orchestrators" }
                dt { a href=(app.path("/metrics")) { "/metrics" } } dd { "for Prometheus" }
            }
        }
    }
}
