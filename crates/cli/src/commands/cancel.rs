//! `task-engine cancel`.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use task_engine::{Store, TaskId, TaskStatus};
use task_engine_core::cancel::CancelOutcome;
use task_engine_core::display::{cancel_outcome_text, span};
use task_engine_core::task::TaskDetails;
use task_engine_store::contract::CancelReport;

use crate::bulk::{self, Action, Choice, Outcome, id_words};
use crate::choice::FILTERS;
use crate::console::Console;
use crate::database::OpenMode;
use crate::error::CliError;
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
    choice: Choice,
    /// Wait until running tasks have ended
    ///
    /// The exit code is 4 if one of them succeeded or failed instead, and 1 if one
    /// still runs after --timeout.
    #[arg(long)]
    wait: bool,
    /// How long to wait at the most [default: without limit]
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait")]
    timeout: Option<Duration>,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    args.choice.chosen()?;
    let store = console.database()?.open(OpenMode::MustExist).await?;
    let mut cancel = Cancel::default();
    let done = bulk::run(console, &*store, &args.choice, &mut cancel).await;
    if args.wait && !cancel.requested.is_empty() {
        let waiting =
            Waiting { console, store: &*store, limit: args.timeout, asked: Instant::now() };
        waiting.run(cancel.requested, &mut console.results()).await?;
    }
    done.map(|_| ())
}

#[derive(Default)]
struct Cancel {
    /// Those that run, and whose engines have been asked.
    requested: Vec<TaskId>,
}

impl Action for Cancel {
    const VERB: &'static str = "cancel";
    const STATUSES: &'static [TaskStatus] = &[TaskStatus::Waiting, TaskStatus::Running];

    async fn apply(&mut self, store: &dyn Store, ids: &[TaskId]) -> Result<Vec<Outcome>, CliError> {
        let reports = store.cancel(ids).await?;
        let asked = ids.iter().zip(&reports).filter(|(_, it)| **it == CancelReport::Requested);
        self.requested.extend(asked.map(|(id, _)| *id));
        Ok(reports.into_iter().map(outcome).collect())
    }

    fn undo(&self, done: &[TaskId]) -> Option<String> {
        // Those that run are not cancelled yet, and may never be.
        let waited: Vec<_> =
            done.iter().copied().filter(|id| !self.requested.contains(id)).collect();
        (!waited.is_empty()).then(|| format!("retry {}", id_words(&waited)))
    }
}

fn outcome(report: CancelReport) -> Outcome {
    match report {
        CancelReport::Cancelled => Outcome::done("is cancelled"),
        CancelReport::Requested => {
            Outcome::done("is running; its engine has been asked to cancel it")
        }
        // What was wanted is so.
        CancelReport::Ended(TaskStatus::Cancelled) => Outcome::unchanged("was cancelled before"),
        CancelReport::Ended(TaskStatus::Failed) => {
            Outcome::conflict("has failed; there is nothing to cancel")
        }
        CancelReport::Ended(_) => {
            Outcome::conflict("has done its work; there is nothing to cancel")
        }
        CancelReport::NotFound => Outcome::missing(),
    }
}

/// How often a task is asked for its end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After so long, whoever waits is told why.
const QUIET_FOR: Duration = Duration::from_secs(3);

/// Waits for what becomes of the requests.
struct Waiting<'a> {
    console: &'a Console,
    store: &'a dyn Store,
    limit: Option<Duration>,
    asked: Instant,
}

impl Waiting<'_> {
    async fn run(&self, mut open: Vec<TaskId>, out: &mut impl Write) -> Result<(), CliError> {
        let all = open.len();
        let mut not_cancelled = 0;
        let mut said = false;
        loop {
            let mut still = Vec::new();
            for id in open {
                match self.store.task(id).await? {
                    Some(task) if is_open(&task) => still.push(id),
                    Some(task) => {
                        not_cancelled += usize::from(task.row.status != TaskStatus::Cancelled);
                        writeln!(out, "task {id} {}", end(&task))?;
                    }
                    None => writeln!(out, "task {id} has ended, and is removed")?,
                }
                out.flush()?;
            }
            open = still;
            if open.is_empty() {
                break;
            }
            let waited = self.asked.elapsed();
            if self.limit.is_some_and(|limit| waited >= limit) {
                return Err(CliError::Failure(format!(
                    "{} of {all} still run {} after the request, which stands",
                    open.len(),
                    span(waited)
                )));
            }
            if waited >= QUIET_FOR && !std::mem::replace(&mut said, true) {
                self.console.say(format_args!(
                    "{} of {all} have not ended yet; the request stands, also without this command",
                    open.len()
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        if not_cancelled > 0 {
            return Err(CliError::Conflict(format!("{not_cancelled} of {all} were not cancelled")));
        }
        Ok(())
    }
}

fn is_open(task: &TaskDetails) -> bool {
    matches!(task.row.status, TaskStatus::Waiting | TaskStatus::Running)
}

/// The end of a task that was to be cancelled, and how it took it.
fn end(task: &TaskDetails) -> String {
    let word = match task.row.status {
        TaskStatus::Stopped => "has done its work",
        TaskStatus::Failed => "has failed",
        _ => "is cancelled",
    };
    let wished = task.executions.iter().rev().find_map(|execution| {
        let cancel = execution.cancel.filter(|cancel| cancel.outcome != CancelOutcome::Pending)?;
        Some(cancel_outcome_text(&cancel, execution.stopped_at))
    });
    match wished {
        Some(how) => format!("{word}: {how}"),
        None => word.to_owned(),
    }
}
