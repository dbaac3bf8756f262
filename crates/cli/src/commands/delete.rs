//! `task-engine delete`.

use clap::Args;
use task_engine::{Store, TaskId, TaskStatus};
use task_engine_core::change::DeleteReport;

use crate::bulk::{self, Action, Choice, Outcome};
use crate::choice::FILTERS;
use crate::console::Console;
use crate::database::OpenMode;
use crate::error::CliError;

/// Delete ended tasks, with everything recorded about them
///
/// A task that waits or runs is never deleted: `cancel` it first. This cannot be
/// undone. For tasks of a certain age, see `prune`.
#[derive(Debug, Args)]
#[command(after_help = FILTERS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    args.choice.chosen()?;
    let store = console.database()?.open(OpenMode::MustExist).await?;
    bulk::run(console, &*store, &args.choice, &mut Delete).await.map(|_| ())
}

struct Delete;

impl Action for Delete {
    const VERB: &'static str = "delete";
    const STATUSES: &'static [TaskStatus] =
        &[TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled];
    const ALWAYS_ASKS: bool = true;

    async fn apply(&mut self, store: &dyn Store, ids: &[TaskId]) -> Result<Vec<Outcome>, CliError> {
        let reports = store.delete(ids).await?;
        Ok(reports.into_iter().map(outcome).collect())
    }

    fn undo(&self, _: &[TaskId]) -> Option<String> {
        None
    }
}

fn outcome(report: DeleteReport) -> Outcome {
    match report {
        DeleteReport::Deleted => Outcome::done("is deleted"),
        DeleteReport::Open(TaskStatus::Running) => {
            Outcome::conflict("is running, and is not deleted; cancel it first")
        }
        DeleteReport::Open(_) => Outcome::conflict("waits, and is not deleted; cancel it first"),
        DeleteReport::Busy => Outcome::conflict(
            "has ended, but its engine has not released it yet; try again in a moment",
        ),
        DeleteReport::NotFound => Outcome::missing(),
    }
}
