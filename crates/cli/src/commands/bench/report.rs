//! The outcome as a page that needs nothing else: one file, charts included.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::chart;
use super::measure::{Measure, percentile};
use super::options::Scenario;
use super::outcome::{Outcome, ScenarioOutcome};
use super::summary::{COLUMNS, cell, remarks};
use crate::error::CliError;

const STYLE: &str = include_str!("report.css");

/// Finds out early that the page cannot be written.
pub(super) fn check(file: &Path) -> Result<(), CliError> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if file.is_dir() || folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(CliError::Usage(format!(
            "the report {} cannot be written: name a file in a folder that is there",
            file.display()
        )));
    }
    Ok(())
}

pub(super) fn write(file: &Path, outcome: &Outcome) -> Result<(), CliError> {
    fs::write(file, page(outcome)).map_err(|error| {
        CliError::Failure(format!("the report {} cannot be written: {error}", file.display()))
    })
}

fn page(outcome: &Outcome) -> String {
    let mut body = String::new();
    let settings = &outcome.settings;
    let _ = write!(
        body,
        "<h1>Task Engine on {}</h1><p>Version {}, {}, {} cores. {} tasks, {} engines of {} workers, {} producers, {} repeats; {} finished, {} future and {} other waiting tasks before{}.</p>",
        html(&outcome.database),
        html(&outcome.version),
        outcome.measured_at.strftime("%Y-%m-%d %H:%M UTC"),
        outcome.cores,
        settings.tasks,
        settings.engines,
        settings.workers,
        settings.producers,
        settings.repeats,
        settings.history,
        settings.future,
        settings.crowd,
        if settings.hold_snapshot { ", a snapshot held open" } else { "" }
    );
    body.push_str(&table(outcome));
    for remark in remarks(outcome) {
        let _ = write!(body, "<p>{}</p>", html(&remark));
    }
    for scenario in &outcome.scenarios {
        body.push_str(&charts(scenario));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Task Engine bench</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )
}

fn table(outcome: &Outcome) -> String {
    let header: String =
        COLUMNS.iter().map(|(measure, _)| format!("<th>{}</th>", html(measure.words()))).collect();
    let mut rows = String::new();
    for scenario in outcome.scenarios.iter().filter(|one| one.name != Scenario::Idle) {
        let cells: String = COLUMNS.iter().map(|(measure, _)| figure(scenario, *measure)).collect();
        let _ = write!(rows, "<tr><th>{}</th>{cells}</tr>", html(&scenario.name.name()));
    }
    format!(
        "<div class=\"wide\"><table><thead><tr><th>scenario</th>{header}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

/// The median; its range shows when it is pointed at.
fn figure(scenario: &ScenarioOutcome, measure: Measure) -> String {
    let shown = html(&cell(scenario, measure));
    match scenario.measures.get(&measure) {
        Some(Some(spread)) => format!(
            "<td title=\"{} to {}\">{shown}</td>",
            measure.show(spread.min),
            measure.show(spread.max)
        ),
        _ => format!("<td class=\"none\">{shown}</td>"),
    }
}

fn charts(scenario: &ScenarioOutcome) -> String {
    let name = html(&scenario.name.name());
    let mut text = String::new();
    if !scenario.rate_over_time.is_empty() {
        let svg = chart::lines(&scenario.rate_over_time, "seconds", "tasks on record per second");
        let _ = write!(
            text,
            "<figure><figcaption>{name}: throughput over time, one line a repeat</figcaption>{svg}</figure>"
        );
    }
    let samples = &scenario.latencies_ms;
    if let Some(p99) = percentile(samples, 0.99) {
        // A little beyond, so that the last bar is the tail and no more.
        let svg = chart::histogram(samples, p99 * 1.05, "milliseconds");
        let about = match scenario.name {
            Scenario::Schedule => "lateness",
            Scenario::StartUp => "time to the first task",
            _ => "latency",
        };
        let _ = write!(
            text,
            "<figure><figcaption>{name}: {about} of {} samples; the last bar holds all that is beyond</figcaption>{svg}</figure>",
            samples.len()
        );
    }
    text
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(html("<a \"b\" & c>"), "&lt;a &quot;b&quot; &amp; c&gt;");
    }
}
