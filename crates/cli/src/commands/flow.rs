//! `task-engine flow`.

mod file;
mod list;
mod run;

use clap::{Args, Subcommand};

pub(super) use self::run::flow_error;
use super::trace;
use crate::console::Console;
use crate::error::CliError;

/// Run tasks that depend on each other, and list such flows
///
/// A flow is written in a file, with a table for each task. All its tasks are
/// created at once, or none. A task starts after those that it depends on.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<FlowCommand>,
    #[command(flatten)]
    list: list::ListArguments,
}

#[derive(Debug, Subcommand)]
enum FlowCommand {
    Run(run::Arguments),
    List(list::ListArguments),
    Show(trace::Arguments),
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    match args.command {
        None => list::run(console, &args.list).await,
        Some(FlowCommand::List(args)) => list::run(console, &args).await,
        Some(FlowCommand::Run(args)) => run::run(console, args).await,
        Some(FlowCommand::Show(args)) => trace::run(console, args).await,
    }
}
