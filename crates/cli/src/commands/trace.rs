//! `task-engine trace`.

mod tree;

use std::io::{self, Write};

use clap::Args;
use task_engine::{TaskId, TaskStatus};
use task_engine_core::display::{count, span};
use task_engine_core::flow::{FlowPage, FlowTask};
use task_engine_operations::flows::dependencies;
use task_engine_store::contract::Store;

use self::tree::Dependencies;

use crate::console::{Console, now, quoted};
use crate::error::CliError;
use crate::escape::escape;

/// Show the tasks of a flow as a tree
///
/// Prints the tree of a flow: how long each task was due before it started, how
/// long it ran, and how it ended. Name the flow by its correlation id, or by any
/// of its tasks.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A task by its id, or a flow by its correlation id
    #[arg(value_name = "ID|CORRELATION", allow_hyphen_values = true,
          value_parser = clap::builder::NonEmptyStringValueParser::new())]
    flow: String,
    /// Read a number as a correlation id, not as the id of a task
    #[arg(long)]
    correlation: bool,
    /// How many tasks to show, oldest first
    #[arg(long, default_value_t = 1000, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(LIMIT_MAX)))]
    limit: u32,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// All of them are held in memory, to make a tree of them.
pub(super) const LIMIT_MAX: u32 = 100_000;
/// So many dependencies of a flow are read.
const DEPENDENCIES_MAX: usize = 1_000_000;
/// How many tasks are read at a time.
const PAGE: u32 = 500;

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let (correlation_id, named) = flow_of(&*store, &args).await?;
    let (tasks, more) = read(&*store, &correlation_id, args.limit).await?;
    if tasks.is_empty() {
        return Err(CliError::NotFound(format!(
            "there is no task and no flow {} on {}; retention may have removed it",
            escape(&args.flow),
            store.location()
        )));
    }
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.row.id).collect();
    let dependencies = Dependencies::of(dependencies(&*store, &ids, DEPENDENCIES_MAX).await?);
    let order = tree::order(&tasks);
    let mut out = console.results();
    if args.json {
        tree::write_json(&mut out, &correlation_id, &tasks, &dependencies, &order, more)?;
    } else {
        writeln!(out, "{}", heading(&correlation_id, &tasks, more))?;
        tree::write_text(&mut out, &tasks, &dependencies, &order, named, now().timestamp())?;
    }
    out.flush()?;
    if more {
        let shown = count(tasks.len(), "task");
        console.message(format_args!(
            "Only the oldest {shown} of this flow are shown{}",
            more_of(console, &args)
        ));
        if let Some(id) = named.filter(|id| !tasks.iter().any(|task| task.row.id == *id)) {
            console.message(format_args!("Task {id} is not among them."));
        }
    }
    Ok(())
}

/// How to see more, if that is possible.
fn more_of(console: &Console, args: &Arguments) -> String {
    if args.limit == LIMIT_MAX {
        return ", which is the maximum.".to_owned();
    }
    let limit = args.limit.saturating_mul(10).min(LIMIT_MAX);
    let correlation = if args.correlation { " --correlation" } else { "" };
    let command = format!("trace {}{correlation} --limit {limit}", quoted(&args.flow));
    format!("; to see more: {}", console.command(&command))
}

/// The selected flow, and the task that it was named by.
async fn flow_of(
    store: &dyn Store,
    args: &Arguments,
) -> Result<(String, Option<TaskId>), CliError> {
    if !args.correlation
        && let Ok(id) = args.flow.parse::<TaskId>()
        && let Some(task) = store.task(id).await?
    {
        return Ok((task.correlation_id, Some(id)));
    }
    Ok((args.flow.clone(), None))
}

/// The tasks of a flow, and whether there are more.
async fn read(
    store: &dyn Store,
    correlation_id: &str,
    limit: u32,
) -> Result<(Vec<FlowTask>, bool), CliError> {
    let limit = limit as usize;
    let mut tasks: Vec<FlowTask> = Vec::new();
    let mut page = FlowPage { correlation_id: correlation_id.to_owned(), after: None, limit: PAGE };
    loop {
        let rows = store.flow(&page).await?;
        let last = rows.len() < PAGE as usize;
        page.after = rows.last().map(|task| task.row.id);
        tasks.extend(rows);
        if tasks.len() > limit {
            tasks.truncate(limit);
            return Ok((tasks, true));
        }
        if last {
            return Ok((tasks, false));
        }
    }
}

fn heading(correlation_id: &str, tasks: &[FlowTask], more: bool) -> String {
    let blocked = tasks.iter().filter(|task| task.row.is_blocked).count();
    let statuses = TaskStatus::ALL.iter().filter_map(|status| {
        let mut number = tasks.iter().filter(|task| task.row.status == *status).count();
        if *status == TaskStatus::Waiting {
            number -= blocked;
        }
        (number > 0).then(|| format!("{number} {status}"))
    });
    let blocked = (blocked > 0).then(|| format!("{blocked} blocked"));
    let statuses = blocked.into_iter().chain(statuses).collect::<Vec<_>>().join(", ");
    let begun = tasks.iter().map(|task| task.row.created_at).min();
    let over = tasks.iter().all(|task| is_over(task.row.status));
    let ended = tasks.iter().map(|task| task.row.updated_at).max();
    let took = match begun.zip(ended) {
        Some((begun, ended)) if over && !more => {
            format!(
                "; {} from the first to the last",
                span(ended.duration_since(begun).unsigned_abs())
            )
        }
        _ => String::new(),
    };
    let shown = if more { ", and more" } else { "" };
    format!(
        "Flow {}: {}{shown} ({statuses}){took}",
        escape(correlation_id),
        count(tasks.len(), "task")
    )
}

fn is_over(status: TaskStatus) -> bool {
    matches!(status, TaskStatus::Stopped | TaskStatus::Failed | TaskStatus::Cancelled)
}

impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}
