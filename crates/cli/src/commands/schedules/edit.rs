//! Adds, changes, pauses, runs and removes schedules.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use task_engine::{Creation, Missed, NewTask, Overlap, Schedule, Store};
use task_engine_core::ParseError;
use task_engine_core::display::clock_and_relative;
use task_engine_core::schedule::InvalidSchedule;
use task_engine_core::secret::UnexpectedPlaceholder;
use task_engine_core::task::DEFAULT_QUEUE;
use task_engine_store::schedules::{Done, Schedules};

use super::RuleArguments;
use crate::console::{Console, now};
use crate::database::OpenMode;
use crate::deed::{Deed, actor};
use crate::error::CliError;
use crate::escape::escape;
use crate::executables;
use crate::parameters;
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
    name: String,
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
}

/// Stop a schedule from firing until it is resumed
#[derive(Debug, Args)]
pub(crate) struct PauseArguments {
    /// The schedule
    #[arg(value_name = "NAME")]
    name: String,
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
    let rules = executables::rules_of(&args.class)?.unwrap_or_default();
    let task = task.secret(&rules.secret).map_err(wrong)?;
    let schedule = Schedule::new(args.name.as_str(), rule)
        .time_zone(args.time_zone)
        .new_task(task.clone())
        .missed(args.missed)
        .overlap(args.overlap)
        .jitter(args.jitter);
    let definition = schedule.definition().map_err(|error| CliError::Usage(error.to_string()))?;
    let store = console.database()?.open(OpenMode::CreateIfMissing).await?;
    for applied in store.migrate().await? {
        console.say(format_args!("Applied migration {applied}"));
    }
    let known = task_engine_operations::secrets::read(&*store).await?.of_class(&args.class);
    let inside = !(known.is_empty() && rules.secret.is_empty());
    parameters::refuse_placeholders(&task.parameters, inside)?;
    let schedule = schedule.new_task(task.secret(&known).map_err(wrong)?);
    let deed = Deed::new("schedules.add", args.name.as_str()).detail(json!({
        "rule": definition.rule,
        "time_zone": definition.time_zone,
        "task_class": definition.task_class,
    }));
    let schedules = Schedules::of(&*store);
    deed.perform(&*store, schedules.add(&schedule), became).await?;
    tell(console, &*store, &args.name, "is added").await
}

pub(super) async fn set(console: &Console, args: SetArguments) -> Result<(), CliError> {
    let parameters = args.parameters.as_deref();
    let parameters = parameters.map(|text| parameters::read(Some(text), console)).transpose()?;
    let store = console.database()?.open(OpenMode::MustExist).await?;
    let schedules = Schedules::of(&*store);
    let secrets = task_engine_operations::secrets::read(&*store).await?;
    let stray =
        |why: UnexpectedPlaceholder| InvalidSchedule { name: args.name.clone(), why: why.into() };
    let change = schedules.change(&args.name, |stored| {
        let mut definition = stored.clone();
        let new = |field: &mut String, value: &Option<String>| {
            if let Some(value) = value {
                field.clone_from(value);
            }
        };
        new(&mut definition.rule, &args.rule.rule());
        new(&mut definition.time_zone, &args.time_zone);
        new(&mut definition.task_class, &args.class);
        new(&mut definition.queue, &args.queue);
        if let Some(parameters) = &parameters {
            definition.task_parameters = parameters.clone();
            secrets.restore(&mut definition, stored).map_err(stray)?;
        }
        definition.priority = args.priority.unwrap_or(definition.priority);
        definition.missed = args.missed.unwrap_or(definition.missed);
        definition.overlap = args.overlap.unwrap_or(definition.overlap);
        definition.jitter = args.jitter.unwrap_or(definition.jitter);
        Ok(definition)
    });
    let deed = Deed::new("schedules.set", args.name.as_str());
    deed.perform(&*store, change, became).await?;
    tell(console, &*store, &args.name, "is changed").await
}

pub(super) async fn pause(console: &Console, args: PauseArguments) -> Result<(), CliError> {
    let store = console.database()?.open(OpenMode::MustExist).await?;
    let (schedules, reason) = (Schedules::of(&*store), args.reason.as_deref());
    let deed = Deed::new("schedules.pause", args.name.as_str()).reason(reason);
    let done = deed.perform(&*store, schedules.pause(&args.name, reason), became).await?;
    say(console, &args.name, if done == Done::Changed { "is paused" } else { "was paused before" })
}

pub(super) async fn resume(console: &Console, name: &str) -> Result<(), CliError> {
    let store = console.database()?.open(OpenMode::MustExist).await?;
    let (schedules, deed) = (Schedules::of(&*store), Deed::new("schedules.resume", name));
    match deed.perform(&*store, schedules.resume(name), became).await? {
        Done::Changed => tell(console, &*store, name, "is resumed").await,
        Done::Unchanged => say(console, name, "was not paused"),
    }
}

pub(super) async fn run(console: &Console, name: &str) -> Result<(), CliError> {
    let store = console.database()?.open(OpenMode::MustExist).await?;
    let (schedules, deed) = (Schedules::of(&*store), Deed::new("schedules.run", name));
    let created = |it: &Creation| (format!("created task {}", it.id()), 1);
    let actor = actor();
    let run = schedules.run(name, None, Some(&actor));
    let id = deed.perform(&*store, run, created).await?.id();
    console.say("Created 1 task:");
    let mut out = console.results();
    writeln!(out, "{id}")?;
    Ok(out.flush()?)
}

pub(super) async fn remove(console: &Console, name: &str) -> Result<(), CliError> {
    let store = console.database()?.open(OpenMode::MustExist).await?;
    let (schedules, deed) = (Schedules::of(&*store), Deed::new("schedules.remove", name));
    deed.perform(&*store, schedules.remove(name), |_| ("removed".to_owned(), 1)).await?;
    say(console, name, "is removed; its tasks stay")
}

fn became(done: &Done) -> (String, u64) {
    ((if *done == Done::Changed { "written" } else { "was so already" }).to_owned(), 1)
}

/// Says what was done, and when it runs next.
async fn tell(
    console: &Console,
    store: &dyn Store,
    name: &str,
    what: &str,
) -> Result<(), CliError> {
    let (row, _) = store.schedule(name).await?;
    let next_at = row.as_ref().and_then(|row| row.state.next_at);
    let what = match next_at {
        Some(next_at) => {
            let now = now();
            let when = clock_and_relative(next_at, now.timestamp(), now.time_zone());
            format!("{what}; it runs next at {when}")
        }
        None => format!("{what}; it stays paused"),
    };
    say(console, name, &what)
}

fn say(console: &Console, name: &str, what: &str) -> Result<(), CliError> {
    let mut out = console.results();
    writeln!(out, "schedule {} {what}", escape(name))?;
    Ok(out.flush()?)
}
