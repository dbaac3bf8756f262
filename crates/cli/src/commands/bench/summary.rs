//! The outcome as a table for people.

use std::io::{self, Write};
use task_engine_core::display::count;

use super::baseline::Comparison;
use super::measure::{Measure, Take};
use super::options::Scenario;
use super::outcome::{Outcome, ScenarioOutcome, Spread};
use crate::table::table;

/// Columns of the table, with their words.
pub(super) const COLUMNS: [(Measure, &str); 10] = [
    (Measure::TasksPerSec, "TASKS/S"),
    (Measure::LatencyMsP50, "P50 ms"),
    (Measure::LatencyMsP95, "P95 ms"),
    (Measure::LatencyMsP99, "P99 ms"),
    (Measure::DatabaseCpuUsPerTask, "DB CPU µs"),
    (Measure::EngineCpuUsPerTask, "ENGINE CPU µs"),
    (Measure::WalBytesPerTask, "WAL B"),
    (Measure::CommitsPerTask, "COMMITS"),
    (Measure::DeadRowsPerTask, "DEAD ROWS"),
    (Measure::EngineMemoryMb, "MEMORY MB"),
];

pub(super) fn print(outcome: &Outcome, mut out: impl Write) -> io::Result<()> {
    let header: Vec<&str> = std::iter::once("SCENARIO")
        .chain(["TASKS/S", "MIN–MAX"])
        .chain(COLUMNS[1..].iter().map(|(_, words)| *words))
        .collect();
    let numbers: Vec<usize> = (1..header.len()).collect();
    let rows = outcome.scenarios.iter().filter(|scenario| scenario.name != Scenario::Idle);
    let rows: Vec<_> = rows.map(row).collect();
    if !rows.is_empty() {
        writeln!(out, "{}", table(&header, &numbers, rows))?;
    }
    for line in remarks(outcome) {
        writeln!(out, "{line}")?;
    }
    if let Some(comparison) = &outcome.comparison {
        writeln!(out, "\n{}", compared(comparison))?;
    }
    Ok(())
}

/// One repeat in a few words.
pub(super) fn in_short(take: &Take) -> String {
    let words = |(measure, value): (&Measure, &Option<f64>)| match value {
        Some(value) => format!("{} {}", measure.show(*value), measure.words()),
        None => format!("{} n/a", measure.words()),
    };
    let leading = [
        Measure::TasksPerSec,
        Measure::LatencyMsP50,
        Measure::LatencyMsP99,
        Measure::IdleCpuPercent,
    ];
    let said: Vec<_> =
        take.values.iter().filter(|(measure, _)| leading.contains(measure)).map(words).collect();
    said.join(", ")
}

fn row(scenario: &ScenarioOutcome) -> Vec<String> {
    // The range of the figure that the scenario is about.
    let leading = [Measure::TasksPerSec, Measure::LatencyMsP50]
        .into_iter()
        .find(|measure| scenario.measures.contains_key(measure));
    let range = leading.and_then(|measure| {
        let spread = scenario.measures.get(&measure)?.as_ref()?;
        Some(format!("{}–{}", measure.show(spread.min), measure.show(spread.max)))
    });
    let mut cells = vec![scenario.name.name()];
    for (at, (measure, _)) in COLUMNS.iter().enumerate() {
        cells.push(cell(scenario, *measure));
        if at == 0 {
            cells.push(range.clone().unwrap_or_else(|| "–".to_owned()));
        }
    }
    cells
}

/// `–` where a measure does not apply, `n/a` where it could not be taken.
pub(super) fn cell(scenario: &ScenarioOutcome, measure: Measure) -> String {
    match scenario.measures.get(&measure) {
        None => "–".to_owned(),
        Some(None) => "n/a".to_owned(),
        Some(Some(Spread { median, .. })) => measure.show(*median),
    }
}

/// What has no place in the table.
pub(super) fn remarks(outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(idle) = outcome.scenario(Scenario::Idle) {
        lines.push(format!(
            "An idle engine: {} commits/s, {} % CPU, {} MB.",
            cell(idle, Measure::IdleCommitsPerSec),
            cell(idle, Measure::IdleCpuPercent),
            cell(idle, Measure::EngineMemoryMb)
        ));
    }
    if let Some(pickup) = outcome.scenario(Scenario::Pickup) {
        lines.push(format!(
            "Pickup counts from when creation has returned; from its call it is p50 {} ms, p99 {} ms.",
            cell(pickup, Measure::CallLatencyMsP50),
            cell(pickup, Measure::CallLatencyMsP99)
        ));
    }
    if outcome.strangers > 0 {
        lines.push(format!(
            "Others were at work on this server, over {}: what they used is in the costs.",
            count(usize::try_from(outcome.strangers).unwrap_or(0), "connection")
        ));
    }
    let settings = &outcome.settings;
    let repeats = if settings.repeats == 1 { "one repeat" } else { "medians of repeats" };
    lines.push(format!(
        "{}, {} cores, {repeats}; costs are per task. n/a: cannot be measured here. –: does not apply.",
        outcome.database, outcome.cores
    ));
    lines
}

fn compared(comparison: &Comparison) -> String {
    let rows = comparison.ratios.iter().map(|ratio| {
        let worse = if comparison.is_worse(ratio) { "worse" } else { "" };
        vec![
            ratio.scenario.name(),
            ratio.measure.words().to_owned(),
            ratio.measure.show(ratio.then),
            ratio.measure.show(ratio.now),
            format!("{:.2}", ratio.ratio),
            worse.to_owned(),
        ]
    });
    let header = ["SCENARIO", "MEASURE", "THEN", "NOW", "RATIO", ""];
    let mut text = table(&header, &[2, 3, 4], rows.collect());
    text.push_str("\nRATIO: above 1 it is better now, whichever way is better.");
    for difference in &comparison.differences {
        text.push_str(&format!("\nMeasured differently: {difference}."));
    }
    text
}
