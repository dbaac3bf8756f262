//! `task-engine limits`.

mod set;
mod show;

use clap::{Args, Subcommand};
use task_engine_operations::limits;

use crate::console::{Console, quoted};
use crate::error::CliError;
use crate::escape::escape;
use crate::operations::operator;

/// List and set limits: how many tasks run at a time, and start
///
/// Limits hold for all engines of a database. Engines declare those of their
/// classes and queues; what is set here applies at once, and stays until it is
/// cleared.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<LimitsCommand>,
    #[command(flatten)]
    list: show::ListArguments,
}

#[derive(Debug, Subcommand)]
enum LimitsCommand {
    List(show::ListArguments),
    Show(show::ShowArguments),
    Set(set::Arguments),
    Clear(ClearArguments),
    Open(OpenArguments),
}

/// Remove a limit, or what was set by hand if engines declare it
#[derive(Debug, Args)]
struct ClearArguments {
    /// The limit
    #[arg(value_name = "NAME")]
    name: String,
    /// The reason, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Open a key that a task has closed, so that its tasks start again
#[derive(Debug, Args)]
struct OpenArguments {
    /// The limit
    #[arg(value_name = "NAME")]
    name: String,
    /// The key; '' if the limit has none
    #[arg(value_name = "KEY", default_value = "", hide_default_value = true)]
    key: String,
    /// The reason, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    match args.command {
        None => show::list(console, &args.list).await,
        Some(LimitsCommand::List(args)) => show::list(console, &args).await,
        Some(LimitsCommand::Show(args)) => show::show(console, &args).await,
        Some(LimitsCommand::Set(args)) => set::set(console, args).await,
        Some(LimitsCommand::Clear(args)) => clear(console, args).await,
        Some(LimitsCommand::Open(args)) => open(console, args).await,
    }
}

async fn clear(console: &Console, args: ClearArguments) -> Result<(), CliError> {
    let store = console.open().await?;
    // For the undo.
    let before = limits::find(&*store, &args.name).await?;
    let report = operator(&store).reason(args.reason.as_deref()).clear_limit(&args.name).await?;
    if args.json {
        return console.print_json([report]);
    }
    console.print(escape(&report.message))?;
    console.message(format_args!(
        "To set it again: {}",
        console.command(&format!("limits set {}", set::arguments_of(&before.limit)))
    ));
    Ok(())
}

async fn open(console: &Console, args: OpenArguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let operator = operator(&store).reason(args.reason.as_deref());
    let report = operator.open_limit_key(&args.name, &args.key).await?;
    if args.json {
        return console.print_json([report]);
    }
    console.print(escape(&report.message))?;
    console.message(format_args!(
        "See its keys: {}",
        console.command(&format!("limits show {}", quoted(&args.name)))
    ));
    Ok(())
}
