//! The command `task-engine`: run, create, watch and repair tasks.
//!
//! # Map
//! - `args`: the arguments, and filters; `help`: the help in groups, and unknown commands;
//! - `commands`: one file a command;
//! - `database`: reads a database URL and opens the database;
//! - `error`: errors and their exit codes;
//! - `signals`: SIGTERM, SIGINT and SIGHUP;
//! - `change`: the user as the operator, and operations on many tasks;
//! - `console`, `log`, `table`, `json_output`: output;
//! - `pools`: workers and queues as arguments and as text;
//! - `times`, `escape`, `pretty`: pure functions; text that pages show, too, is in
//!   `task_engine_core::display`;
//! - `log_follow`: the log and progress of a task, as they come;
//! - `parameters`: the JSON of a new task or a signal, from the command line, a file or a pipe;
//! - `executables`: tasks in any language, configured in `task-engine.toml`;
//! - `web`: the dashboard beside an engine, or on its own.

mod args;
mod commands;
mod console;
mod database;
mod error;
mod escape;
mod executables;
#[cfg(test)]
mod fuzz;
mod help;
mod json_output;
mod log;
mod log_follow;
mod operations;
mod parameters;
mod pools;
mod pretty;
mod signals;
mod table;
mod times;
mod web;

use std::process::ExitCode;

use task_engine_operations::tasks::TaskOperation;

use crate::args::Command;
use crate::console::Console;
use crate::error::CliError;

fn main() -> ExitCode {
    if let Some(code) = executables::supervisor::run_if_requested() {
        return code;
    }
    let cli = help::parse_arguments();
    let console = Console::new(cli.common);
    match run(&console, cli.command) {
        // The reader has closed the pipe, as in `task-engine tasks | head`.
        Ok(()) | Err(CliError::OutputClosed) => ExitCode::SUCCESS,
        Err(error) => {
            console.print_error(&error);
            error.code()
        }
    }
}

fn run(console: &Console, command: Command) -> Result<(), CliError> {
    let log = log::begin(console, command.logs_by_default())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::Failure(format!("could not start threads: {error}")))?;
    let done = runtime.block_on(async {
        match command {
            Command::Demo(args) => commands::demo::run(console, args).await,
            Command::Start(args) => commands::start::run(console, args).await,
            Command::Web(args) => commands::web::run(console, args).await,
            Command::Check(args) => commands::check::run(console, args).await,
            Command::Create(args) => commands::create::run(console, args).await,
            Command::Tasks(args) => commands::tasks::run(console, args).await,
            Command::Show(args) => commands::show::run(console, args).await,
            Command::Steps(args) => commands::steps::run(console, args).await,
            Command::Retry(args) => {
                operations::change_tasks(console, TaskOperation::Retry, &args).await
            }
            Command::Cancel(args) => commands::cancel::run(console, args).await,
            Command::Rerun(args) => commands::rerun::run(console, args).await,
            Command::Signal(args) => commands::signal::run(console, args).await,
            Command::Edit(args) => commands::edit::run(console, args).await,
            Command::Delete(args) => {
                operations::change_tasks(console, TaskOperation::Delete, &args).await
            }
            Command::Prune(args) => commands::prune::run(console, args).await,
            Command::Errors(args) => commands::errors::run(console, args).await,
            Command::Schedules(args) => commands::schedules::run(console, args).await,
            Command::Instances(args) => commands::instances::run(console, args).await,
            Command::Classes(args) => commands::classes::run(console, args).await,
            Command::Types(args) => commands::types::run(console, args).await,
            Command::Recover(args) => commands::recover::run(console, args).await,
            Command::Flow(args) => commands::flow::run(console, args).await,
            Command::Limits(args) => commands::limits::run(console, args).await,
            Command::Queues(args) => commands::queues::run(console, args).await,
            Command::Tokens(args) => commands::tokens::run(console, args).await,
            Command::Audit(args) => commands::audit::run(console, args).await,
            Command::Migrate => commands::migrate::run(console).await,
            Command::Doctor(args) => commands::doctor::run(console, args).await,
            Command::Verify(args) => commands::verify::run(console, args).await,
            Command::Export(args) => commands::export::run(console, args).await,
            Command::Import(args) => commands::import::run(console, args).await,
            Command::Completions(args) => commands::completions::run(console, args),
            Command::Man(args) => commands::man::run(console, args),
            Command::Logs(args) => commands::logs::run(console, args).await,
            Command::Trace(args) => commands::trace::run(console, args).await,
            Command::Why(args) => commands::why::run(console, args).await,
            Command::Wait(args) => commands::wait::run(console, args).await,
            Command::Tail(args) => commands::tail::run(console, args).await,
            Command::Stats(args) => commands::stats::run(console, args).await,
            Command::Top(args) => commands::top::run(console, args).await,
        }
    });
    runtime.block_on(database::close_all());
    // A task that blocks its thread for ever must not keep the process from
    // ending: its attempt has been released, or is left to recovery.
    runtime.shutdown_background();
    log.end();
    done
}
