//! Charts of the last hour or day.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};
use task_engine_core::display::span;
use task_engine_core::queue::BoundedCount;
use task_engine_store::rollup::{ClassTotal, TimeHistogram};

use crate::app::App;
use crate::cache::{LiveState, Span};
use crate::chart::{self, Bar, Point, Unit};
use crate::error::ApiError;
use crate::pages::links;
use crate::parts;
use crate::parts::Heading::{Hidden, Number, Text};
use crate::series::{Series, SeriesStep};

const CLASSES_SHOWN: usize = 10;
const FAILING_SHOWN: usize = 8;

pub(super) async fn all(app: &App, now: &LiveState, over: Span) -> Result<Markup, ApiError> {
    let series = app.cache.series(over, now.stats.at).await?;
    let span = over.name();
    Ok(html! {
        div .row .between .top {
            h2 { "The last " (span) }
            div .spans {
                @for (which, to) in [(Span::Hour, "/?span=hour"), (Span::Day, "/?span=day")] {
                    a href=(app.path(to)) aria-current=[(which == over).then_some("true")] { (which.name()) }
                }
            }
        }
        @if series.ended() == 0 {
            section .card {
                p .soft .sum { "No attempt has ended in the last " (span) ". New data appears after a few seconds." }
            }
        } @else {
            div .grid { (throughput(app, &series, span)) (run_times(app, &series, span)) }
            div .grid { (queue_latency(app, &series, span)) (failures(app, &series, span)) }
            (classes(app, &series))
            (numbers(app, &series))
        }
    })
}

fn time_of_day(app: &App, at: Timestamp) -> String {
    at.to_zoned(app.zone.clone()).strftime("%H:%M").to_string()
}

fn throughput(app: &App, series: &Series, span: &str) -> Markup {
    let bar = |step: &SeriesStep| Bar {
        at: step.at,
        parts: vec![("ok", step.ok), ("bad", step.failed), ("other", step.other)],
        title: format!(
            "{}: {} succeeded, {} failed, {} other",
            time_of_day(app, step.at),
            step.ok,
            step.failed,
            step.other
        ),
    };
    let bars: Vec<_> = series.steps.iter().map(bar).collect();
    let about = format!("Attempts that ended in the last {span}: {} in all", series.ended());
    html! {
        section .card {
            h3 .title { "Throughput" }
            (chart::bars(&bars, &app.zone, &about))
            p .legend {
                span { i .ok {} "Succeeded" } span { i .bad {} "Failed" }
                span { i .other {} "Cancelled, requeued or snoozed" }
            }
        }
    }
}

fn run_times(app: &App, series: &Series, span: &str) -> Markup {
    times(app, series, "Run time", |step| &step.run, span)
}

fn queue_latency(app: &App, series: &Series, span: &str) -> Markup {
    times(app, series, "Queue latency", |step| &step.wait, span)
}

fn times(
    app: &App,
    series: &Series,
    title: &str,
    of: impl Fn(&SeriesStep) -> &TimeHistogram,
    span: &str,
) -> Markup {
    let point = |step: &SeriesStep| {
        let (p50, p95) = (of(step).quantile(50), of(step).quantile(95));
        let secs = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        Point {
            at: step.at,
            values: vec![secs(p50), secs(p95)],
            title: format!(
                "{}: p50 {}, p95 {}",
                time_of_day(app, step.at),
                duration_text(p50),
                duration_text(p95)
            ),
        }
    };
    let points: Vec<_> = series.steps.iter().map(point).collect();
    html! {
        section .card {
            h3 .title { (title) }
            (chart::lines(&points, Unit::Seconds, &app.zone, &format!("{title}, over the last {span}")))
            p .legend { span { i .line {} "p50" } span { i .second {} "p95" } }
        }
    }
}

fn name(class: &ClassTotal) -> &str {
    if class.class.is_empty() { "other classes" } else { &class.class }
}

fn link(app: &App, class: &ClassTotal, status: Option<&str>) -> Markup {
    let mut terms = vec![("class", class.class.as_str())];
    terms.extend(status.map(|status| ("status", status)));
    html! {
        @if class.class.is_empty() { (name(class)) }
        @else { a href=(links::tasks(app, &terms)) { (class.class) } }
    }
}

fn failures(app: &App, series: &Series, span: &str) -> Markup {
    let mut failing: Vec<_> = series.classes.iter().filter(|class| class.failed > 0).collect();
    failing.sort_by_key(|class| std::cmp::Reverse(class.failed));
    let most = failing.first().map_or(1, |class| class.failed);
    html! {
        section .card {
            h3 .title { "Failed attempts by class" }
            @if failing.is_empty() { p .soft { "None in the last " (span) "." } }
            @else {
                table .shares {
                    thead { tr {
                        (parts::headings(&[Text("Class"), Number("Failed"), Number("Of"), Hidden("Share")]))
                    } }
                    tbody {
                        @for class in failing.iter().take(FAILING_SHOWN) { tr {
                            td { (link(app, class, Some("failed"))) }
                            td .number { (thousands(class.failed)) }
                            td .number { (thousands(class.ended())) }
                            td .wide-bar { (share(class.failed, most)) }
                        } }
                    }
                }
                @if failing.len() > FAILING_SHOWN {
                    p .soft { "and " (failing.len() - FAILING_SHOWN) " more classes" }
                }
            }
        }
    }
}

fn share(number: u64, most: u64) -> Markup {
    let percent = u128::from(number) * 100 / u128::from(most.max(1));
    html! {
        svg .share viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" {
            rect .bad width=(percent.max(1)) height="10" {}
        }
    }
}

fn classes(app: &App, series: &Series) -> Markup {
    html! {
        section .card {
            h3 .title { "Busiest classes" }
            (parts::table(&[
                Text("Class"), Number("Ended"), Number("Failed"), Number("p50"),
                Number("p95"),
            ], &html! {
                @for class in series.classes.iter().take(CLASSES_SHOWN) {
                    tr data-key={ "class-" (class.class) } {
                        td { (link(app, class, None)) }
                        td .number data-label="ended" { (thousands(class.ended())) }
                        td .number data-label="failed" { (thousands(class.failed)) }
                        td .number data-label="p50" { (quantile(&class.run, 50)) }
                        td .number data-label="p95" { (quantile(&class.run, 95)) }
                    }
                }
            }))
        }
    }
}

fn thousands(number: u64) -> String {
    let counted = i64::try_from(number).unwrap_or(i64::MAX);
    parts::number(BoundedCount { counted, and_more: false })
}

fn quantile(times: &TimeHistogram, percent: u64) -> String {
    duration_text(times.quantile(percent))
}

fn duration_text(time: Option<Duration>) -> String {
    time.map_or("–".to_owned(), span)
}

/// The charts as a table, for screen readers.
fn numbers(app: &App, series: &Series) -> Markup {
    html! {
        details .card #numbers {
            summary { "The charts in numbers" }
            div .scroll {
                table {
                    thead { tr {
                        th scope="col" { "From" }
                        @for head in ["Succeeded", "Failed", "Other", "Run time p50", "Run time p95", "Latency p50", "Latency p95"] {
                            th scope="col" .number { (head) }
                        }
                    } }
                    tbody {
                        @for step in series.steps.iter().rev().filter(|step| step.ended() > 0) { tr {
                            td { (time_of_day(app, step.at)) }
                            @for number in [step.ok, step.failed, step.other] { td .number { (thousands(number)) } }
                            @for (times, percent) in [(&step.run, 50), (&step.run, 95), (&step.wait, 50), (&step.wait, 95)] {
                                td .number { (quantile(times, percent)) }
                            }
                        } }
                    }
                }
            }
            p .soft .last { "Steps without an ended attempt are left out. Times are counted in buckets: p50 and p95 are estimates within the right bucket, never above the maximum." }
        }
    }
}
