//! `task-engine show`.

use std::io::{self, Write};

use clap::Args;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Serialize;
use task_engine::{Json, TaskId, TaskStatus};
use task_engine_core::attempt::TaskError;
use task_engine_core::dependency::DependencyCondition;
use task_engine_core::display::{
    StepEntry, cancel_history_text, clock, clock_and_relative, count, outcome_text, relative, span,
    step_timeline,
};
use task_engine_core::instance::InstanceRow;
use task_engine_core::instance::InstanceState;
use task_engine_core::progress::{LINES_MAX, LogFilter, LogRow};
use task_engine_core::secret::Redactor;
use task_engine_core::task::{ExecutionRow, TaskDetails};
use task_engine_core::task::{ExecutionStatus, LateResult};
use task_engine_core::unique;
use task_engine_operations::flows::{RelatedTask, TASK_RELATIONS_SHOWN, TaskRelations};
use task_engine_operations::why::sentences::reason;
use task_engine_operations::why::{Reason, why};
use task_engine_store::contract::Store;

use super::steps;
use crate::console::{Console, now};
use crate::error::CliError;
use crate::escape::{escape, escape_lines, summary};
use crate::log_follow::{LogPrinter, LogReader, event_text, progress_text, with_gaps};
use crate::pretty::pretty;

/// Show everything about a task, and why it does not run yet
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The task, by its id
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    id: TaskId,
    /// Print it as JSON
    #[arg(long, conflicts_with = "follow")]
    json: bool,
    /// Then follow its log and progress until it has ended
    #[arg(short, long)]
    follow: bool,
    /// Show secret parameters, too
    #[arg(long)]
    reveal: bool,
}

/// A task with the newest lines of its log, and the state of its engine while it
/// runs.
#[derive(Debug, Serialize)]
struct TaskOutput<'a> {
    #[serde(flatten)]
    task: &'a TaskDetails,
    #[serde(flatten)]
    relations: &'a TaskRelations,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    steps: &'a [StepEntry],
    log: &'a [LogRow],
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_state: Option<InstanceState>,
}

/// How many of its steps are shown.
const STEPS_SHOWN: usize = 20;
/// How many tasks that it depends on are named.
const RELATED_SHOWN: usize = 5;
/// How many lines of its log are shown.
const LINES_SHOWN: u32 = 20;

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let Some(mut task) = store.task(args.id).await? else {
        return Err(no_such_task(args.id, &*store));
    };
    let secrets = if args.reveal {
        Redactor::default()
    } else {
        task_engine_operations::redaction::secrets(&*store).await?.redactor_of(&task)
    };
    secrets.task(&mut task);
    let limit =
        if args.json { u32::try_from(LINES_MAX).unwrap_or(LINES_SHOWN) } else { LINES_SHOWN };
    let newest = LogFilter { newest: true, limit, ..LogFilter::default() };
    let mut log = store.logs(args.id, &newest).await?;
    secrets.log(&mut log);
    let mut steps = store.steps(args.id).await?;
    secrets.steps(&mut steps);
    let steps = step_timeline(&steps, task.row.status);
    let relations = TaskRelations::read(&*store, args.id, TASK_RELATIONS_SHOWN).await?;
    if args.json {
        let engine_state = engine_state(&*store, &task).await?;
        let whole = TaskOutput {
            task: &task,
            relations: &relations,
            steps: &steps,
            log: &log,
            engine_state,
        };
        return console.print_json([whole]);
    }
    let reasons = why_unfinished(&*store, &task).await?;
    let more = console.command(&format!("logs {}", args.id));
    let mut page = TaskPage { out: console.results(), now: now(), log: &log, more };
    page.print(&task, &relations, &reasons)?;
    page.steps(&steps, &console.command(&format!("steps {}", args.id)))?;
    page.out.flush()?;
    if args.follow {
        return follow(console, &*store, page, &task, secrets).await;
    }
    if task.row.status == TaskStatus::Failed {
        console.message(format_args!(
            "\nTo try it again: {}",
            console.command(&format!("retry {}", args.id))
        ));
    }
    Ok(())
}

pub(crate) fn no_such_task(id: TaskId, store: &dyn Store) -> CliError {
    CliError::NotFound(format!(
        "there is no task {id} on {}; retention may have removed it",
        store.location()
    ))
}

/// Continues after the printed lines.
async fn follow<W: Write>(
    console: &Console,
    store: &dyn Store,
    page: TaskPage<'_, W>,
    task: &TaskDetails,
    secrets: Redactor,
) -> Result<(), CliError> {
    let mut reader = LogReader::after(task, page.log);
    let zone = page.zone();
    let mut printer = LogPrinter::new(page.out, zone, false, secrets);
    let ended = reader.follow(store, &mut |event| printer.print(event)).await?;
    if let Some(task) = ended {
        console.message(format_args!("Task {} is {}.", task.row.id, task.row.status.explained()));
    }
    Ok(())
}

/// Why a task has not ended, as sentences: for a running task only problems.
async fn why_unfinished(store: &dyn Store, task: &TaskDetails) -> Result<Vec<String>, CliError> {
    if !matches!(task.row.status, TaskStatus::Waiting | TaskStatus::Running) {
        return Ok(Vec::new());
    }
    // The task may have changed since it was read.
    let found = why(store, task.row.id).await?;
    let Some(found) = found.filter(|why| why.task.row.status == task.row.status) else {
        return Ok(Vec::new());
    };
    let zone = now().time_zone().clone();
    let is_problem = |one: &&Reason| !matches!(one, Reason::Running { engine_is_alive: true, .. });
    let sentence = |one| escape(&reason(one, found.at, &zone)).into_owned();
    Ok(found.reasons.iter().filter(is_problem).map(sentence).collect())
}

async fn engine_state(
    store: &dyn Store,
    task: &TaskDetails,
) -> Result<Option<InstanceState>, CliError> {
    if task.row.status != TaskStatus::Running {
        return Ok(None);
    }
    let engines = store.instances(task.row.instance.as_deref()).await?;
    // The newest session may not be the one that holds the task.
    let holder = engines.iter().find(|engine| engine.held > 0).or(engines.first());
    Ok(holder.map(InstanceRow::state))
}

/// Names of generic types can be very long; `--json` has them whole.
const FRAME_CHARS_MAX: usize = 160;

/// The text about one task.
struct TaskPage<'a, W> {
    out: W,
    now: Zoned,
    /// The newest lines of its log.
    log: &'a [LogRow],
    /// The command that shows all of them.
    more: String,
}

impl<W: Write> TaskPage<'_, W> {
    fn print(
        &mut self,
        task: &TaskDetails,
        relations: &TaskRelations,
        reasons: &[String],
    ) -> io::Result<()> {
        let row = &task.row;
        writeln!(self.out, "Task {}: {}, {}", row.id, escape(&row.class), row.status.explained())?;
        for (at, reason) in reasons.iter().enumerate() {
            let (name, because) = match (at, row.status) {
                (0, TaskStatus::Running) => ("state", ""),
                (0, _) => ("waits", "because "),
                (_, TaskStatus::Running) => ("and", ""),
                _ => ("and", "because "),
            };
            self.field(name, &format!("{because}{reason}"))?;
        }
        self.field("created", &self.time(row.created_at))?;
        let due =
            if row.retry_number > 0 && row.status == TaskStatus::Waiting { "retry" } else { "due" };
        self.field(due, &self.time(row.scheduled_at))?;
        if row.status != TaskStatus::Waiting {
            self.field(status_since(row.status), &self.time(row.updated_at))?;
        }
        self.field("queue", &format!("{}, priority {}", escape(&row.queue), row.priority))?;
        if let Some(key) = unique::key_of(&task.context) {
            self.field("unique", &format!("by the key {}", escape(&key)))?;
        }
        self.field("attempts", &format!("{}, retry number {}", row.attempts, row.retry_number))?;
        self.field("flow", &flow(task))?;
        self.related("after", &relations.dependencies)?;
        self.related("before", &relations.dependents)?;
        self.json("parameters", &task.parameters)?;
        if task.context.as_str() != "{}" {
            self.json("context", &task.context)?;
        }
        for execution in &task.executions {
            self.execution(execution)?;
        }
        for late in &task.late_results {
            let ended = task.executions.iter().find(|execution| execution.attempt == late.attempt);
            self.late(late, ended.and_then(|execution| execution.error.as_ref()))?;
        }
        Ok(())
    }

    /// Tasks that it depends on, or that depend on it.
    fn related(&mut self, name: &str, tasks: &[RelatedTask]) -> io::Result<()> {
        let one = |task: &RelatedTask| {
            let name = task.name.as_ref().map(|name| format!("{} ", summary(name, 40)));
            let condition = match task.condition {
                DependencyCondition::End => ", its end",
                DependencyCondition::Failure => ", a failure",
                _ => "",
            };
            let status = task.status.map_or("removed", TaskStatus::as_str);
            format!("{}(task {}, {status}{condition})", name.unwrap_or_default(), task.id)
        };
        let shown = tasks.iter().take(RELATED_SHOWN).map(one).collect::<Vec<_>>();
        if shown.is_empty() {
            return Ok(());
        }
        let more = match tasks.len().saturating_sub(RELATED_SHOWN) {
            0 => String::new(),
            more => format!(", and {more} or more others"),
        };
        self.field(name, &format!("{}{more}", shown.join(", ")))
    }

    /// The newest steps of a durable task.
    fn steps(&mut self, steps: &[StepEntry], more: &str) -> io::Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let newest = &steps[steps.len().saturating_sub(STEPS_SHOWN)..];
        let all = if newest.len() == steps.len() {
            String::new()
        } else {
            format!(", the newest {} here; all: {more}", newest.len())
        };
        writeln!(self.out, "\n{}{all}", count(steps.len(), "step"))?;
        for step in newest {
            writeln!(self.out, "  {}", steps::line(step, &self.now))?;
        }
        Ok(())
    }

    fn execution(&mut self, execution: &ExecutionRow) -> io::Result<()> {
        let (now, zone) = (self.now.timestamp(), self.zone());
        match execution.status {
            // Not counted as an attempt.
            ExecutionStatus::Cancelled => {
                writeln!(self.out, "\nNot begun: {}", outcome_text(execution))?;
            }
            _ => {
                writeln!(self.out, "\nAttempt {}: {}", execution.attempt, outcome_text(execution))?;
            }
        }
        if let Some(name) = &execution.instance {
            let worker =
                execution.worker.map_or(String::new(), |worker| format!(", worker {worker}"));
            self.field("engine", &format!("{}{worker}", escape(name)))?;
        }
        match (execution.started_at, execution.stopped_at) {
            (Some(started), Some(stopped)) => {
                let lasted = span(stopped.duration_since(started).unsigned_abs());
                let ended = relative(stopped, now);
                let line = format!("{}, took {lasted}, ended {ended}", clock(started, &zone));
                self.field("started", &line)?;
            }
            (Some(started), None) => self.field("started", &self.time(started))?,
            (None, Some(stopped)) => {
                if execution.status != ExecutionStatus::Cancelled {
                    self.field("started", "never")?;
                }
                self.field("ended", &self.time(stopped))?;
            }
            (None, None) => {}
        }
        if let Some(progress) = &execution.progress {
            let at = relative(progress.reported_at, now);
            self.field("progress", &format!("{} ({at})", progress_text(progress)))?;
        }
        if let Some(cancel) = &execution.cancel {
            self.field("cancel", &cancel_history_text(cancel, execution, now, &zone))?;
        }
        if let Some(result) = execution.result.as_ref().filter(|result| result.as_str() != "null") {
            self.json("result", result)?;
        }
        match &execution.error {
            Some(error) if execution.status == ExecutionStatus::Snoozed => {
                self.field("reason", &summary(&error.message, 500))?;
            }
            Some(error) => self.error(error)?,
            None => {}
        }
        if let Some(retry_at) = execution.retry_at {
            self.field("next", &format!("attempt at {}", self.time(retry_at)))?;
        }
        if execution.log_lines > 0 {
            self.log(execution)?;
        }
        Ok(())
    }

    fn log(&mut self, execution: &ExecutionRow) -> io::Result<()> {
        let (log, zone) = (self.log, self.zone());
        let logged = count(usize::try_from(execution.log_lines).unwrap_or(0), "line");
        let lines: Vec<&LogRow> =
            log.iter().filter(|line| line.attempt == execution.attempt).collect();
        let whole = i64::from(execution.log_lines) == lines.len() as i64;
        let heading = match (lines.len(), whole) {
            (_, true) => logged,
            (0, _) => format!("{logged}; all stored lines: {}", self.more),
            (shown, _) => {
                format!("{logged}, {shown} of them here; all stored lines: {}", self.more)
            }
        };
        self.field("log", &heading)?;
        let after = lines.first().map_or(0, |first| first.line - 1);
        for event in with_gaps(&lines, after) {
            writeln!(self.out, "  {:10}  {}", "", event_text(&event, &zone))?;
        }
        Ok(())
    }

    fn late(&mut self, late: &LateResult, end: Option<&TaskError>) -> io::Result<()> {
        let after = span(late.arrived_at.duration_since(late.ended_at).unsigned_abs());
        let end = if end.is_some_and(|error| error.exception == TaskError::INSTANCE_LOST) {
            "its engine was declared dead"
        } else {
            "its end had been recorded"
        };
        writeln!(
            self.out,
            "\nLate result of attempt {}: returned {after} after {end}; discarded",
            late.attempt
        )?;
        self.field("arrived", &self.time(late.arrived_at))?;
        if let Some(result) = &late.result {
            self.json("result", result)?;
        }
        late.error.as_ref().map_or(Ok(()), |error| self.error(error))
    }

    fn error(&mut self, error: &TaskError) -> io::Result<()> {
        self.field("error", &escape_lines(&error.to_string()))?;
        // The text of a program, like a Python traceback, keeps its indentation.
        let is_text = error.backtrace.iter().any(|line| line.starts_with([' ', '\t']));
        for frame in &error.backtrace {
            if is_text {
                let line = frame.replace('\t', "    ");
                let line: String = escape(line.trim_end()).chars().take(FRAME_CHARS_MAX).collect();
                writeln!(self.out, "  {:10}    {line}", "")?;
            } else {
                writeln!(self.out, "  {:10}    at {}", "", summary(frame, FRAME_CHARS_MAX))?;
            }
        }
        Ok(())
    }

    fn json(&mut self, name: &str, json: &Json) -> io::Result<()> {
        self.field(name, &pretty(json.as_str()))
    }

    /// A name and its text, with further lines below the first one.
    fn field(&mut self, name: &str, text: &str) -> io::Result<()> {
        let mut lines = text.lines();
        writeln!(self.out, "  {name:10}  {}", lines.next().unwrap_or_default())?;
        for line in lines {
            writeln!(self.out, "  {:10}  {line}", "")?;
        }
        Ok(())
    }

    fn time(&self, time: Timestamp) -> String {
        clock_and_relative(time, self.now.timestamp(), self.now.time_zone())
    }

    fn zone(&self) -> TimeZone {
        self.now.time_zone().clone()
    }
}

/// Its flow, and the task that created it.
fn flow(task: &TaskDetails) -> String {
    let own = task.correlation_id == task.row.id.to_string();
    let name = if own { "its own".into() } else { escape(&task.correlation_id) };
    match task.parent_id {
        Some(parent) => format!("{name}, created by task {parent}"),
        None => name.into_owned(),
    }
}

fn status_since(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Running => "held since",
        TaskStatus::Failed => "given up",
        TaskStatus::Cancelled => "cancelled",
        TaskStatus::Stopped | TaskStatus::Waiting => "done",
    }
}
