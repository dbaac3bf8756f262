//! `task-engine flow run`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use task_engine::{Store, TaskId, TaskStatus};
use task_engine_core::attempt::TaskError;
use task_engine_core::dependency::{FlowCounts, FlowsQuery, NewFlow};
use task_engine_core::display::{count, span};
use task_engine_core::flow::FlowTask;
use task_engine_core::secret::Secrets;
use task_engine_operations::definition::FlowDefinition;
use task_engine_operations::fields::parse;
use task_engine_operations::flows::{self, FlowReport};

use super::file::FlowFile;
use super::list::progress;
use crate::console::{Console, quoted};
use crate::error::CliError;
use crate::escape::{escape, summary};
use crate::executables::{self, ConfigPurpose};
use crate::json_output::write_json_line;
use crate::parameters::{self, CheckArgs};
use crate::times::duration;

/// Create the tasks of a flow, all or none
///
/// Prints the correlation id, and the id of each task. With --wait, the exit code
/// is 0 if no task failed, 10 if one failed or was cancelled, and 8 if --timeout
/// came first.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Arguments {
    /// The file, in TOML or JSON; - for the standard input
    #[arg(value_name = "FILE")]
    file: String,
    /// The correlation id of its tasks [default: that of the file, or a new one]
    #[arg(long, value_name = "TEXT")]
    correlation: Option<String>,
    /// Wait until all of its tasks have ended
    #[arg(long)]
    wait: bool,
    /// How long to wait at most [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait")]
    timeout: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    check: CheckArgs,
    /// Do not create or update the tables
    #[arg(long)]
    no_migrate: bool,
}

const EXAMPLE: &str = r#"A file:
  [task.extract]
  class = "extract"
  parameters = { day = "2026-11-16" }
  [task.load]
  class = "load"
  after = ["extract"]
  [task.alert]
  class = "alert"
  after_failure = ["extract", "load"]

`after` starts a task after the success of others, `after_end` after their end,
`after_failure` if one of them has failed. Each has names of tasks of the file,
or ids of existing tasks."#;

/// A definition with all parameters is not larger.
const BYTES_MAX: u64 = 256 * 1024 * 1024;
const POLL_FIRST: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_secs(1);
/// More failed tasks are not listed.
const FAILED_SHOWN: usize = 20;

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    // The file is checked before the database is opened.
    let file = read(console, &args.file)?;
    let mut flow = definition(&file, args.correlation.as_deref())?;
    let store = console.open_to_create(args.no_migrate).await?;
    let engines = store.instances(None).await?;
    let secrets = Secrets::of(&engines);
    for task in &flow.tasks {
        let known = !secrets.of_class(&task.task.class).is_empty();
        let inside = known
            || task_engine_core::secret::paths_in(&task.task.context)
                .is_some_and(|paths| !paths.is_empty());
        parameters::refuse_placeholders(&task.task.parameters, inside)
            .map_err(|why| CliError::Usage(format!("task {}: {why}", escape(&task.name))))?;
    }
    let tasks = flow.tasks.iter();
    let tasks = tasks.map(|task| (&task.task, format!("task {}: ", escape(&task.name))));
    args.check.check(console, &engines, tasks)?;
    flows::prepare(&mut flow, None, &secrets)?;
    let created = store.create_flow(&flow).await.map_err(flow_error)?;
    let report = FlowReport::of(&flow, &created);
    if args.json {
        console.print_json([&report])?;
    } else {
        print(console, &report, flow.name.as_deref())?;
    }
    if !args.wait {
        let id = quoted(&report.correlation_id);
        console.message(format_args!("Follow it: {}", console.command(&format!("flow show {id}"))));
        return Ok(());
    }
    let first = created.ids.iter().min().copied();
    let wait = FlowWait { console, store: &*store, report: &report, first, json: args.json };
    wait.run(args.timeout).await
}

/// Refused flows change nothing: a task that they depend on does not exist.
pub(in crate::commands) fn flow_error(error: task_engine::StoreError) -> CliError {
    match error {
        task_engine::StoreError::InvalidData(why) => CliError::Usage(why),
        task_engine::StoreError::Refused(why) => {
            CliError::Conflict(format!("{why}; nothing was created"))
        }
        error => error.into(),
    }
}

fn read(console: &Console, name: &str) -> Result<FlowFile, CliError> {
    let text = if name == "-" {
        if io::stdin().is_terminal() {
            console.message("Type the flow as TOML or JSON; end with Ctrl-D.");
        }
        read_text("the standard input", io::stdin().lock())?
    } else {
        let file = File::open(name).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                CliError::NotFound(format!("there is no file {}", escape(name)))
            }
            _ => CliError::Usage(format!("{} cannot be opened: {error}", escape(name))),
        })?;
        read_text(name, file)?
    };
    let shown = if name == "-" { "the standard input" } else { name };
    FlowFile::read(shown, text).map_err(CliError::Usage)
}

fn read_text(from: &str, input: impl Read) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    let from = escape(from);
    input
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| CliError::Usage(format!("cannot read {from}: {error}")))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(CliError::Usage(format!("{from} is larger than {BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CliError::Usage(format!("{from} is not text in UTF-8 (at byte {at})"))
    })
}

/// The flow of a file, with the options of its classes in task-engine.toml here.
fn definition(file: &FlowFile, correlation: Option<&str>) -> Result<NewFlow, CliError> {
    let invalid = |error| CliError::Usage(file.error(&error));
    let value = parse(&file.json).map_err(invalid)?;
    let mut definition = FlowDefinition::read(value).map_err(invalid)?;
    if let Some(id) = correlation {
        definition.correlation_id = Some(id.to_owned());
    }
    let config = executables::load(None, ConfigPurpose::Create)?;
    let classes: BTreeMap<_, _> =
        config.classes.iter().map(|one| (one.class.as_str(), one.options())).collect();
    for one in &mut definition.tasks {
        let Some(options) = classes.get(one.task.class.as_str()) else { continue };
        if !one.has_queue {
            one.task.queue.clone_from(&options.queue);
        }
        if !one.has_priority {
            one.task.priority = options.priority;
        }
        let with_secrets = one.task.clone().secret(&options.secret);
        one.task = with_secrets.map_err(|error| CliError::Usage(error.to_string()))?;
    }
    definition.resolve().map_err(invalid)
}

fn print(console: &Console, report: &FlowReport, name: Option<&str>) -> Result<(), CliError> {
    let mut out = console.results();
    let name = name.map_or_else(String::new, |name| format!(" ({})", escape(name)));
    writeln!(
        out,
        "Flow {}{name}: {}",
        escape(&report.correlation_id),
        count(report.tasks.len(), "task")
    )?;
    let mut tasks: Vec<_> = report.tasks.iter().collect();
    tasks.sort_by_key(|(_, id)| **id);
    let width = tasks.iter().map(|(_, id)| id.to_string().len()).max().unwrap_or(0);
    for (name, id) in tasks {
        writeln!(out, "  {:>width$}  {}", id.to_string(), escape(name))?;
    }
    Ok(out.flush()?)
}

/// Waits for the end of a flow.
struct FlowWait<'a> {
    console: &'a Console,
    store: &'a dyn Store,
    report: &'a FlowReport,
    /// Older tasks with this correlation id are not of this flow.
    first: Option<TaskId>,
    json: bool,
}

/// How a flow has ended.
#[derive(Serialize)]
struct EndedFlow<'a> {
    correlation_id: &'a str,
    counts: FlowCounts,
    /// The tasks that failed, or were cancelled by other causes than a failed task before
    /// them.
    failed: Vec<FailedTask>,
}

#[derive(Serialize)]
struct FailedTask {
    id: TaskId,
    name: Option<String>,
    class: String,
    status: TaskStatus,
    error: Option<TaskError>,
}

impl FlowWait<'_> {
    async fn run(&self, timeout: Option<Duration>) -> Result<(), CliError> {
        let begun = Instant::now();
        let mut pause = POLL_FIRST;
        loop {
            let counts = self.counts().await?;
            if counts.open() == 0 {
                return self.print_end().await;
            }
            let left = timeout.map(|limit| limit.saturating_sub(begun.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(CliError::TimedOut(format!(
                    "flow {} has not ended after {}: {}",
                    escape(&self.report.correlation_id),
                    span(begun.elapsed()),
                    progress(&counts)
                )));
            }
            tokio::time::sleep(pause.min(left.unwrap_or(pause))).await;
            pause = (pause * 3 / 2).min(POLL_MAX);
        }
    }

    async fn counts(&self) -> Result<FlowCounts, CliError> {
        let query = FlowsQuery {
            correlation_id: Some(self.report.correlation_id.clone()),
            before: None,
            limit: 1,
            tasks_counted_max: 1_000_000,
        };
        let found = self.store.flows(&query).await?.into_iter().next();
        found.map(|row| row.counts).ok_or_else(|| {
            CliError::NotFound(format!("flow {} was removed", escape(&self.report.correlation_id)))
        })
    }

    async fn print_end(&self) -> Result<(), CliError> {
        let id = self.report.correlation_id.as_str();
        let Some(mut details) =
            flows::read(self.store, id, super::super::trace::LIMIT_MAX as usize).await?
        else {
            return Err(CliError::NotFound(format!("flow {} was removed", escape(id))));
        };
        details.tasks.retain(|task| self.first.is_none_or(|first| task.row.id >= first));
        let counts = details.counts();
        let failed: Vec<_> = details.tasks.iter().filter(|task| is_failure(task)).collect();
        let because =
            details.tasks.iter().filter(|task| has_error(task, TaskError::DEPENDENCY_FAILED));
        let because = because.count();
        let mut out = self.console.results();
        if self.json {
            let failed = failed.iter().map(|task| FailedTask {
                id: task.row.id,
                name: task.name.clone(),
                class: task.row.class.clone(),
                status: task.row.status,
                error: task.row.error.clone(),
            });
            let ended = EndedFlow { correlation_id: id, counts, failed: failed.collect() };
            write_json_line(&mut out, &ended)?;
        } else if !self.console.is_quiet() {
            for task in failed.iter().take(FAILED_SHOWN) {
                let name = task.name.as_deref().unwrap_or(&task.row.class);
                let error = task.row.error.as_ref().map_or_else(String::new, |error| {
                    format!(": {}", summary(&error.to_string(), 200))
                });
                writeln!(out, "{} {} {}{error}", task.row.id, summary(name, 60), task.row.status)?;
            }
        }
        out.flush()?;
        drop(out);
        if failed.is_empty() && because == 0 {
            self.console.message(format_args!(
                "Flow {} has ended: {}",
                escape(id),
                count(counts.stopped as usize, "task") + " succeeded"
            ));
            return Ok(());
        }
        let more = match because {
            0 => String::new(),
            1 => ", and 1 was cancelled because of that".to_owned(),
            number => format!(", and {number} were cancelled because of that"),
        };
        Err(CliError::AwaitedFailed(format!(
            "{} of flow {} failed or {} cancelled{more}",
            count(failed.len(), "task"),
            escape(id),
            if failed.len() == 1 { "was" } else { "were" }
        )))
    }
}

fn has_error(task: &FlowTask, exception: &str) -> bool {
    task.row.status == TaskStatus::Cancelled
        && task.row.error.as_ref().is_some_and(|error| error.exception == exception)
}

/// Whether it failed itself. One that was not needed is as good as one that succeeded.
fn is_failure(task: &FlowTask) -> bool {
    match task.row.status {
        TaskStatus::Failed => true,
        TaskStatus::Cancelled => {
            !has_error(task, TaskError::NOT_NEEDED)
                && !has_error(task, TaskError::DEPENDENCY_FAILED)
        }
        _ => false,
    }
}
