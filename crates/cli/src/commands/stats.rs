//! `task-engine stats`.

use std::time::Duration;

use clap::Args;
use task_engine_core::display::{count_text, span};
use task_engine_operations::stats::{RecentStats, Stats, StatsSnapshot};

use crate::console::Console;
use crate::error::CliError;
use crate::escape::summary;
use crate::table::{fit_lines, table};

/// Show how many tasks wait, run, end and fail
///
/// All numbers come from bounded reads, however much history there is: waiting tasks are counted up
/// to 100,000 a class, failed ones up to 10,000. A + means that there may be more. Ended attempts
/// are counted by the engines, all of them, up to five seconds ago. Only the last error of a class
/// is a sample.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let look = StatsSnapshot::take(&*store).await?;
    if args.json {
        return console.print_json([&look.stats]);
    }
    console.print(fit_lines(&page(&look.stats)))
}

fn page(stats: &Stats) -> String {
    let mut parts = vec![overview(stats)];
    parts.extend([&stats.last_minute, &stats.last_hour].map(ended));
    if !stats.last_hour.classes.is_empty() {
        parts.push(format!("\n{}", classes(&stats.last_hour)));
    }
    if !stats.queues.is_empty() {
        parts.push(format!("\n{}", queues(stats)));
    }
    parts.push(format!("\n{}", engines(stats)));
    parts.join("\n")
}

/// `waiting 3 due, 1 later; running 2; failed 0; cancelled 0`
pub(crate) fn overview(stats: &Stats) -> String {
    format!(
        "waiting {} due, {} later; running {}; failed {}; cancelled {}",
        count_text(stats.due),
        count_text(stats.later),
        stats.running,
        count_text(stats.failure_counts.failed),
        count_text(stats.failure_counts.cancelled),
    )
}

/// `last 87 s: 12 attempts ended (0.2 a second): 8 succeeded, 3 failed, 1 other`
pub(crate) fn ended(lately: &RecentStats) -> String {
    let time = span(Duration::try_from_secs_f64(lately.secs.round()).unwrap_or_default());
    let rate = match lately.per_sec {
        rate if rate >= 10.0 => format!(" (about {rate:.0} a second)"),
        rate if rate >= 0.1 => format!(" (about {rate:.1} a second)"),
        _ => String::new(),
    };
    let attempts = if lately.ended == 1 { "attempt" } else { "attempts" };
    let RecentStats { ended, succeeded, failed, other, .. } = lately;
    let other = if *other > 0 { format!(", {other} other") } else { String::new() };
    format!(
        "last {time}: {ended} {attempts} ended{rate}: {succeeded} succeeded, {failed} failed{other}"
    )
}

pub(crate) fn classes(lately: &RecentStats) -> String {
    let time = |secs: Option<f64>| {
        let time = secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
        time.map_or_else(String::new, span)
    };
    let rows = lately.classes.iter().map(|class| {
        let name = if class.class.is_empty() { "(others)" } else { &class.class };
        vec![
            summary(name, 50),
            class.ended.to_string(),
            class.failed.to_string(),
            time(class.run_secs_p50),
            time(class.run_secs_p95),
            class.last_error.as_ref().map(|error| summary(error, usize::MAX)).unwrap_or_default(),
        ]
    });
    let header = ["CLASS", "ENDED", "FAILED", "P50", "P95", "LAST ERROR (SAMPLE)"];
    table(&header, &[1, 2, 3, 4], rows.collect())
}

pub(crate) fn queues(stats: &Stats) -> String {
    let rows = stats.queues.iter().map(|queue| {
        let oldest = queue.oldest_due_secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
        vec![
            summary(&queue.row.name, 50),
            count_text(queue.row.due),
            count_text(queue.row.later),
            queue.row.running.to_string(),
            oldest.map_or_else(String::new, span),
            if queue.row.paused.is_some() { "paused" } else { "open" }.to_owned(),
        ]
    });
    let header = ["QUEUE", "DUE", "LATER", "RUNNING", "OLDEST", "STATE"];
    table(&header, &[1, 2, 3, 4], rows.collect())
}

fn engines(stats: &Stats) -> String {
    if stats.engines.is_empty() {
        return "No engine is alive.".to_owned();
    }
    let rows = stats.engines.iter().map(|engine| {
        vec![
            summary(&engine.instance, 50),
            engine.workers.to_string(),
            engine.busy.to_string(),
            (i64::from(engine.workers) - engine.busy).max(0).to_string(),
        ]
    });
    table(&["ENGINE", "WORKERS", "BUSY", "FREE"], &[1, 2, 3], rows.collect())
}
