//! Adds, changes, pauses, runs and removes schedules.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use task_engine::{Missed, NewTask, Overlap, Schedule, Store};
use task_engine_core::ParseError;
use task_engine_core::display::clock_and_relative;
use task_engine_core::schedule::ScheduleDefinition;
use task_engine_core::task::DEFAULT_QUEUE;
use task_engine_operations::{OperationError, OperationOutcome, OperationReport, redaction};

use super::RuleArguments;
use crate::console::{Console, now};
use crate::database::OpenMode;
use crate::error::CliError;
use crate::escape::escape;
use crate::executables;
use crate::operations::operator;
use crate::parameters::{self, CheckArgs};
use crate::times::duration;

/// Add a schedule
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AddArguments {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
    /// The class of its tasks: which code runs
    #[arg(value_name = "CLASS")]
    class: String,
    /// Their parameters: a JSON object, @FILE to read one, or - for the standard
    /// input [default: {}]
    #[arg(value_name = "JSON|@FILE|-", allow_negative_numbers = true)]
    parameters: Option<String>,
    #[command(flatten)]
    rule: RuleArguments,
    /// Whose clock the cron expression is about
    #[arg(long, default_value = "UTC", value_name = "ZONE")]
    time_zone: String,
    /// The queue of its tasks
    #[arg(long, default_value = DEFAULT_QUEUE, value_name = "NAME")]
    queue: String,
    /// Their priority: higher runs first
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true)]
    priority: i32,
    /// What becomes of times that passed while no engine ran: `skip` them, make
    /// the `last` good, or all of them up to a number, `all:N`
    #[arg(long, default_value = "last", value_name = "HOW", value_parser = missed)]
    missed: Missed,
    /// What happens while the task of the time before has not ended: `allow` both
    /// to run, `skip` the new one, or `wait` for the end
    #[arg(long, default_value = "allow", value_name = "HOW", value_parser = overlap)]
    overlap: Overlap,
    /// Let each task wait for up to so long after its time, at random
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    jitter: Duration,
    #[command(flatten)]
    check: CheckArgs,
}

const EXAMPLES: &str = r#"Examples:
  task-engine schedules add nightly WaitingTask '{"waiting_time": 2}' --cron '0 3 * * *' --time-zone Europe/Paris
  task-engine schedules add tidy WaitingTask '{"waiting_time": 1}' --every 15m --overlap skip"#;

/// Change a schedule: what is not named stays
///
/// If an application declares it, its next start leaves this change alone,
/// unless the declaration itself has changed.
#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    /// The schedule
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    #[command(flatten)]
    rule: RuleArguments,
    /// Whose clock the cron expression is about
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// The class of its tasks
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Their parameters
    #[arg(long, value_name = "JSON|@FILE|-", allow_negative_numbers = true)]
    parameters: Option<String>,
    /// Their queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Their priority
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// What becomes of times that passed while no engine ran
    #[arg(long, value_name = "HOW", value_parser = missed)]
    missed: Option<Missed>,
    /// What happens while the task of the time before has not ended
    #[arg(long, value_name = "HOW", value_parser = overlap)]
    overlap: Option<Overlap>,
    /// Let each task wait for up to so long after its time, at random
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    jitter: Option<Duration>,
    #[command(flatten)]
    check: CheckArgs,
}

/// Stop a schedule from firing until it is resumed
#[derive(Debug, Args)]
pub(crate) struct PauseArguments {
    /// The schedule
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// The reason, for other operators
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

fn missed(text: &str) -> Result<Missed, ParseError> {
    text.parse()
}

fn overlap(text: &str) -> Result<Overlap, ParseError> {
    text.parse()
}

pub(super) async fn add(console: &Console, args: AddArguments) -> Result<(), CliError> {
    // All that can be wrong with the input is found before anything is opened.
    let wrong = |error: task_engine_core::task::InvalidTask| CliError::Usage(error.to_string());
    let Some(rule) = args.rule.rule() else {
        return Err(CliError::Usage(
            "say when it runs: --cron EXPRESSION or --every DURATION".into(),
        ));
    };
    let parameters = parameters::read(args.parameters.as_deref(), console)?;
    let task = NewTask::new(args.class.as_str(), parameters).map_err(wrong)?;
    let task = task.queue(args.queue.as_str()).map_err(wrong)?.priority(args.priority);
    let options = executables::options_of(&args.class)?.unwrap_or_default();
    let task = task.secret(&options.secret).map_err(wrong)?;
    let schedule = Schedule::new(args.name.as_str(), rule)
        .time_zone(args.time_zone)
        .new_task(task.clone())
        .missed(args.missed)
        .overlap(args.overlap)
        .jitter(args.jitter);
    schedule.definition().map_err(|error| CliError::Usage(error.to_string()))?;
    let store = console.database()?.open(OpenMode::CreateIfMissing).await?;
    for applied in store.migrate().await? {
        console.message(format_args!("Applied migration {applied}"));
    }
    let known = redaction::secrets(&*store).await?.of_class(&args.class);
    let inside = !(known.is_empty() && options.secret.is_empty());
    parameters::refuse_placeholders(&task.parameters, inside)?;
    let schedule = schedule.new_task(task.secret(&known).map_err(wrong)?);
    let operator = args.check.apply(operator(&store));
    operator.add_schedule(&schedule).await.map_err(|error| match error {
        OperationError::Conflict(exists) => {
            CliError::Conflict(format!("{exists}; change it with `schedules set`"))
        }
        error => error.into(),
    })?;
    print_next(console, &*store, &args.name, OperationOutcome::Added).await
}

pub(super) async fn set(console: &Console, args: SetArguments) -> Result<(), CliError> {
    let parameters = args.parameters.as_deref();
    let parameters = parameters.map(|text| parameters::read(Some(text), console)).transpose()?;
    let store = console.open().await?;
    let change = |stored: &ScheduleDefinition| {
        let mut definition = stored.clone();
        let new = |field: &mut String, value: &Option<String>| {
            if let Some(value) = value {
                field.clone_from(value);
            }
        };
        new(&mut definition.rule, &args.rule.rule());
        new(&mut definition.time_zone, &args.time_zone);
        new(&mut definition.class, &args.class);
        new(&mut definition.queue, &args.queue);
        if let Some(parameters) = &parameters {
            definition.parameters = parameters.clone();
        }
        definition.priority = args.priority.unwrap_or(definition.priority);
        definition.missed = args.missed.unwrap_or(definition.missed);
        definition.overlap = args.overlap.unwrap_or(definition.overlap);
        definition.jitter = args.jitter.unwrap_or(definition.jitter);
        definition
    };
    args.check.apply(operator(&store)).set_schedule(&args.name, change).await?;
    print_next(console, &*store, &args.name, OperationOutcome::Changed).await
}

pub(super) async fn pause(console: &Console, args: PauseArguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let operator = operator(&store).reason(args.reason.as_deref());
    let report = operator.pause_schedule(&args.name).await?;
    print(console, &args.name, outcome_of(&report).text())
}

pub(super) async fn resume(console: &Console, name: &str) -> Result<(), CliError> {
    let store = console.open().await?;
    match outcome_of(&operator(&store).resume_schedule(name).await?) {
        OperationOutcome::Resumed => {
            print_next(console, &*store, name, OperationOutcome::Resumed).await
        }
        outcome => print(console, name, outcome.text()),
    }
}

pub(super) async fn run(console: &Console, name: &str) -> Result<(), CliError> {
    let store = console.open().await?;
    let report = operator(&store).run_schedule(name, None).await?;
    console.message("Created 1 task:");
    let mut out = console.results();
    for id in report.task_ids {
        writeln!(out, "{id}")?;
    }
    Ok(out.flush()?)
}

pub(super) async fn remove(console: &Console, name: &str) -> Result<(), CliError> {
    let store = console.open().await?;
    operator(&store).remove_schedule(name).await?;
    print(console, name, "was removed; its tasks stay")
}

fn outcome_of(report: &OperationReport) -> OperationOutcome {
    report.counts.keys().next().copied().unwrap_or(OperationOutcome::Unchanged)
}

/// Prints what was done, and when the schedule fires next.
async fn print_next(
    console: &Console,
    store: &dyn Store,
    name: &str,
    outcome: OperationOutcome,
) -> Result<(), CliError> {
    let (row, _) = store.schedule(name).await?;
    let text = match row.as_ref().and_then(|row| row.state.next_at) {
        Some(next_at) => {
            let now = now();
            let when = clock_and_relative(next_at, now.timestamp(), now.time_zone());
            format!("{}; it runs next at {when}", outcome.text())
        }
        None => format!("{}; it stays paused", outcome.text()),
    };
    print(console, name, &text)
}

fn print(console: &Console, name: &str, text: &str) -> Result<(), CliError> {
    console.print(format_args!("schedule {} {text}", escape(name)))
}
