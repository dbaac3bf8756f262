//! `task-engine schedules`: regular tasks.

mod edit;
mod next;
mod show;

use clap::{Args, Subcommand};
use task_engine_operations::OperationError;
use task_engine_store::schedules::ScheduleError;

use crate::console::Console;
use crate::error::CliError;
use crate::escape::escape;
use crate::executables::{self, ConfigPurpose, FILE};

/// Regular tasks: list, add, change, pause and preview them
///
/// Engines create one task for each slot of a schedule: once in the whole cluster,
/// however many engines run.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: SchedulesCommand,
}

#[derive(Debug, Subcommand)]
enum SchedulesCommand {
    List(show::ListArguments),
    Show(show::ShowArguments),
    Add(edit::AddArguments),
    Set(edit::SetArguments),
    Pause(edit::PauseArguments),
    /// Resume a paused schedule; slots that passed meanwhile do not fire
    Resume(ScheduleName),
    /// Create one task of a schedule now, outside of its slots
    Run(ScheduleName),
    /// Remove a schedule; its tasks stay
    Remove(ScheduleName),
    Next(next::Arguments),
}

#[derive(Debug, Args)]
struct ScheduleName {
    /// The schedule
    #[arg(value_name = "NAME")]
    name: String,
}

/// When it runs: one of the two.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct RuleArguments {
    /// At the times of a cron expression: "MINUTE HOUR DAY MONTH WEEKDAY", with
    /// seconds in front if there are six fields, or @daily, @hourly, …
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true)]
    cron: Option<String>,
    /// In equal steps: 30s, 15m, 1h30m, "2 days"
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    every: Option<String>,
}

impl RuleArguments {
    fn rule(&self) -> Option<String> {
        self.cron.clone().or_else(|| self.every.as_ref().map(|every| format!("every {every}")))
    }
}

impl SchedulesCommand {
    /// The name of the stored schedule that this is about.
    fn name(&self) -> Option<&str> {
        match self {
            Self::List(_) | Self::Add(_) => None,
            Self::Show(args) => Some(&args.name),
            Self::Set(args) => Some(&args.name),
            Self::Pause(args) => Some(&args.name),
            Self::Resume(args) | Self::Run(args) | Self::Remove(args) => Some(&args.name),
            Self::Next(args) => args.name.as_deref(),
        }
    }
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let name = args.command.name().map(str::to_owned);
    run_command(console, args.command).await.map_err(|error| match (error, name) {
        (CliError::NotFound(why), Some(name)) if is_declared(&name) => {
            let name = escape(&name);
            CliError::NotFound(format!(
                "{why}\n{FILE} declares schedule {name}. It is stored when an engine starts: task-engine start"
            ))
        }
        (error, _) => error,
    })
}

/// Whether the file in the working folder has this schedule.
fn is_declared(name: &str) -> bool {
    let config = executables::load(None, ConfigPurpose::Create).unwrap_or_default();
    config.schedules.iter().any(|schedule| schedule.name() == name)
}

async fn run_command(console: &Console, command: SchedulesCommand) -> Result<(), CliError> {
    match command {
        SchedulesCommand::List(args) => show::list(console, args).await,
        SchedulesCommand::Show(args) => show::show(console, args).await,
        SchedulesCommand::Add(args) => edit::add(console, args).await,
        SchedulesCommand::Set(args) => edit::set(console, args).await,
        SchedulesCommand::Pause(args) => edit::pause(console, args).await,
        SchedulesCommand::Resume(args) => edit::resume(console, &args.name).await,
        SchedulesCommand::Run(args) => edit::run(console, &args.name).await,
        SchedulesCommand::Remove(args) => edit::remove(console, &args.name).await,
        SchedulesCommand::Next(args) => next::run(console, args).await,
    }
}

impl From<ScheduleError> for CliError {
    fn from(error: ScheduleError) -> Self {
        OperationError::from(error).into()
    }
}
