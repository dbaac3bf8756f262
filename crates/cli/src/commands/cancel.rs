//! `task-engine cancel`.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use task_engine::{Store, TaskId, TaskStatus};
use task_engine_core::cancel::CancelOutcome;
use task_engine_core::display::{cancel_outcome_text, count, span};
use task_engine_core::task::TaskDetails;
use task_engine_operations::OperationOutcome;
use task_engine_operations::tasks::TaskOperation;

use crate::args::FILTERS;
use crate::console::Console;
use crate::error::CliError;
use crate::operations::{self, BulkResult, SelectionArgs};
use crate::times::duration;

/// Cancel tasks: waiting ones at once, running ones by request
///
/// The engine of a running task gets the request at once, or at its next
/// heartbeat, and asks the task's code to end. Asynchronous code that does not
/// end is dropped after a second; code that blocks its thread runs until it
/// checks for the request. `show` and --wait say how it ended. A cancelled task
/// can be sent back with `retry`. A filter without a status matches waiting and
/// running tasks.
#[derive(Debug, Args)]
#[command(after_help = FILTERS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Wait until running tasks have ended
    ///
    /// The exit code is 4 if one of them succeeded or failed instead, and 1 if one
    /// still runs after --timeout.
    #[arg(long)]
    wait: bool,
    /// How long to wait at most [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait")]
    timeout: Option<Duration>,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let BulkResult { store, tasks, verdict } =
        operations::change(console, TaskOperation::Cancel, &args.selection).await?;
    let running = tasks.iter().filter(|it| it.outcome == OperationOutcome::CancelRequested);
    let running: Vec<_> = running.map(|task| task.id).collect();
    if args.wait && !running.is_empty() {
        let wait =
            CancelWait { console, store: &*store, limit: args.timeout, since: Instant::now() };
        wait.run(running, &mut console.results()).await?;
    }
    verdict
}

/// How often tasks are read until they have ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After this time, a message says that the command waits.
const QUIET_FOR: Duration = Duration::from_secs(3);

/// Waits until running tasks have ended.
struct CancelWait<'a> {
    console: &'a Console,
    store: &'a dyn Store,
    limit: Option<Duration>,
    since: Instant,
}

impl CancelWait<'_> {
    async fn run(&self, mut open: Vec<TaskId>, out: &mut impl Write) -> Result<(), CliError> {
        let all = open.len();
        let mut not_cancelled = 0;
        let mut said_once = false;
        loop {
            let mut still = Vec::new();
            for id in open {
                match self.store.task(id).await? {
                    Some(task) if is_open(&task) => still.push(id),
                    Some(task) => {
                        not_cancelled += usize::from(task.row.status != TaskStatus::Cancelled);
                        writeln!(out, "task {id} {}", end(&task))?;
                    }
                    None => writeln!(out, "task {id} has ended and was deleted")?,
                }
                out.flush()?;
            }
            open = still;
            if open.is_empty() {
                break;
            }
            let waited = self.since.elapsed();
            if self.limit.is_some_and(|limit| waited >= limit) {
                return Err(CliError::Failure(format!(
                    "still running {} after the request: {} of {}; the request stays",
                    span(waited),
                    open.len(),
                    count(all, "task")
                )));
            }
            if waited >= QUIET_FOR && !std::mem::replace(&mut said_once, true) {
                self.console.message(format_args!(
                    "Not ended yet: {} of {}. The request stays if you stop this command.",
                    open.len(),
                    count(all, "task")
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        if not_cancelled > 0 {
            return Err(CliError::Conflict(format!(
                "not cancelled: {not_cancelled} of {}",
                count(all, "task")
            )));
        }
        Ok(())
    }
}

fn is_open(task: &TaskDetails) -> bool {
    matches!(task.row.status, TaskStatus::Waiting | TaskStatus::Running)
}

/// The end of a task that was to be cancelled, and how its code responded.
fn end(task: &TaskDetails) -> String {
    let ending = match task.row.status {
        TaskStatus::Stopped => "has succeeded",
        TaskStatus::Failed => "has failed",
        _ => "was cancelled",
    };
    let response = task.executions.iter().rev().find_map(|execution| {
        let cancel = execution.cancel.filter(|cancel| cancel.outcome != CancelOutcome::Pending)?;
        Some(cancel_outcome_text(&cancel, execution.stopped_at))
    });
    match response {
        Some(how) => format!("{ending}: {how}"),
        None => ending.to_owned(),
    }
}
