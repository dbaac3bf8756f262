//! `task-engine wait`.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use task_engine::{Json, Store, TaskId, TaskStatus};
use task_engine_core::attempt::TaskError;
use task_engine_core::display::{count, span};
use task_engine_core::task::TaskDetails;
use task_engine_operations::why::sentences::reason as sentence;
use task_engine_operations::why::{Explanation, why};
use task_engine_store::activity::EndingsQuery;

use super::TaskIds;
use super::show::no_such_task;
use crate::console::{Console, now};
use crate::error::CliError;
use crate::escape::escape;
use crate::json_output::write_json_line;
use crate::times::duration;

/// Wait until tasks have ended, and print their results as JSON
///
/// The exit code is 0 if all succeeded, 10 if one failed or was cancelled, 8 if
/// --timeout came first, and 3 if there is no such task. After --timeout, the reason
/// is printed for each task that has not ended. With --quiet, nothing is printed.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    tasks: TaskIds,
    /// How long to wait at most [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// Wait for all of them; this is the default
    #[arg(long, conflicts_with = "any")]
    all: bool,
    /// Wait only for the first one
    #[arg(long)]
    any: bool,
}

/// The line about a task that has ended.
#[derive(Debug, Serialize)]
struct EndedOutput<'a> {
    id: TaskId,
    status: TaskStatus,
    result: Option<&'a Json>,
    error: Option<&'a TaskError>,
}

/// The first poll comes soon, for quick tasks; later ones are rarer.
const POLL_FIRST: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_secs(1);
/// How often to check that an open task still exists.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// For how many tasks the reason is printed.
const REASONS_MAX: usize = 10;
/// Older than any end.
const EVER: Duration = Duration::from_secs(100 * 366 * 86_400);

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let begun = Instant::now();
    let mut awaited =
        AwaitedTasks { console, any: args.any, open: args.tasks.each_once(), failed: 0, ended: 0 };
    let all = awaited.open.len();
    let mut checked = begun;
    awaited.check(&*store).await?;
    let mut pause = POLL_FIRST;
    while !awaited.is_enough() {
        let left = args.timeout.map(|limit| limit.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            let open = count(awaited.open.len(), "task");
            let waited = span(begun.elapsed());
            let reasons = awaited.reasons(&*store).await?;
            return Err(CliError::TimedOut(format!(
                "{open} of {all} had not ended after {waited}{reasons}"
            )));
        }
        tokio::time::sleep(pause.min(left.unwrap_or(pause))).await;
        pause = (pause * 3 / 2).min(POLL_MAX);
        if checked.elapsed() >= CHECK_EVERY || awaited.anything_new(&*store).await? {
            checked = Instant::now();
            awaited.check(&*store).await?;
        }
    }
    match awaited.failed {
        0 => Ok(()),
        failed => Err(CliError::AwaitedFailed(format!(
            "{} of {all} failed or {} cancelled",
            count(failed, "task"),
            if failed == 1 { "was" } else { "were" }
        ))),
    }
}

struct AwaitedTasks<'a> {
    console: &'a Console,
    /// Wait only for the first.
    any: bool,
    open: Vec<TaskId>,
    failed: usize,
    ended: usize,
}

impl AwaitedTasks<'_> {
    fn is_enough(&self) -> bool {
        self.open.is_empty() || self.any && self.ended > 0
    }

    /// Whether one of them may have ended: one statement, by their keys.
    async fn anything_new(&self, store: &dyn Store) -> Result<bool, CliError> {
        let mut look = EndingsQuery::new(1, EVER);
        for id in &self.open {
            look.of(*id);
        }
        let endings = store.endings(&look).await?;
        Ok(endings.iter().any(|ending| ending.ends_task.is_some()))
    }

    /// Why those that are open have not ended: for each, the first reason of `why`.
    async fn reasons(&self, store: &dyn Store) -> Result<String, CliError> {
        let mut reasons = String::new();
        if self.console.is_quiet() {
            return Ok(reasons);
        }
        for id in self.open.iter().take(REASONS_MAX) {
            let reason = why(store, *id).await?.and_then(|explanation| first_reason(&explanation));
            if let Some(reason) = reason {
                reasons += &format!("\n  task {id}: {}", escape(&reason));
            }
        }
        let more = self.open.len().saturating_sub(REASONS_MAX);
        if more > 0 {
            reasons += &format!("\n  and {more} more: task-engine why ID");
        }
        Ok(reasons)
    }

    /// Prints those that have ended, and keeps the others.
    async fn check(&mut self, store: &dyn Store) -> Result<(), CliError> {
        let mut still = Vec::new();
        let mut out = self.console.results();
        for id in std::mem::take(&mut self.open) {
            let Some(task) = store.task(id).await? else {
                return Err(no_such_task(id, store));
            };
            let is_open = matches!(task.row.status, TaskStatus::Waiting | TaskStatus::Running);
            if is_open || self.any && self.ended > 0 {
                still.push(id);
                continue;
            }
            self.ended += 1;
            self.failed += usize::from(task.row.status != TaskStatus::Stopped);
            if !self.console.is_quiet() {
                print(&mut out, &task)?;
            }
        }
        self.open = still;
        Ok(())
    }
}

fn first_reason(explanation: &Explanation) -> Option<String> {
    let zone = now().time_zone().clone();
    explanation.reasons.first().map(|reason| sentence(reason, explanation.at, &zone))
}

fn print(out: &mut impl Write, task: &TaskDetails) -> Result<(), CliError> {
    let last = task.executions.last();
    let ended = EndedOutput {
        id: task.row.id,
        status: task.row.status,
        result: last.and_then(|execution| execution.result.as_ref()),
        error: task.row.error.as_ref(),
    };
    write_json_line(out, &ended)?;
    Ok(out.flush()?)
}
