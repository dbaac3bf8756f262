//! The arguments. Values are parsed here, once; commands get typed ones.

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    audit, cancel, check, completions, create, delete, demo, doctor, edit, errors, export, import,
    instances, logs, man, prune, queues, recover, rerun, retry, schedules, show, start, stats,
    tail, tasks, tokens, top, trace, verify, wait, web, why,
};

/// Background tasks on PostgreSQL or SQLite: applications create tasks, engines
/// execute them. `task-engine demo` shows it in a few seconds.
#[derive(Debug, Parser)]
#[command(name = "task-engine", version, long_version = env!("TASK_ENGINE_VERSION"), after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The database: postgres://user@host:5432/name or sqlite:PATH
    /// [env: TASK_ENGINE_DATABASE_URL] [default: sqlite:task-engine.db]
    // Read from the environment by hand: clap would show a password in its help.
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub(crate) database: Option<String>,
    /// The PostgreSQL schema of the tables [default: task_engine]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    pub(crate) schema: Option<String>,
    /// Print more, and log more
    #[arg(short, long, global = true, conflicts_with = "quiet", help_heading = "Global options")]
    pub(crate) verbose: bool,
    /// Print only results, warnings and errors
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
}

/// The arguments of each command have its help text. The order is that of the
/// groups in `help`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Start(start::Arguments),
    Web(web::Arguments),
    /// Create or update the tables of the database
    Migrate,
    Check(check::Arguments),
    Demo(demo::Arguments),

    #[command(alias = "task")]
    Tasks(tasks::Arguments),
    Show(show::Arguments),
    Why(why::Arguments),
    #[command(alias = "log")]
    Logs(logs::Arguments),
    #[command(alias = "error")]
    Errors(errors::Arguments),
    #[command(alias = "stat")]
    Stats(stats::Arguments),
    Top(top::Arguments),
    Tail(tail::Arguments),
    Trace(trace::Arguments),
    Wait(wait::Arguments),

    Create(create::Arguments),
    Retry(retry::Arguments),
    Cancel(cancel::Arguments),
    Rerun(rerun::Arguments),
    Edit(edit::Arguments),
    Delete(delete::Arguments),
    Prune(prune::Arguments),

    #[command(alias = "queue")]
    Queues(queues::Arguments),
    #[command(alias = "schedule")]
    Schedules(schedules::Arguments),
    #[command(alias = "instance")]
    Instances(instances::Arguments),
    Recover(recover::Arguments),
    Doctor(doctor::Arguments),
    Verify(verify::Arguments),
    Audit(audit::Arguments),
    #[command(alias = "token")]
    Tokens(tokens::Arguments),

    Export(export::Arguments),
    Import(import::Arguments),
    #[command(alias = "completion")]
    Completions(completions::Arguments),
    Man(man::Arguments),
}

impl Command {
    /// Whether this command logs without --verbose.
    pub(crate) fn logs_by_default(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Web(_))
    }
}

const AFTER_HELP: &str = "\
`task-engine COMMAND --help` explains a command. Singular names work, too
(`task-engine task`).

Exit codes:
   0  done
   1  failed: the database cannot be reached, refused, or has another version
   2  wrong arguments or settings; nothing was changed
   3  not found: no such task, engine or database file
   4  conflict: the task or engine is not in a state for this
   5  partly done: some of the matching tasks have changed meanwhile
   6  unhealthy: a check found a problem
   8  timed out: the awaited event has not happened
   9  stopped, and running tasks were released to wait again
  10  an awaited task failed or was cancelled

Environment:
  TASK_ENGINE_DATABASE_URL  the database; use it for a URL with a password
  TASK_ENGINE_INSTANCE      the name of an engine
  TASK_ENGINE_WEB_PASSWORD  the password of the dashboard
  TASK_ENGINE_LOG           what is logged: `debug`, `task_engine=info,warn`
  NO_COLOR                  no colours

Results go to standard output, everything else to standard error.";

#[cfg(test)]
mod tests {
    #[test]
    fn arguments_are_consistent() {
        crate::help::command().debug_assert();
    }
}
