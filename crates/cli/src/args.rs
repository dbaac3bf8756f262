//! The arguments. Values are parsed here, once; commands get typed ones.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use task_engine::TaskStatus;
use task_engine_core::filter::Filter;

use crate::commands::{
    audit, cancel, check, classes, completions, create, demo, doctor, edit, errors, export, flow,
    import, instances, limits, logs, man, prune, queues, recover, rerun, schedules, show, signal,
    start, stats, steps, tail, tasks, tokens, top, trace, types, verify, wait, web, why,
};
use crate::console::now;
use crate::error::CliError;
use crate::operations::SelectionArgs;

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

/// The help text of a command is here or at its arguments. The order is that of the
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
    #[command(alias = "step")]
    Steps(steps::Arguments),
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
    /// Send failed or cancelled tasks back to wait
    ///
    /// A failed or cancelled task gets all of its retries again; a waiting one runs
    /// now. Tasks that run or have succeeded are left alone. A filter without a
    /// status matches failed tasks: cancelled ones were cancelled on purpose, so name
    /// that status to retry them.
    #[command(after_help = FILTERS)]
    Retry(SelectionArgs),
    Cancel(cancel::Arguments),
    Rerun(rerun::Arguments),
    Signal(signal::Arguments),
    Edit(edit::Arguments),
    /// Delete ended tasks, with everything recorded about them
    ///
    /// A task that waits or runs is never deleted: `cancel` it first. This cannot be
    /// undone. A filter without a status matches tasks that have ended. For tasks of
    /// a certain age, see `prune`.
    #[command(after_help = FILTERS)]
    Delete(SelectionArgs),
    Prune(prune::Arguments),

    #[command(alias = "flows")]
    Flow(flow::Arguments),
    #[command(alias = "queue")]
    Queues(queues::Arguments),
    #[command(alias = "limit")]
    Limits(limits::Arguments),
    #[command(alias = "schedule")]
    Schedules(schedules::Arguments),
    #[command(alias = "instance")]
    Instances(instances::Arguments),
    #[command(alias = "class")]
    Classes(classes::Arguments),
    Recover(recover::Arguments),
    Doctor(doctor::Arguments),
    Verify(verify::Arguments),
    Audit(audit::Arguments),
    #[command(alias = "token")]
    Tokens(tokens::Arguments),

    Export(export::Arguments),
    Import(import::Arguments),
    #[command(alias = "type")]
    Types(types::Arguments),
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

/// For the help of every command that takes a filter.
pub(crate) const FILTERS: &str = r#"Filters:
  A filter has terms like status=failed; a task matches if all of them hold.
    status=failed,cancelled          one of several; != for none of them
                                     waiting, running, stopped (or succeeded),
                                     failed, cancelled
    class=send_mail queue!=mail      also instance=web-1, correlation=order-17
    error~"429 too many"             has this text in it, in either case; !~ if not
    created>now-2h                   later than 2 hours ago; also updated, due
    created<now-2h                   earlier than 2 hours ago
    created>2026-12-24               later than this time
    'started<2026-12-24T03:10:00Z' 'ended>2026-12-24T03:00:00Z'
                                     ran between the two, by the last attempt
    priority>=5 id>=100 attempts>3   also retries, parent=17 (created by task 17)
    params.user.id=42                a field of the parameters; also context.…
  A shell needs single quotes around a term with < or > or spaces: 'created>now-2h'."#;

/// Reads one of these statuses; `succeeded` is `stopped`.
pub(crate) fn status_of(
    statuses: &[TaskStatus],
) -> impl TypedValueParser<Value = TaskStatus> + use<> {
    let values = statuses.iter().map(|status| {
        let value = PossibleValue::new(status.as_str());
        if *status == TaskStatus::Stopped { value.alias(TaskStatus::SUCCEEDED) } else { value }
    });
    PossibleValuesParser::new(values.collect::<Vec<_>>()).try_map(|text| text.parse::<TaskStatus>())
}

/// Reads a filter, and shows where it is wrong.
pub(crate) fn filter(words: &[String]) -> Result<Filter, CliError> {
    Filter::parse_words(words, now().time_zone()).map_err(|(word, bad)| {
        let arrow = " ".repeat(bad.at - 1);
        CliError::Usage(format!("invalid filter {bad}\n  {word}\n  {arrow}^"))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn arguments_are_consistent() {
        crate::help::command().debug_assert();
    }
}
