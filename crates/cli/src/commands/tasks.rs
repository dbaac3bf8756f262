//! `task-engine tasks`.

use std::io::Write;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use task_engine::model::{TaskFilter, TaskRow};
use task_engine::{TaskId, TaskStatus};

use crate::console::{Console, now};
use crate::database::Access;
use crate::escape::summary;
use crate::exit::Fault;
use crate::spans::{count, relative, span};
use crate::table::table;

/// List tasks, newest first
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only those in this status
    #[arg(long, value_name = "STATUS",
          value_parser = PossibleValuesParser::new(TaskStatus::ALL.map(TaskStatus::as_str))
              .try_map(|text| text.parse::<TaskStatus>()))]
    status: Option<TaskStatus>,
    /// Only those of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// How many at the most
    #[arg(long, default_value_t = 50, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Only those older than this one: the next page
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    before: Option<TaskId>,
    /// Print JSON, one task a line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), Fault> {
    let store = console.database()?.open(Access::MustExist).await?;
    let filter = TaskFilter {
        status: args.status,
        class: args.class,
        before: args.before,
        limit: args.limit,
    };
    let rows = store.tasks(&filter).await?;
    let mut out = console.results();
    if args.json {
        for row in &rows {
            serde_json::to_writer(&mut out, row).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        return Ok(out.flush()?);
    }
    if rows.is_empty() {
        teach(console, &filter, &store.place());
        return Ok(());
    }
    let now = now().timestamp();
    let lines = rows.iter().map(|row| line(row, now)).collect();
    writeln!(
        out,
        "{}",
        table(&["ID", "CLASS", "STATUS", "ATTEMPTS", "WHEN", "ERROR"], &[0, 3], lines)
    )?;
    out.flush()?;
    if let Some(last) = rows.last().filter(|_| rows.len() == filter.limit as usize) {
        console.say(format_args!(
            "{} shown; there may be older ones: --before {}",
            count(rows.len(), "task"),
            last.id
        ));
    }
    Ok(())
}

fn line(row: &TaskRow, now: Timestamp) -> Vec<String> {
    let when = match row.status {
        TaskStatus::Waiting => format!("due {}", relative(row.scheduled_at, now)),
        TaskStatus::Running => {
            format!("for {}", span(now.duration_since(row.updated_at).unsigned_abs()))
        }
        _ => relative(row.updated_at, now),
    };
    let error = row.error.as_ref().map(|error| summary(&error.to_string(), 60));
    vec![
        row.id.to_string(),
        summary(&row.task_class, 50),
        row.status.to_string(),
        row.attempts.to_string(),
        when,
        error.unwrap_or_default(),
    ]
}

/// An empty answer is the moment to say what there is to do.
fn teach(console: &Console, filter: &TaskFilter, place: &str) {
    if filter.status.is_some() || filter.class.is_some() || filter.before.is_some() {
        console.say(format_args!("No such tasks on {place}."));
    } else {
        console.say(format_args!(
            "There are no tasks on {place} yet.\nCreate one: {}\nExecute it: {}",
            console.command(r#"create WaitingTask '{"waiting_time": 2}'"#),
            console.command("start")
        ));
    }
}
