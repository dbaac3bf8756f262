//! `task-engine rerun`.

use clap::Args;
use task_engine_operations::tasks::TaskOperation;

use crate::bulk::{self, SelectionArgs};
use crate::console::Console;
use crate::error::CliError;
use crate::filter_args::FILTERS;

/// Create tasks again, with the same class and parameters
///
/// A new task has the class, parameters, queue and priority of the old one, is due
/// at once, and belongs to the same flow; its context names the old one
/// (`rerun_of`). The old one stays as it is. A filter without a status matches
/// tasks that have ended.
#[derive(Debug, Args)]
#[command(after_help = FILTERS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    selection: SelectionArgs,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    bulk::run(console, TaskOperation::Rerun, &args.selection).await?.verdict
}
