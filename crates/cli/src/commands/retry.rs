//! `task-engine retry`.

use clap::Args;
use task_engine_operations::tasks::TaskOperation;

use crate::bulk::{self, SelectionArgs};
use crate::console::Console;
use crate::error::CliError;
use crate::filter_args::FILTERS;

/// Send failed or cancelled tasks back to wait
///
/// A failed or cancelled task gets all of its retries again; a waiting one runs
/// now. Tasks that run or have succeeded are left alone. A filter without a
/// status matches failed tasks: cancelled ones were cancelled on purpose, so name
/// that status to retry them.
#[derive(Debug, Args)]
#[command(after_help = FILTERS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    selection: SelectionArgs,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    bulk::run(console, TaskOperation::Retry, &args.selection).await?.verdict
}
