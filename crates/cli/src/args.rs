//! What can be typed. Values are parsed here, once; commands get typed ones.

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    audit, bench, cancel, check, completions, create, delete, demo, doctor, edit, errors, export,
    import, logs, man, prune, queues, recover, rerun, retry, schedules, show, start, stats, tail,
    tasks, tokens, top, trace, verify, wait, web, why,
};

/// Background tasks on PostgreSQL or an embedded database.
///
/// Applications create tasks, engines execute them. `task-engine demo` shows it
/// in a few seconds and needs nothing else.
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
    /// Say more, in the log too
    #[arg(short, long, global = true, conflicts_with = "quiet", help_heading = "Global options")]
    pub(crate) verbose: bool,
    /// Say nothing but results, warnings and errors
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
}

/// What each of them does is said where its arguments are.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Arguments),
    Start(start::Arguments),
    Web(web::Arguments),
    Check(check::Arguments),
    Create(create::Arguments),
    Tasks(tasks::Arguments),
    Show(show::Arguments),
    Logs(logs::Arguments),
    Retry(retry::Arguments),
    Cancel(cancel::Arguments),
    Rerun(rerun::Arguments),
    Edit(edit::Arguments),
    Delete(delete::Arguments),
    Prune(prune::Arguments),
    Errors(errors::Arguments),
    Schedules(schedules::Arguments),
    /// List engines, living and dead
    Instances,
    Recover(recover::Arguments),
    Queues(queues::Arguments),
    Tokens(tokens::Arguments),
    Audit(audit::Arguments),
    /// Bring the tables of the database to this version
    Migrate,
    Doctor(doctor::Arguments),
    Verify(verify::Arguments),
    Export(export::Arguments),
    Import(import::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
    Trace(trace::Arguments),
    Why(why::Arguments),
    Wait(wait::Arguments),
    Tail(tail::Arguments),
    Stats(stats::Arguments),
    Top(top::Arguments),
    Bench(bench::Arguments),
    #[command(hide = true)]
    BenchEngine(bench::engine::Arguments),
}

impl Command {
    /// Whether the log is what this command is watched by.
    pub(crate) fn logs_by_default(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Web(_))
    }
}

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  it failed: the database cannot be reached, refused, or is of another version
  2  wrong usage or settings; nothing was changed
  3  not found: no such task, engine or database file
  4  conflict: the task or engine is not in a state for this
  5  partly done: some of the tasks that a filter meant have moved on
  6  unhealthy: a check found something wrong
  8  timed out: what was waited for has not happened
  9  stopped, and running tasks were given back to wait
 10  a task that was waited for failed or was cancelled

Environment:
  TASK_ENGINE_DATABASE_URL  the database; better than --database for a URL with a password
  TASK_ENGINE_INSTANCE      the name of an engine
  TASK_ENGINE_WEB_PASSWORD  the password of the dashboard
  TASK_ENGINE_LOG           what is logged, like `debug` or `task_engine=info,warn`
  NO_COLOR                  no colours

Results go to the standard output, all other words to the standard error.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
