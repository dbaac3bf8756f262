//! `task-engine create`.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use task_engine::{NewTask, Store, TaskId};
use task_engine_core::dependency::{DependencyCondition, InvalidFlow, NewFlow};
use task_engine_core::display::{capitalize, clock_and_relative, count, span};
use task_engine_core::instance::InstanceRow;
use task_engine_core::parse::duration_with_unit;
use task_engine_core::secret::Secrets;
use task_engine_core::suggest::nearest;
use task_engine_core::task::Due;
use task_engine_core::unique::{Creation, OnConflict, Scope, Unique};
use task_engine_operations::why::sentences::reason;
use task_engine_operations::why::{Reason, Requirements, no_candidate};

use super::flow::flow_error;
use crate::console::{Console, now};
use crate::error::CliError;
use crate::escape::escape;
use crate::executables::{self, ConfigPurpose};
use crate::parameters::{self, CheckArgs};
use crate::times::{duration, future_time};

/// Create a task, or many
///
/// Prints the ids. Creates the tables, and the file of an SQLite database, if they
/// do not exist.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The class: which code runs. An engine must know it
    #[arg(value_name = "CLASS")]
    class: String,
    /// The parameters: a JSON object, @FILE to read one, or - for the standard
    /// input [default: {}]
    #[arg(value_name = "JSON|@FILE|-", allow_negative_numbers = true)]
    parameters: Option<String>,
    /// The earliest time it may run: 2026-12-24T18:00:00Z, "2026-12-24 18:00" (local
    /// time) or 18:00 (the next time it is)
    #[arg(long, value_name = "TIME", value_parser = |text: &str| future_time(text, &now()))]
    at: Option<Timestamp>,
    /// The tasks that must succeed before it starts: 17, or 17,18; or the duration
    /// from now after which it may run, with its unit: 0s, 10m, 1h30m. May be repeated
    #[arg(long, value_name = "ID|DURATION", value_parser = After::parse,
          allow_hyphen_values = true)]
    after: Vec<After>,
    /// The tasks that must have ended before it starts, whatever their status
    #[arg(long, value_name = "ID", value_delimiter = ',', allow_negative_numbers = true)]
    after_end: Vec<TaskId>,
    /// The tasks of which one must fail before it starts; if all succeed, it is
    /// cancelled
    #[arg(long, value_name = "ID", value_delimiter = ',', allow_negative_numbers = true)]
    after_failure: Vec<TaskId>,
    /// How many tasks to create, all or none
    #[arg(long, default_value_t = 1, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(i64).range(1..=COUNT_MAX))]
    count: i64,
    /// Higher runs first [default: as in task-engine.toml here, or 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// The queue it waits in [default: as in task-engine.toml here, or default]
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Create it once: if a task of this class with this key waits or runs, that
    /// one is kept
    #[arg(long, value_name = "KEY", conflicts_with = "count")]
    unique: Option<String>,
    /// Which task with the key conflicts: one that is waiting, one that is active
    /// (waiting or running), or one created within a time (10m)
    #[arg(long, value_name = "waiting|active|DURATION", requires = "unique",
          default_value = "active", value_parser = scope, allow_hyphen_values = true)]
    unique_scope: Scope,
    /// What to do on a conflict: keep that task; or, if it waits, replace all of it,
    /// replace-parameters or replace-time
    #[arg(long, value_name = "ACTION", requires = "unique", default_value = "keep")]
    on_conflict: OnConflict,
    /// A limit that applies to it, with its key; without a key, the parameter that the
    /// limit names. May be given up to three times
    #[arg(long = "limit", value_name = "NAME[=KEY]")]
    limits: Vec<String>,
    /// The correlation id of its flow [default: a new flow]
    #[arg(long, value_name = "TEXT")]
    correlation: Option<String>,
    /// The W3C trace context that it is created under
    #[arg(long, value_name = "TRACEPARENT")]
    traceparent: Option<String>,
    #[command(flatten)]
    check: CheckArgs,
    /// Do not create or update the tables
    #[arg(long)]
    no_migrate: bool,
}

/// What a task comes after.
#[derive(Debug, Clone)]
enum After {
    Tasks(Vec<TaskId>),
    Wait(Duration),
}

impl After {
    fn parse(text: &str) -> Result<Self, String> {
        let is_ids = |c: char| c.is_ascii_digit() || c == ',' || c == ' ';
        if !text.is_empty() && text.chars().all(is_ids) {
            let id = |part: &str| part.trim().parse::<TaskId>().map_err(|why| why.to_string());
            return text.split(',').map(id).collect::<Result<_, _>>().map(Self::Tasks);
        }
        duration_with_unit(text)
            .map(Self::Wait)
            .map_err(|why| format!("{why}; or write ids of tasks, like 17 or 17,18"))
    }
}

impl Arguments {
    /// When it is due, if that is given.
    fn due(&self) -> Result<Option<Due>, CliError> {
        let waits: Vec<_> = self
            .after
            .iter()
            .filter_map(|after| match after {
                After::Wait(wait) => Some(Due::After(*wait)),
                After::Tasks(_) => None,
            })
            .collect();
        match (self.at, &waits[..]) {
            (Some(_), [_, ..]) => {
                let why = "--at cannot be used with a duration in --after; give one of them";
                Err(CliError::Usage(why.to_owned()))
            }
            (_, [_, _, ..]) => {
                Err(CliError::Usage("--after has several durations; give one".to_owned()))
            }
            (at, waits) => Ok(at.map(Due::At).or(waits.first().copied())),
        }
    }

    /// The tasks that it depends on.
    fn dependencies(&self) -> Vec<(TaskId, DependencyCondition)> {
        let after = self.after.iter().filter_map(|after| match after {
            After::Tasks(ids) => Some(ids.iter().copied()),
            After::Wait(_) => None,
        });
        let success = after.flatten().map(|id| (id, DependencyCondition::Success));
        let end = self.after_end.iter().map(|id| (*id, DependencyCondition::End));
        let failure = self.after_failure.iter().map(|id| (*id, DependencyCondition::Failure));
        success.chain(end).chain(failure).collect()
    }
}

fn scope(text: &str) -> Result<Scope, String> {
    match text {
        "waiting" => Ok(Scope::Waiting),
        "active" => Ok(Scope::Active),
        period => duration(period)
            .map(Scope::Within)
            .map_err(|why| format!("write waiting, active, or a duration like 10m: {why}")),
    }
}

const EXAMPLES: &str = r#"Examples (an engine started with --samples runs WaitingTask):
  task-engine create WaitingTask '{"waiting_time": 2}'
  task-engine create WaitingTask @parameters.json --at 18:00
  task-engine create WaitingTask --after 17 --after-end 18,19
  task-engine create WaitingTask --after 5m --unique nap --on-conflict replace
  echo '{"waiting_time": 0.1}' | task-engine create WaitingTask - --count 1000"#;

const COUNT_MAX: i64 = 1_000_000;
/// Creation is one statement, all or none, so what it carries is bounded.
const CREATION_BYTES_MAX: usize = 256 * 1024 * 1024;
/// More ids than this are printed as ranges.
const IDS_SHOWN_MAX: usize = 20;

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    // The input is checked before the database is opened.
    let (queue, priority, secret) = lane(&args)?;
    let (mut task, due) = task(console, &args, &queue, priority, &secret)?;
    let dependencies = args.dependencies();
    if !dependencies.is_empty() {
        check_dependent(&args, &task, &dependencies)?;
    }
    let store = console.open_to_create(args.no_migrate).await?;
    let engines = store.instances(None).await?;
    let known = Secrets::of(&engines).of_class(&args.class);
    parameters::refuse_placeholders(&task.parameters, !(known.is_empty() && secret.is_empty()))?;
    task = task.secret(&known).map_err(|error| CliError::Usage(error.to_string()))?;
    args.check.check(console, &engines, [(&task, String::new())])?;
    if !dependencies.is_empty() {
        let flow = NewFlow::of_task(task, &dependencies).map_err(invalid_flow)?;
        let created = store.create_flow(&flow).await.map_err(flow_error)?;
        let after = count(flow.tasks[0].dependencies.len(), "task");
        let due = due.map_or_else(String::new, |due| format!(", due {due}"));
        console.message(format_args!("Created 1 task, which starts after {after}{due}:"));
        print_ids(&created.ids, console.results())?;
        let wanted = Requirements { class: &args.class, queue: &queue, priority };
        return print_obstacles(console, &*store, &engines, wanted, 1).await;
    }
    let tasks = vec![task; usize::try_from(args.count).unwrap_or(1)];
    let creations = store.create_each(&tasks).await?;
    drop(tasks);
    let due = due.map_or_else(String::new, |due| format!(", due {due}"));
    let key = args.unique.as_deref().map(escape).unwrap_or_default();
    match creations[0] {
        Creation::Created(_) => {
            console.message(format_args!("Created {}{due}:", count(creations.len(), "task")));
        }
        Creation::Kept(_) => {
            console
                .message(format_args!("Created nothing: this task has the key {key} and is kept:"));
        }
        Creation::Replaced(_) => {
            console.message(format_args!(
                "Created nothing: this task has the key {key} and was changed{due}:"
            ));
        }
    }
    let ids: Vec<TaskId> = creations.into_iter().map(Creation::id).collect();
    print_ids(&ids, console.results())?;
    let wanted = Requirements { class: &args.class, queue: &queue, priority };
    print_obstacles(console, &*store, &engines, wanted, ids.len()).await
}

/// Refuses what cannot be created, before a database is opened.
fn check_dependent(
    args: &Arguments,
    task: &NewTask,
    dependencies: &[(TaskId, DependencyCondition)],
) -> Result<(), CliError> {
    if args.count > 1 {
        return Err(CliError::Usage(
            "--count cannot be used with tasks in --after; write them as a flow (task-engine flow run --help)"
                .to_owned(),
        ));
    }
    NewFlow::of_task(task.clone(), dependencies).map(drop).map_err(invalid_flow)
}

#[allow(clippy::needless_pass_by_value)] // For `map_err`.
fn invalid_flow(error: InvalidFlow) -> CliError {
    CliError::Usage(escape(&error.to_string()).into_owned())
}

/// Warns if no engine can run the task, its class looks mistyped, or its queue is
/// paused.
async fn print_obstacles(
    console: &Console,
    store: &dyn Store,
    engines: &[InstanceRow],
    wanted: Requirements<'_>,
    created: usize,
) -> Result<(), CliError> {
    let now = now();
    let sentence = |why: &Reason| {
        let text = reason(why, now.timestamp(), now.time_zone());
        capitalize(&escape(&text))
    };
    if let Some(why) = no_candidate(wanted, engines) {
        let they = if created == 1 { "it" } else { "they" };
        console.message(format_args!("{}; {they} will wait until that changes.", sentence(&why)));
    }
    if let Some(meant) = similar_class(wanted.class, engines)? {
        console.message(format_args!(
            "Did you mean {}? If so, cancel what was created and create it again.",
            escape(&meant)
        ));
    }
    let paused = store.paused_queues().await?;
    if let Some(paused) = paused.into_iter().find(|paused| paused.queue == wanted.queue) {
        console.message(format_args!("{}.", sentence(&paused.into())));
    }
    Ok(())
}

/// If the class is unknown, a known class with a similar name: of task-engine.toml
/// here, or of an engine.
fn similar_class(class: &str, engines: &[InstanceRow]) -> Result<Option<String>, CliError> {
    let config = executables::load(None, ConfigPurpose::Create)?;
    let known: BTreeSet<&str> = (config.classes.iter().map(|one| one.class.as_str()))
        .chain(engines.iter().flat_map(|engine| engine.classes.keys()).map(String::as_str))
        .collect();
    if known.contains(class) {
        return Ok(None);
    }
    Ok(nearest(class, known).map(str::to_owned))
}

/// The queue and the priority: of the arguments, else of the class in
/// task-engine.toml here; and the secrets of that class.
fn lane(args: &Arguments) -> Result<(String, i32, Vec<String>), CliError> {
    let options = executables::options_of(&args.class)?.unwrap_or_default();
    let queue = args.queue.clone().unwrap_or(options.queue);
    Ok((queue, args.priority.unwrap_or(options.priority), options.secret))
}

/// The task to create, and when it is due, if not now.
fn task(
    console: &Console,
    args: &Arguments,
    queue: &str,
    priority: i32,
    secret: &[String],
) -> Result<(NewTask, Option<String>), CliError> {
    let wrong = |error: task_engine_core::task::InvalidTask| CliError::Usage(error.to_string());
    let parameters = parameters::read(args.parameters.as_deref(), console)?;
    let bytes = parameters.as_str().len();
    let mut task = NewTask::new(args.class.as_str(), parameters).map_err(wrong)?;
    task = task.queue(queue).map_err(wrong)?.priority(priority).secret(secret).map_err(wrong)?;
    if let Some(key) = &args.unique {
        let unique = Unique::by(key).scope(args.unique_scope).on_conflict(args.on_conflict);
        task = task.unique(unique).map_err(wrong)?;
    }
    task.due = args.due()?.unwrap_or_default();
    let due = match task.due {
        Due::Now => None,
        Due::At(time) => {
            let now = now();
            Some(clock_and_relative(time, now.timestamp(), now.time_zone()))
        }
        Due::After(wait) => Some(format!("in {}", span(wait))),
    };
    if let Some(id) = &args.correlation {
        task = task.correlation(id).map_err(wrong)?;
    }
    for limit in &args.limits {
        task = match limit.split_once('=') {
            Some((name, key)) => task.limit(name, key).map_err(wrong)?,
            None => task.limit_named(limit).map_err(wrong)?,
        };
    }
    if let Some(traceparent) = &args.traceparent {
        task = task.traceparent(traceparent).map_err(wrong)?;
    }
    let number = usize::try_from(args.count).unwrap_or(1);
    if bytes.saturating_mul(number) > CREATION_BYTES_MAX {
        return Err(CliError::Usage(format!(
            "{number} tasks with {bytes} bytes of parameters each are too large together; create at most {} at a time",
            CREATION_BYTES_MAX / bytes
        )));
    }
    Ok((task, due))
}

fn print_ids(ids: &[TaskId], mut out: impl Write) -> io::Result<()> {
    if ids.len() <= IDS_SHOWN_MAX {
        for id in ids {
            writeln!(out, "{id}")?;
        }
    } else {
        // Others may create tasks at the same time, so there can be gaps.
        for range in ids.chunk_by(|one, next| one.0 + 1 == next.0) {
            let (first, last) = (range[0], range[range.len() - 1]);
            writeln!(out, "{first}..{last} ({})", count(range.len(), "task"))?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(ids: impl IntoIterator<Item = i64>) -> String {
        let ids: Vec<_> = ids.into_iter().map(TaskId).collect();
        let mut out = Vec::new();
        print_ids(&ids, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn many_ids_are_printed_as_ranges() {
        assert_eq!(printed([7, 8]), "7\n8\n");
        assert_eq!(printed(1..=100), "1..100 (100 tasks)\n");
        assert_eq!(printed((1..=20).chain(25..=25)), "1..20 (20 tasks)\n25..25 (1 task)\n");
    }
}
