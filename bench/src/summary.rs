//! The report as a table for people.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use task_engine_core::display::count;

use crate::metric::{Measurement, Metric};
use crate::options::Scenario;
use crate::report::{BenchReport, ScenarioReport, Spread};

/// Columns of the table and their headers.
pub(crate) const COLUMNS: [(Metric, &str); 10] = [
    (Metric::TasksPerSec, "TASKS/S"),
    (Metric::LatencyMsP50, "P50 ms"),
    (Metric::LatencyMsP95, "P95 ms"),
    (Metric::LatencyMsP99, "P99 ms"),
    (Metric::DatabaseCpuUsPerTask, "DB CPU µs"),
    (Metric::EngineCpuUsPerTask, "ENGINE CPU µs"),
    (Metric::WalBytesPerTask, "WAL B"),
    (Metric::CommitsPerTask, "COMMITS"),
    (Metric::DeadRowsPerTask, "DEAD ROWS"),
    (Metric::EngineMemoryMb, "MEMORY MB"),
];

pub(crate) fn print(report: &BenchReport, mut out: impl Write) -> io::Result<()> {
    let header: Vec<&str> = std::iter::once("SCENARIO")
        .chain(["TASKS/S", "MIN–MAX"])
        .chain(COLUMNS[1..].iter().map(|(_, title)| *title))
        .collect();
    let rows = report.scenarios.iter().filter(|scenario| scenario.name != Scenario::Idle);
    let rows: Vec<_> = rows.map(row).collect();
    if !rows.is_empty() {
        writeln!(out, "{}", table(&header, rows))?;
    }
    for line in remarks(report) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The main metrics of one repeat.
pub(crate) fn in_short(measurement: &Measurement) -> String {
    let show = |(metric, value): (&Metric, &Option<f64>)| match value {
        Some(value) => format!("{} {}", metric.show(*value), metric.label()),
        None => format!("{} n/a", metric.label()),
    };
    let leading = [
        Metric::TasksPerSec,
        Metric::StepsPerSec,
        Metric::WithCreationPerSec,
        Metric::LatencyMsP50,
        Metric::LatencyMsP99,
        Metric::IdleCpuPercent,
        Metric::StartsInWindowMax,
        Metric::StartsUsedPercent,
        Metric::BacklogLeft,
    ];
    let shown: Vec<_> = measurement
        .values
        .iter()
        .filter(|(metric, _)| leading.contains(metric))
        .map(show)
        .collect();
    shown.join(", ")
}

fn row(scenario: &ScenarioReport) -> Vec<String> {
    // The range of the first metric.
    let leading = [Metric::TasksPerSec, Metric::LatencyMsP50]
        .into_iter()
        .find(|metric| scenario.metrics.contains_key(metric));
    let range = leading.and_then(|metric| {
        let spread = scenario.metrics.get(&metric)?.as_ref()?;
        Some(format!("{}–{}", metric.show(spread.min), metric.show(spread.max)))
    });
    let mut cells = vec![scenario.name.name()];
    for (at, (metric, _)) in COLUMNS.iter().enumerate() {
        cells.push(cell(scenario, *metric));
        if at == 0 {
            cells.push(range.clone().unwrap_or_else(|| "–".to_owned()));
        }
    }
    cells
}

/// `–`: the metric does not apply; `n/a`: it cannot be measured here.
pub(crate) fn cell(scenario: &ScenarioReport, metric: Metric) -> String {
    match scenario.metrics.get(&metric) {
        None => "–".to_owned(),
        Some(None) => "n/a".to_owned(),
        Some(Some(Spread { median, .. })) => metric.show(*median),
    }
}

/// Scenarios that are compared with another one, by a metric.
const RATIOS: [(Scenario, Scenario, Metric); 9] = [
    (Scenario::FlowFanOut, Scenario::Drain, Metric::TasksPerSec),
    (Scenario::FlowFanIn, Scenario::Drain, Metric::TasksPerSec),
    (Scenario::FlowLayers, Scenario::Drain, Metric::TasksPerSec),
    (Scenario::FlowChain, Scenario::Drain, Metric::TasksPerSec),
    (Scenario::LimitedDrain, Scenario::Drain, Metric::TasksPerSec),
    (Scenario::Blocked, Scenario::Drain, Metric::TasksPerSec),
    (Scenario::Blocked, Scenario::Pickup, Metric::LatencyMsP50),
    (Scenario::Blocked, Scenario::Pickup, Metric::LatencyMsP99),
    (Scenario::Fair, Scenario::Pickup, Metric::LatencyMsP50),
];

/// The ratio of two scenarios that ran in alternation: of each repeat, so that the load of the
/// machine affects both values alike.
fn compare(report: &BenchReport, (of, to, metric): (Scenario, Scenario, Metric)) -> Option<String> {
    let values = |scenario| report.scenario(scenario)?.metrics.get(&metric)?.as_ref();
    let (of_values, to_values): (&Spread, &Spread) = (values(of)?, values(to)?);
    let pairs = of_values.values.iter().zip(&to_values.values);
    let ratios = pairs.filter(|(_, to)| **to > 0.0).map(|(of, to)| of / to).collect();
    let Spread { median, min, max, .. } = Spread::of(ratios)?;
    Some(format!(
        "{} of {} / {}: {median:.2} ({min:.2}–{max:.2}).",
        metric.label(),
        of.name(),
        to.name()
    ))
}

/// Lines below the table.
pub(crate) fn remarks(report: &BenchReport) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(idle) = report.scenario(Scenario::Idle) {
        lines.push(format!(
            "An idle engine: {} commits/s, {} % CPU, {} MB.",
            cell(idle, Metric::IdleCommitsPerSec),
            cell(idle, Metric::IdleCpuPercent),
            cell(idle, Metric::EngineMemoryMb)
        ));
    }
    if let Some(pickup) = report.scenario(Scenario::Pickup) {
        lines.push(format!(
            "Pickup is measured from the return of the creating call; from the call itself: p50 {} ms, p99 {} ms.",
            cell(pickup, Metric::CallLatencyMsP50),
            cell(pickup, Metric::CallLatencyMsP99)
        ));
    }
    for (scenario, metric, what) in [
        (Scenario::Steps, Metric::StepsPerSec, "Steps"),
        (Scenario::Children, Metric::WithCreationPerSec, "Children, with their creation"),
    ] {
        let spread = report.scenario(scenario).and_then(|one| one.metrics.get(&metric)?.as_ref());
        if let Some(Spread { median, min, max, .. }) = spread {
            let [median, min, max] = [median, min, max].map(|value| metric.show(*value));
            lines.push(format!("{what}: {median} a second ({min}–{max})."));
        }
    }
    if let Some(rate) = report.scenario(Scenario::Rate) {
        let most = rate.metrics.get(&Metric::StartsInWindowMax).and_then(Option::as_ref);
        lines.push(format!(
            "A rate of {} per second: at most {} starts in any second, {} % of the possible starts.",
            report.settings.rate,
            most.map_or_else(|| "n/a".to_owned(), |most| Metric::StartsInWindowMax.show(most.max)),
            cell(rate, Metric::StartsUsedPercent)
        ));
    }
    if let Some(fair) = report.scenario(Scenario::Fair) {
        lines.push(format!(
            "Fair: {} tasks of the other key were left at the end.",
            cell(fair, Metric::BacklogLeft)
        ));
    }
    lines.extend(RATIOS.into_iter().filter_map(|ratio| compare(report, ratio)));
    if report.other_connections > 0 {
        lines.push(format!(
            "Other programs used this server ({}); their costs are included.",
            count(usize::try_from(report.other_connections).unwrap_or(0), "connection")
        ));
    }
    let settings = &report.settings;
    let repeats = if settings.repeats == 1 { "one repeat" } else { "medians of repeats" };
    lines.push(format!(
        "{}, {} cores, {repeats}; costs are per task. n/a: cannot be measured here; –: does not apply.",
        report.database, report.cores
    ));
    lines
}

/// A table without lines; all columns but the first are numbers.
fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.to_vec())
        .add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if at > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
