//! `task-engine why`.

use std::io::Write;

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use task_engine::{TaskId, TaskStatus};
use task_engine_operations::why::{Explanation, Reason, why};

use super::show::no_such_task;
use crate::console::{Console, now};
use crate::database::Access;
use crate::escape::escape;
use crate::exit::Fault;
use crate::json_output::write_json_line;

/// Say why a task does not run, or what it does now
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
struct Answer<'a> {
    id: TaskId,
    status: TaskStatus,
    task_class: &'a str,
    queue: &'a str,
    priority: i32,
    /// The time that this was so, by the database's clock.
    at: Timestamp,
    reasons: &'a [Reason],
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), Fault> {
    let store = console.database()?.open(Access::MustExist).await?;
    let Some(Explanation { task, at, reasons }) = why(&*store, args.id).await? else {
        return Err(no_such_task(args.id, &*store));
    };
    let row = &task.row;
    let mut out = console.results();
    if args.json {
        let answer = Answer {
            id: row.id,
            status: row.status,
            task_class: &row.task_class,
            queue: &row.queue,
            priority: row.priority,
            at,
            reasons: &reasons,
        };
        write_json_line(&mut out, &answer)?;
        return Ok(out.flush()?);
    }
    let zone = now().time_zone().clone();
    writeln!(out, "Task {}: {}, {}", row.id, escape(&row.task_class), row.status)?;
    for (at_place, reason) in reasons.iter().enumerate() {
        writeln!(
            out,
            "  {}. {}",
            at_place + 1,
            escape(&task_engine_operations::why::sentences::reason(reason, at, &zone))
        )?;
    }
    Ok(out.flush()?)
}
