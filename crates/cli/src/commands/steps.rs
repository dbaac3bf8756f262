//! `task-engine steps`.

use std::io::Write;

use clap::Args;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Serialize;
use task_engine::{TaskId, TaskStatus};
use task_engine_core::display::{
    StepEntry, StepState, clock, clock_and_relative, count, kept_signals, relative, span,
    step_timeline,
};
use task_engine_core::step::{SignalRow, StepKind};
use task_engine_operations::redaction::{self, RedactedTask};

use crate::console::{Console, now};
use crate::error::CliError;
use crate::escape::{escape, summary};
use crate::table::{fit_lines, table};

/// List the recorded steps of a durable task
///
/// Steps, sleeps, waits for signals, and calls of child tasks, in their order.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The task, by its id
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    id: TaskId,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct StepsOutput<'a> {
    id: TaskId,
    status: TaskStatus,
    /// When they were read, by the database's clock.
    at: Timestamp,
    steps: &'a [StepEntry],
    /// Signals that the task has not waited for yet.
    kept_signals: &'a [&'a SignalRow],
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let secrets = redaction::secrets(&*store).await?;
    let task = RedactedTask::read(&*store, args.id, &secrets).await?;
    let steps = task.steps(&*store).await?;
    let entries = step_timeline(&steps, task.row.status);
    let kept: Vec<_> = kept_signals(&steps).collect();
    if args.json {
        let (id, status) = (args.id, task.row.status);
        let all = StepsOutput { id, status, at: steps.now, steps: &entries, kept_signals: &kept };
        return console.print_json([all]);
    }
    if entries.is_empty() {
        console.message(format_args!("Task {} has recorded no steps.", args.id));
    }
    let mut out = console.results();
    let local = now();
    if !entries.is_empty() {
        writeln!(out, "{}", fit_lines(&step_table(&entries, steps.now, local.time_zone())))?;
    }
    for signal in kept {
        let at = relative(signal.sent_at, steps.now);
        writeln!(out, "Signal {} was sent {at} and is kept.", escape(&signal.name))?;
    }
    Ok(out.flush()?)
}

const HEADER: [&str; 8] = ["#", "NAME", "KIND", "STATE", "STARTED", "TOOK", "ATTEMPT", "RESULT"];
/// So much of a result is shown; `--json` has it whole.
const RESULT_CHARS_MAX: usize = 60;
const NAME_CHARS_MAX: usize = 40;
/// So many children of a call are shown.
const CHILDREN_SHOWN: usize = 5;

fn step_table(entries: &[StepEntry], now: Timestamp, zone: &TimeZone) -> String {
    let row = |entry: &StepEntry| {
        vec![
            entry.number.to_string(),
            summary(&entry.name, NAME_CHARS_MAX),
            entry.kind.to_string(),
            entry.state.as_str().to_owned(),
            clock(entry.started_at, zone),
            took(entry).unwrap_or_default(),
            attempt(entry),
            result(entry, now, zone),
        ]
    };
    table(&HEADER, &[0, 6], entries.iter().map(row).collect())
}

/// One line about a step, for the page of its task.
pub(super) fn line(entry: &StepEntry, at: &Zoned) -> String {
    let mut text = format!(
        "{:>3}  {}: {} {}",
        entry.number,
        summary(&entry.name, NAME_CHARS_MAX),
        entry.kind,
        entry.state.as_str()
    );
    if let Some(took) = took(entry).filter(|_| entry.kind != StepKind::Sleep) {
        text += &format!(", took {took}");
    }
    match result(entry, at.timestamp(), at.time_zone()) {
        empty if empty.is_empty() => text,
        result => format!("{text}, {result}"),
    }
}

fn took(entry: &StepEntry) -> Option<String> {
    let ended = entry.ended_at?;
    Some(span(ended.duration_since(entry.started_at).unsigned_abs()))
}

/// The attempt that recorded it. One that `rerun --from` kept has none.
fn attempt(entry: &StepEntry) -> String {
    if entry.attempt == 0 { "kept".to_owned() } else { entry.attempt.to_string() }
}

fn result(entry: &StepEntry, now: Timestamp, zone: &TimeZone) -> String {
    match (&entry.result, entry.until, entry.state) {
        (Some(result), ..) => summary(result.as_str(), RESULT_CHARS_MAX),
        (None, Some(until), StepState::Sleeping | StepState::Waiting | StepState::Unfinished) => {
            format!("until {}", clock_and_relative(until, now, zone))
        }
        _ if !entry.children.is_empty() => {
            let shown = entry.children.iter().take(CHILDREN_SHOWN).map(ToString::to_string);
            let shown = shown.collect::<Vec<_>>().join(", ");
            let more = if entry.children.len() > CHILDREN_SHOWN { ", …" } else { "" };
            format!("{}: {shown}{more}", count(entry.children.len(), "child task"))
        }
        _ => String::new(),
    }
}
