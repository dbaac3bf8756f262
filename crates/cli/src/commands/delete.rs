//! `task-engine delete`.

use clap::Args;
use task_engine_operations::tasks::TaskOperation;

use crate::bulk::{self, SelectionArgs};
use crate::console::Console;
use crate::error::CliError;
use crate::filter_args::FILTERS;

/// Delete ended tasks, with everything recorded about them
///
/// A task that waits or runs is never deleted: `cancel` it first. This cannot be
/// undone. A filter without a status matches tasks that have ended. For tasks of
/// a certain age, see `prune`.
#[derive(Debug, Args)]
#[command(after_help = FILTERS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    selection: SelectionArgs,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    bulk::run(console, TaskOperation::Delete, &args.selection).await?.verdict
}
