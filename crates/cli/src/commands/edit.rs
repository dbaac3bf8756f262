//! `task-engine edit`.

use std::io::Write;

use clap::Args;
use task_engine::{NewTask, TaskId};
use task_engine_core::change::Edit;
use task_engine_core::task::TaskDetails;
use task_engine_operations::{OperationOutcome, redaction};

use crate::console::{Console, now, quoted};
use crate::error::CliError;
use crate::operations::operator;
use crate::parameters::{self, CheckArgs};
use crate::times::DueArgs;

/// Change a waiting task: parameters, time, priority or queue
///
/// Options that are not given change nothing; attempts and retries stay counted.
/// A task that an engine has claimed meanwhile is left as it is.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The task, by its id
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    id: TaskId,
    /// Its parameters, all of them: a JSON object, @FILE to read one, or - for the
    /// standard input
    #[arg(long, value_name = "JSON|@FILE|-", allow_negative_numbers = true)]
    parameters: Option<String>,
    #[command(flatten)]
    due: DueArgs,
    /// Higher runs first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// The queue it waits in
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    #[command(flatten)]
    check: CheckArgs,
}

const EXAMPLES: &str = r#"Examples:
  task-engine edit 17 --parameters '{"to": "ann@example.com"}' --after 10m
  task-engine edit 17 --priority 5 --queue urgent"#;

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let (id, check) = (args.id, args.check);
    let edit = wanted(console, args)?;
    let store = console.open().await?;
    let before = store.task(id).await?;
    check.apply(operator(&store)).edit(id, edit.clone()).await?;
    let mut out = console.results();
    writeln!(out, "task {id} {}", OperationOutcome::Changed.text())?;
    out.flush()?;
    if let Some(before) = before {
        let secrets = redaction::secrets(&*store).await?.redactor_of(&before);
        if edit.parameters.is_some() && !secrets.is_empty() {
            console
                .message("Its former parameters have secrets, so no command to undo it is shown.");
        } else {
            let undo = undo(&before, &edit);
            console.message(format_args!("To undo it: {}", console.command(&undo)));
        }
    }
    Ok(())
}

/// Checked as for a new task, before anything is opened.
fn wanted(console: &Console, args: Arguments) -> Result<Edit, CliError> {
    let parameters = match &args.parameters {
        Some(given) => Some(parameters::read(Some(given), console)?),
        None => None,
    };
    if let Some(queue) = &args.queue {
        NewTask::new("any", task_engine::Json::empty_object())
            .and_then(|task| task.queue(queue.clone()))
            .map_err(|error| CliError::Usage(error.to_string()))?;
    }
    let edit = Edit { parameters, due: args.due.due(), priority: args.priority, queue: args.queue };
    if edit.is_empty() {
        return Err(CliError::Usage(
            "nothing is to be changed; pass --parameters, --at, --after, --priority or --queue"
                .to_owned(),
        ));
    }
    Ok(edit)
}

/// The command that makes it as it was.
fn undo(before: &TaskDetails, edit: &Edit) -> String {
    let mut words = format!("edit {}", before.row.id);
    if edit.parameters.is_some() {
        words += &format!(" --parameters {}", quoted(before.parameters.as_str()));
    }
    if edit.due.is_some() {
        let due = before.row.scheduled_at;
        // A time that is over cannot be asked for; at once is the same.
        words += &if due > now().timestamp() {
            format!(" --at {due}")
        } else {
            " --after 0s".to_owned()
        };
    }
    if edit.priority.is_some() {
        words += &format!(" --priority {}", before.row.priority);
    }
    if edit.queue.is_some() {
        words += &format!(" --queue {}", quoted(&before.row.queue));
    }
    words
}
