//! Lists schedules, and shows one whole.

use std::io::{self, Write};

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use task_engine_core::display::{clock_and_relative, count, relative, span};
use task_engine_core::schedule::SlotPreview;
use task_engine_core::schedule::history::{HistoryLine, ScheduleDetails, ScheduleEvent};
use task_engine_core::schedule::row::{FiredSlot, ScheduleRow};
use task_engine_core::schedule::{InvalidDefinition, ScheduleDefinition};
use task_engine_store::schedules::Schedules;

use super::next::times;
use crate::console::{Console, now};
use crate::error::CliError;
use crate::escape::{escape, summary};
use crate::pretty::pretty;
use crate::table::table;

/// List schedules, by name
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// How many to list
    #[arg(long, default_value_t = 1000, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Only those whose names come after this one: the next page
    #[arg(long, value_name = "NAME")]
    after: Option<String>,
    /// Print JSON, one schedule a line
    #[arg(long)]
    json: bool,
}

/// Show everything about a schedule: its task, its last times and its next
#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// The schedule
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// How many lines of its history, and how many times to come, are shown.
const FIRED_SHOWN: u32 = 10;
const NEXT_SHOWN: usize = 5;

pub(super) async fn list(console: &Console, args: ListArguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let mut rows = store.schedules(args.after.as_deref(), args.limit).await?;
    let secrets = task_engine_operations::redaction::secrets(&*store).await?;
    rows.iter_mut().for_each(|row| secrets.schedule(row));
    if args.json {
        return console.print_json(&rows);
    }
    if rows.is_empty() {
        console.message(format_args!(
            "There are no {}schedules on {}.\nAdd one: {}",
            if args.after.is_some() { "more " } else { "" },
            store.location(),
            console.command("schedules add tidy WaitingTask '{\"waiting_time\": 1}' --every 15m")
        ));
        return Ok(());
    }
    let now = now().timestamp();
    let header = ["NAME", "RULE", "TIME ZONE", "CLASS", "STATE", "NEXT", "LAST"];
    let lines = rows.iter().map(|row| line(row, now)).collect();
    console.print(table(&header, &[], lines))?;
    if let Some(last) = rows.last().filter(|_| rows.len() == args.limit as usize) {
        let shown = count(rows.len(), "schedule");
        console.message(format_args!(
            "{shown} shown; there may be more: --after '{}'",
            escape(&last.name)
        ));
    }
    Ok(())
}

fn line(row: &ScheduleRow, now: Timestamp) -> Vec<String> {
    let definition = row.definition();
    let field = |read: fn(&ScheduleDefinition) -> &str, most| {
        definition.as_ref().map_or_else(|_| "?".to_owned(), |known| summary(read(known), most))
    };
    let when =
        |time: Option<Timestamp>| time.map_or_else(|| "-".to_owned(), |time| relative(time, now));
    vec![
        summary(&row.name, 40),
        field(|known| &known.rule, 40),
        field(|known| &known.time_zone, 40),
        field(|known| &known.class, 40),
        state(row).to_owned(),
        when(row.state.next_at),
        when(row.last_slot),
    ]
}

fn state(row: &ScheduleRow) -> &'static str {
    match row.state {
        _ if row.state.paused.is_some() => "paused",
        _ if row.state.error.is_some() => "error",
        _ => "active",
    }
}

/// A schedule for programs.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    row: &'a ScheduleRow,
    fired: &'a [FiredSlot],
    /// Skipped slots and manual runs.
    events: &'a [ScheduleEvent],
    next: &'a [SlotPreview],
}

pub(super) async fn show(console: &Console, args: ShowArguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let mut details = Schedules::of(&*store).show(&args.name, FIRED_SHOWN).await?;
    let next = upcoming(&details.row, details.row.definition().as_ref(), details.now);
    task_engine_operations::redaction::secrets(&*store).await?.schedule(&mut details.row);
    let mut history = details.history();
    history.truncate(FIRED_SHOWN as usize);
    let ScheduleDetails { row, fired, events, .. } = details;
    let definition = row.definition();
    if args.json {
        let whole = Whole { row: &row, fired: &fired, events: &events, next: &next };
        return console.print_json([whole]);
    }
    let mut out = console.results();
    print(&mut out, &row, definition.as_ref(), &history, &next)?;
    out.flush()?;
    let name = crate::console::quoted(&row.name);
    if row.state.error.is_some() {
        let set = console.command(&format!("schedules set {name} …"));
        console.message(format_args!(
            "\nTo fix it, change what the error names: {set} (schedules set --help)"
        ));
    } else if row.state.paused.is_some() {
        let resume = console.command(&format!("schedules resume {name}"));
        console.message(format_args!("\nTo let it run again: {resume}"));
    }
    Ok(())
}

fn upcoming(
    row: &ScheduleRow,
    definition: Result<&ScheduleDefinition, &InvalidDefinition>,
    now: Timestamp,
) -> Vec<SlotPreview> {
    let timetable = definition.ok().and_then(|known| known.timetable(row.state.anchor).ok());
    match timetable {
        Some(timetable) if row.state.next_at.is_some() => timetable.preview(now, NEXT_SHOWN),
        _ => Vec::new(),
    }
}

fn print(
    out: &mut impl Write,
    row: &ScheduleRow,
    definition: Result<&ScheduleDefinition, &InvalidDefinition>,
    history: &[HistoryLine],
    next: &[SlotPreview],
) -> io::Result<()> {
    let now = now();
    let time = |time| clock_and_relative(time, now.timestamp(), now.time_zone());
    writeln!(out, "Schedule {}: {}", escape(&row.name), state(row))?;
    let mut field = |name: &str, text: &str| -> io::Result<()> {
        let mut lines = text.lines();
        writeln!(out, "  {name:10}  {}", lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| writeln!(out, "  {:10}  {line}", ""))
    };
    if let Some(pause) = &row.state.paused {
        let reason = pause.reason.as_deref().unwrap_or("no reason was given");
        field("paused", &format!("{}: {}", time(pause.at), escape(reason)))?;
    }
    if let Some(error) = &row.state.error {
        field("error", &escape(error))?;
    }
    match definition {
        Ok(known) => {
            field("rule", &format!("{}, {}", escape(&known.rule), escape(&known.time_zone)))?;
            let place = format!("queue {}, priority {}", escape(&known.queue), known.priority);
            field("task", &format!("{}, {place}", escape(&known.class)))?;
            field("parameters", &pretty(known.parameters.as_str()))?;
            if known.context.as_str() != "{}" {
                field("context", &pretty(known.context.as_str()))?;
            }
            field("missed", &known.missed.to_string())?;
            field("overlap", known.overlap.as_str())?;
            if !known.jitter.is_zero() {
                field("jitter", &format!("up to {}", span(known.jitter)))?;
            }
            field("declared", declaration(row, known))?;
        }
        Err(why) => field("unknown", &escape(&why.to_string()))?,
    }
    field("created", &time(row.created_at))?;
    field("changed", &time(row.updated_at))?;
    if let Some(next_at) = row.state.next_at {
        field("next", &time(next_at))?;
    }
    if !history.is_empty() {
        let line = |line: &HistoryLine| {
            let until = line.until.map_or_else(String::new, |until| {
                until
                    .to_zoned(now.time_zone().clone())
                    .strftime(" to %Y-%m-%d %H:%M:%S")
                    .to_string()
            });
            vec![
                format!("{}{until}", time(line.at)),
                line.what.clone(),
                line.task_id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
                summary(&line.detail, 60),
            ]
        };
        let lines = history.iter().map(line).collect();
        let header = ["TIME", "WHAT", "TASK", "DETAILS"];
        writeln!(out, "\nHistory\n{}", table(&header, &[2], lines))?;
    }
    if !next.is_empty() {
        writeln!(out, "\nNext\n{}", times(next, now.timestamp()))?;
    }
    Ok(())
}

fn declaration(row: &ScheduleRow, definition: &ScheduleDefinition) -> &'static str {
    match &row.state.declared {
        None => "no, it was added by hand",
        Some(said) if definition.to_declaration().is_ok_and(|now| now == *said) => {
            "by an application's code"
        }
        Some(_) => "by an application's code, and changed by hand since",
    }
}
