//! `task-engine tasks`.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use task_engine::{TaskId, TaskStatus};
use task_engine_core::display::{count, relative, span};
use task_engine_core::filter::FoundTask;
use task_engine_core::task::TaskRow;
use task_engine_operations::search::{Search, SearchPage, TIMEOUT};

use crate::args::{FILTERS, filter, status_of};
use crate::console::{Console, now, quoted};
use crate::error::CliError;
use crate::escape::summary;
use crate::json_output::write_json_line;
use crate::table::{fit_lines, table};

/// List tasks, newest first
#[derive(Debug, Args)]
#[command(after_help = FILTERS)]
pub(crate) struct Arguments {
    /// Only tasks that match this filter, like status=failed class=send_mail
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// Only those in this status: the same as the filter status=STATUS;
    /// `succeeded` means `stopped`
    #[arg(long, value_name = "STATUS", value_parser = status_of(&TaskStatus::ALL))]
    status: Option<TaskStatus>,
    /// Only those of this class: the same as the filter class=CLASS
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// How many to list
    #[arg(long, default_value_t = 50, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Only tasks before this id: the next page
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    before: Option<TaskId>,
    /// Refresh the list every two seconds, until Ctrl-C; needs a terminal
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Print JSON, one task a line
    #[arg(long, visible_alias = "jsonl")]
    json: bool,
}

const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Clears the screen.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let mut filter = filter(&args.filter)?;
    if let Some(status) = args.status {
        filter = filter.and_status(&[status]);
    }
    if let Some(class) = args.class {
        filter = filter.and_class(class);
    }
    if args.watch && !io::stdout().is_terminal() {
        return Err(CliError::Usage(
            "Not a terminal: leave out --watch to list the tasks once.".to_owned(),
        ));
    }
    let store = console.open().await?;
    let search = Search { filter, before: args.before, limit: args.limit, timeout: TIMEOUT };
    loop {
        let found = search.run(&*store).await?;
        let mut out = console.results();
        if args.json {
            write_json(&mut out, &found.tasks)?;
        } else {
            if args.watch {
                write!(out, "{CLEAR}")?;
            }
            if !found.tasks.is_empty() {
                writeln!(out, "{}", lines(&found.tasks, now().timestamp()))?;
            }
        }
        out.flush()?;
        drop(out);
        print_hint(console, &search, &found, &store.location());
        if !args.watch {
            return Ok(());
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

/// One task a line.
pub(crate) fn write_json(out: &mut impl Write, tasks: &[FoundTask]) -> Result<(), CliError> {
    for task in tasks {
        write_json_line(out, &task.row)?;
    }
    Ok(())
}

/// Tasks as a table, safe for a terminal.
pub(crate) fn lines(tasks: &[FoundTask], now: Timestamp) -> String {
    let lines = tasks.iter().map(|task| line(&task.row, now)).collect();
    fit_lines(&table(&["ID", "CLASS", "STATUS", "ATTEMPTS", "WHEN", "ERROR"], &[0, 3], lines))
}

fn line(row: &TaskRow, now: Timestamp) -> Vec<String> {
    let when = match row.status {
        TaskStatus::Waiting if row.is_blocked && row.scheduled_at <= now => {
            "after other tasks".to_owned()
        }
        TaskStatus::Waiting => format!("due {}", relative(row.scheduled_at, now)),
        TaskStatus::Running => {
            format!("for {}", span(now.duration_since(row.updated_at).unsigned_abs()))
        }
        _ => relative(row.updated_at, now),
    };
    let error = row.error.as_ref().map(|error| summary(&error.to_string(), usize::MAX));
    vec![
        row.id.to_string(),
        summary(&row.class, 50),
        if row.is_blocked { "blocked".to_owned() } else { row.status.to_string() },
        row.attempts.to_string(),
        when,
        error.unwrap_or_default(),
    ]
}

/// The next page, or what to do if there are no tasks.
fn print_hint(console: &Console, search: &Search, found: &SearchPage, database: &str) {
    let shown = found.tasks.len();
    if let Some(next) = found.next {
        let words = quoted(&search.filter.to_string());
        let words = if search.filter.is_empty() { String::new() } else { format!(" {words}") };
        let more = console.command(&format!("tasks{words} --before {next}"));
        if shown >= search.limit as usize {
            console.message(format_args!("{} shown. Older ones: {more}", count(shown, "task")));
        } else {
            console.message(format_args!(
                "{} found so far, down to task {next}. Continue: {more}",
                count(shown, "task")
            ));
        }
    } else if shown == 0 && !search.filter.is_empty() {
        console
            .message(format_args!("No tasks match {:?} on {database}.", search.filter.to_string()));
    } else if let (0, Some(before)) = (shown, search.before) {
        console.message(format_args!("There are no tasks before {before} on {database}."));
    } else if shown == 0 {
        console.message(format_args!(
            "There are no tasks on {database} yet.\nCreate one: {}\nExecute it: {}",
            console.command(r#"create WaitingTask '{"waiting_time": 2}'"#),
            console.command("start --samples")
        ));
    }
}
