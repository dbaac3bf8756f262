//! `task-engine retry`.

use std::io::Write;

use clap::Args;
use task_engine::model::store::RetryReport;

use super::{Tally, TaskIds};
use crate::console::Console;
use crate::database::Access;
use crate::exit::Fault;

/// Send failed or cancelled tasks back to wait, and let waiting ones run now
///
/// A failed or cancelled task gets all of its retries again. A running one, and
/// one that has done its work, is left alone.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    tasks: TaskIds,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), Fault> {
    let store = console.database()?.open(Access::MustExist).await?;
    let ids = args.tasks.each_once();
    let reports = store.retry(&ids).await?;
    let mut tally = Tally { all: ids.len(), ..Tally::default() };
    let mut out = console.results();
    for (id, report) in ids.iter().zip(reports) {
        let what = match report {
            RetryReport::Waiting => "waits again, and is due now",
            RetryReport::Advanced => "waited for a later time; it is due now",
            RetryReport::AlreadyDue => "is due already; `show` tells why it does not run",
            RetryReport::Running => {
                tally.conflicting += 1;
                "is running; nothing was done"
            }
            RetryReport::Stopped => {
                tally.conflicting += 1;
                "has done its work; nothing was done. To do it again, create a new task"
            }
            RetryReport::NotFound => {
                tally.missing += 1;
                "does not exist"
            }
        };
        writeln!(out, "task {id} {what}")?;
    }
    out.flush()?;
    tally.verdict()
}
