//! `task-engine logs`.

use clap::Args;
use task_engine::TaskId;

use super::show;
use crate::console::{Console, now};
use crate::error::CliError;
use crate::log_follow::{LogPrinter, LogReader};

/// Show the log of a task
///
/// Lines that were dropped, because there were too many, are counted in their place.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The task, by its id
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    id: TaskId,
    /// Follow until the task has ended, with its progress
    #[arg(short, long)]
    follow: bool,
    /// Only this attempt
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(1..))]
    attempt: Option<i32>,
    /// Print one JSON document a line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let Some(task) = store.task(args.id).await? else {
        return Err(show::no_such_task(args.id, &*store));
    };
    let secrets = task_engine_operations::redaction::secrets(&*store).await?.redactor_of(&task);
    let mut reader = LogReader::new(args.id, args.attempt);
    let zone = now().time_zone().clone();
    let mut printer = LogPrinter::new(console.results(), zone, args.json, secrets);
    let mut is_empty = true;
    let mut print = |event| {
        is_empty = false;
        printer.print(event)
    };
    let task = if args.follow {
        reader.follow(&*store, &mut print).await?
    } else {
        reader.read(&*store, &mut print).await?
    };
    let Some(task) = task else {
        return Err(show::no_such_task(args.id, &*store));
    };
    let begun = |attempt| task.executions.iter().any(|one| one.attempt == attempt);
    if let Some(attempt) = args.attempt.filter(|attempt| !begun(*attempt)) {
        return Err(CliError::NotFound(format!(
            "task {} has no attempt {attempt}; it has {}",
            args.id,
            task.executions.len()
        )));
    }
    if is_empty {
        console.message(format_args!("Task {} has logged nothing.", args.id));
    }
    if args.follow {
        console.message(format_args!("Task {} is {}.", args.id, task.row.status));
    }
    Ok(())
}
