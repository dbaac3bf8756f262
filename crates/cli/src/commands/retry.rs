//! `task-engine retry`.

use clap::Args;
use task_engine::{Store, TaskId, TaskStatus};
use task_engine_store::contract::RetryReport;

use crate::bulk::{self, Action, Choice, Outcome, id_words};
use crate::choice::FILTERS;
use crate::console::Console;
use crate::database::OpenMode;
use crate::error::CliError;

/// Send failed or cancelled tasks back to wait
///
/// A failed or cancelled task gets all of its retries again; a waiting one runs
/// now. Tasks that run or have succeeded are left alone. A filter without a
/// status matches failed and cancelled tasks.
#[derive(Debug, Args)]
#[command(after_help = FILTERS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    args.choice.chosen()?;
    let store = console.database()?.open(OpenMode::MustExist).await?;
    bulk::run(console, &*store, &args.choice, &mut Retry).await.map(|_| ())
}

struct Retry;

impl Action for Retry {
    const VERB: &'static str = "retry";
    const STATUSES: &'static [TaskStatus] = &[TaskStatus::Failed, TaskStatus::Cancelled];

    async fn apply(&mut self, store: &dyn Store, ids: &[TaskId]) -> Result<Vec<Outcome>, CliError> {
        let reports = store.retry(ids).await?;
        Ok(reports.into_iter().map(outcome).collect())
    }

    fn undo(&self, done: &[TaskId]) -> Option<String> {
        Some(format!("cancel {}", id_words(done)))
    }
}

fn outcome(report: RetryReport) -> Outcome {
    match report {
        RetryReport::Waiting => Outcome::done("waits again, and is due now"),
        RetryReport::Advanced => Outcome::done("waited for a later time; it is due now"),
        RetryReport::AlreadyDue => {
            Outcome::unchanged("is due already; `show` tells why it does not run")
        }
        RetryReport::Running => Outcome::conflict("is running; nothing was done"),
        RetryReport::Stopped => {
            Outcome::conflict("has done its work; nothing was done. To do it again, use `rerun`")
        }
        RetryReport::NotFound => Outcome::missing(),
    }
}
