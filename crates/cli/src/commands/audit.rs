//! `task-engine audit`.

use std::collections::HashSet;
use std::sync::Arc;

use clap::Args;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use task_engine::{Store, TaskId};
use task_engine_store::audit::{AuditEntry, AuditFilter, AuditOutcome};

use crate::console::{Console, now, quoted};
use crate::error::CliError;
use crate::escape::summary;
use crate::table::table;
use crate::times::past_time;
use task_engine_core::display::clock;

/// Show the operations of users, newest first
///
/// An operation is recorded before it starts, and its outcome after. An entry
/// without an outcome is still running, or its process ended before it was done.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many entries to list
    #[arg(long, default_value_t = 50, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Only entries before this one: the next page
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    before: Option<i64>,
    /// Only of actors that have this text in their name
    #[arg(long, value_name = "TEXT")]
    actor: Option<String>,
    /// Only this action, like tasks.retry, or all that begin so: tasks
    #[arg(long, value_name = "NAME")]
    action: Option<String>,
    /// Only operations on this task by its id
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    task: Option<TaskId>,
    /// Only from this time on: 2h (ago), 03:00, 2026-12-24 or "2026-12-24 18:00"
    #[arg(long, value_name = "TIME", value_parser = |text: &str| past_time(text, &now()))]
    since: Option<Timestamp>,
    /// Only before this time
    #[arg(long, value_name = "TIME", value_parser = |text: &str| past_time(text, &now()))]
    until: Option<Timestamp>,
    /// Print JSON, one entry a line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let filter = AuditFilter {
        before: args.before,
        limit: args.limit,
        actor: args.actor,
        action: args.action,
        since: args.since,
        until: args.until,
        task: args.task,
    };
    let entries = store.audit_page(&filter).await?;
    if args.json {
        return console.print_json(&entries);
    }
    let Some(last) = entries.last() else {
        console.message(match filter.before {
            _ if filter.is_narrow() => "No entries match.".to_owned(),
            None => format!("No operations are recorded on {}.", store.location()),
            Some(id) => format!("There is no entry before {id}."),
        });
        return name_bulk_operations(console, &store, &filter).await;
    };
    let zone = now().time_zone().clone();
    let completed: HashSet<i64> = entries.iter().filter_map(|entry| entry.of).collect();
    // The outcome repeats the request, so only the outcome is shown.
    let shown = entries.iter().filter(|entry| !completed.contains(&entry.id));
    let rows = shown.map(|entry| line(entry, &zone)).collect();
    let header = ["ID", "WHEN", "WHO", "ACTION", "TARGET", "OUTCOME", "DETAIL", "REASON"];
    console.print(table(&header, &[0], rows))?;
    name_bulk_operations(console, &store, &filter).await?;
    if entries.len() == args.limit as usize {
        let narrowed = narrowed(&filter);
        console.message(format_args!(
            "There may be more: {}",
            console
                .command(&format!("audit{narrowed} --limit {} --before {}", args.limit, last.id))
        ));
    }
    Ok(())
}

/// An operation by a filter names no tasks. Prints the command that lists the operations
/// at the time when the task ended.
async fn name_bulk_operations(
    console: &Console,
    store: &Arc<dyn Store>,
    filter: &AuditFilter,
) -> Result<(), CliError> {
    let Some(id) = filter.task else { return Ok(()) };
    let Some(task) = store.task(id).await? else { return Ok(()) };
    let Some(ended_at) = task.executions.iter().filter_map(|one| one.stopped_at).max() else {
        return Ok(());
    };
    let around = AuditFilter {
        action: Some("tasks".to_owned()),
        // A batch of a large operation may come minutes after its entry.
        since: Some(ended_at - SignedDuration::from_mins(10)),
        until: Some(ended_at + SignedDuration::from_secs(1)),
        ..AuditFilter::default()
    };
    let command = console.command(&format!("audit{}", narrowed(&around)));
    console.message(format_args!(
        "Operations by a filter name no tasks. Those until task {id} ended: {command}"
    ));
    Ok(())
}

/// The options of this filter.
fn narrowed(filter: &AuditFilter) -> String {
    let text = |name: &str, value: Option<String>| {
        value.map_or_else(String::new, |value| format!(" --{name} {}", quoted(&value)))
    };
    [
        text("actor", filter.actor.clone()),
        text("action", filter.action.clone()),
        text("task", filter.task.map(|id| id.to_string())),
        text("since", filter.since.map(|time| time.to_string())),
        text("until", filter.until.map(|time| time.to_string())),
    ]
    .concat()
}

fn line(entry: &AuditEntry, zone: &TimeZone) -> Vec<String> {
    let detail = entry.detail.as_str();
    let outcome = match entry.outcome {
        AuditOutcome::Started => "started, no outcome".to_owned(),
        outcome => outcome.to_string(),
    };
    vec![
        entry.id.to_string(),
        clock(entry.at, zone),
        summary(&entry.actor, 30),
        summary(&entry.action, 30),
        summary(&entry.target, 50),
        outcome,
        if detail == "{}" { String::new() } else { summary(detail, 60) },
        entry.reason.as_ref().map_or_else(String::new, |reason| summary(reason, 60)),
    ]
}
