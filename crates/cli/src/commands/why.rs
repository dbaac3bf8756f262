//! `task-engine why`.

use std::io::Write;

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use task_engine::{TaskId, TaskStatus};
use task_engine_operations::why::sentences::reason as sentence;
use task_engine_operations::why::{Explanation, Reason, why};

use super::show::no_such_task;
use crate::console::{Console, now};
use crate::error::CliError;
use crate::escape::escape;

/// Explain why a task does not run, or what it does now
///
/// The reason to look at first comes first. The exit code is 0 whatever the
/// reason, and 3 if there is no such task.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The task, by its id
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    id: TaskId,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct WhyOutput<'a> {
    id: TaskId,
    status: TaskStatus,
    class: &'a str,
    queue: &'a str,
    priority: i32,
    /// When the reasons were read, by the database's clock.
    at: Timestamp,
    reasons: Vec<ReasonOutput<'a>>,
}

/// A reason: its token and facts for programs, and its sentence.
#[derive(Debug, Serialize)]
struct ReasonOutput<'a> {
    #[serde(flatten)]
    reason: &'a Reason,
    message: String,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let Some(Explanation { task, at, reasons, .. }) = why(&*store, args.id).await? else {
        return Err(no_such_task(args.id, &*store));
    };
    let row = &task.row;
    let zone = now().time_zone().clone();
    if args.json {
        let reasons = reasons.iter();
        let answer = WhyOutput {
            id: row.id,
            status: row.status,
            class: &row.class,
            queue: &row.queue,
            priority: row.priority,
            at,
            reasons: reasons
                .map(|reason| ReasonOutput { reason, message: sentence(reason, at, &zone) })
                .collect(),
        };
        return console.print_json([answer]);
    }
    let mut out = console.results();
    writeln!(out, "Task {}: {}, {}", row.id, escape(&row.class), row.status)?;
    for (index, reason) in reasons.iter().enumerate() {
        writeln!(out, "  {}. {}", index + 1, escape(&sentence(reason, at, &zone)))?;
    }
    Ok(out.flush()?)
}
