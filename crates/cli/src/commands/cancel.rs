//! `task-engine cancel`.

use std::io::Write;

use clap::Args;
use task_engine::TaskStatus;
use task_engine::model::store::CancelReport;

use super::{Tally, TaskIds};
use crate::console::Console;
use crate::database::Access;
use crate::exit::Fault;

/// Cancel tasks: waiting ones at once, running ones by request
///
/// The engine of a running task hears of the request at once, or at its next
/// heartbeat. A cancelled task can be sent back with `retry`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    tasks: TaskIds,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), Fault> {
    let store = console.database()?.open(Access::MustExist).await?;
    let ids = args.tasks.each_once();
    let reports = store.cancel(&ids).await?;
    let mut tally = Tally { all: ids.len(), ..Tally::default() };
    let mut out = console.results();
    for (id, report) in ids.iter().zip(reports) {
        let what = match report {
            CancelReport::Cancelled => "is cancelled",
            CancelReport::Requested => "is running; its engine has been asked to cancel it",
            // What was wanted is so.
            CancelReport::Ended(TaskStatus::Cancelled) => "was cancelled before",
            CancelReport::Ended(TaskStatus::Failed) => {
                tally.conflicting += 1;
                "has failed; there is nothing to cancel"
            }
            CancelReport::Ended(_) => {
                tally.conflicting += 1;
                "has done its work; there is nothing to cancel"
            }
            CancelReport::NotFound => {
                tally.missing += 1;
                "does not exist"
            }
        };
        writeln!(out, "task {id} {what}")?;
    }
    out.flush()?;
    tally.verdict()
}
