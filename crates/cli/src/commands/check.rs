//! `task-engine check`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use task_engine::Schedule;
use task_engine::limit::Limit;
use task_engine_core::display::{count, span};

use crate::console::Console;
use crate::error::CliError;
use crate::escape::summary;
use crate::executables::conformance;
use crate::executables::{
    self, Config, ConfigError, ConfigPurpose, Executable, ExecutableMode, FILE, LoadedConfig,
    Worker,
};
use crate::json_output::write_json_line;
use crate::table::table;

/// Check the file task-engine.toml, or a worker, without a database
///
/// Prints the classes and the programs that were found for them. Every error has its
/// line and column (exit code 2). It starts no program.
///
/// With --worker, it starts this program as an engine does, sends it the lines of the
/// worker protocol, and prints what is wrong with its answers (exit code 6).
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file [default: task-engine.toml]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The same, as for `start`
    #[arg(long, value_name = "FILE", conflicts_with = "file", hide = true)]
    config: Option<PathBuf>,
    /// Check a worker: a program that speaks the worker protocol, with its arguments
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["file", "config"])]
    worker: Option<String>,
    /// One JSON document: {"file", "classes": […], "announcing": […], "schedules": […],
    /// "limits": […], "errors": [{"line", "column", "message"}]}; with --worker {"classes": […],
    /// "cases": [{"case", "problem"}], "left_out": […]}
    #[arg(long)]
    json: bool,
}

/// `check --worker`.
async fn check_worker(console: &Console, command: &str, as_json: bool) -> Result<(), CliError> {
    let mut out = console.results();
    let report = conformance::check(command, |outcome| {
        if as_json { Ok(()) } else { conformance::print(&mut out, outcome) }
    })
    .await?;
    if as_json {
        write_json_line(&mut out, &json!(report))?;
    }
    out.flush()?;
    let (problems, cases) = (report.problems(), count(report.cases.len(), "case"));
    if problems > 0 {
        let problems = count(problems, "problem");
        return Err(CliError::Unhealthy(format!("{problems} in {cases}")));
    }
    let left_out = match report.left_out.len() {
        0 => String::new(),
        number => format!(
            "; {} for libraries of clients left out: they need the classes check.* in the worker",
            count(number, "case")
        ),
    };
    console.message(format_args!("{cases}, no problem{left_out}"));
    Ok(())
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    if let Some(command) = &args.worker {
        return check_worker(console, command, args.json).await;
    }
    let file = args.file.or(args.config).unwrap_or_else(|| PathBuf::from(FILE));
    let Some(LoadedConfig { file, config }) = executables::read(Some(&file), ConfigPurpose::Run)?
    else {
        return Ok(());
    };
    let (config, errors) = match config {
        Ok(config) => (config, Vec::new()),
        Err(errors) => (Config::default(), errors),
    };
    let classes = &config.classes;
    let of_classes =
        classes.iter().flat_map(|one| one.limits.iter().map(|limit| limit.of_class(&one.class)));
    let limits: Vec<Limit> = of_classes.chain(config.limits.iter().cloned()).collect();
    let mut out = console.results();
    if args.json {
        let document = json!({
            "file": file.display().to_string(),
            "classes": classes.iter().map(class).collect::<Vec<_>>(),
            "announcing": config.announcing().iter().map(announcing).collect::<Vec<_>>(),
            "schedules": config.schedules.iter().map(schedule).collect::<Vec<_>>(),
            "limits": limits.iter().map(|limit| json!(limit)).collect::<Vec<_>>(),
            "errors": errors.iter().map(error).collect::<Vec<_>>(),
        });
        write_json_line(&mut out, &document)?;
    } else if errors.is_empty() {
        let rows = classes.iter().map(row).chain(config.announcing().iter().map(announcing_row));
        let rows = rows.collect();
        writeln!(out, "{}", table(&["CLASS", "MODE", "TIMEOUT", "QUEUE", "PROGRAM"], &[], rows))?;
    }
    out.flush()?;
    if !errors.is_empty() {
        return Err(executables::config_error(&file, &errors));
    }
    let classes = match classes.len() {
        1 => "1 class".to_owned(),
        number => format!("{number} classes"),
    };
    let schedules = match config.schedules.len() {
        0 => String::new(),
        number => format!(", {}", count(number, "schedule")),
    };
    let limits = match limits.len() {
        0 => String::new(),
        number => format!(", {}", count(number, "limit")),
    };
    let classes = match config.announcing().len() {
        0 => classes,
        number => format!("{classes}, {} with classes of its own", count(number, "worker")),
    };
    console.message(format_args!("{}: {classes}{schedules}{limits}, no errors", file.display()));
    Ok(())
}

fn mode(executable: &Executable) -> &'static str {
    match executable.mode {
        ExecutableMode::Once(_) => "once",
        ExecutableMode::Lines(_) => "lines",
    }
}

fn worker(executable: &Executable) -> Option<&str> {
    match &executable.mode {
        ExecutableMode::Once(_) => None,
        ExecutableMode::Lines(worker) => Some(&worker.name),
    }
}

fn schedule(schedule: &Schedule) -> serde_json::Value {
    let definition = schedule.definition().ok();
    let definition = definition.and_then(|definition| definition.to_json().ok());
    let definition = definition.and_then(|json| json.decode::<serde_json::Value>().ok());
    json!({ "name": schedule.name(), "definition": definition })
}

fn row(executable: &Executable) -> Vec<String> {
    vec![
        summary(&executable.class, 40),
        mode(executable).to_owned(),
        executable.timeout.map_or_else(|| "none".to_owned(), span),
        summary(&executable.options().queue, 40),
        summary(&executable.program().path.display().to_string(), 100),
    ]
}

/// A worker whose classes are known when it starts.
fn announcing_row(worker: &Arc<Worker>) -> Vec<String> {
    vec![
        format!("announced by worker {}", summary(&worker.name, 40)),
        "lines".to_owned(),
        String::new(),
        String::new(),
        summary(&worker.program.path.display().to_string(), 100),
    ]
}

fn announcing(worker: &Arc<Worker>) -> serde_json::Value {
    json!({
        "worker": worker.name,
        "program": worker.program.path.display().to_string(),
        "arguments": worker.program.arguments,
        "folder": worker.program.folder.display().to_string(),
    })
}

fn class(executable: &Executable) -> serde_json::Value {
    json!({
        "class": executable.class,
        "mode": mode(executable),
        "worker": worker(executable),
        "program": executable.program().path.display().to_string(),
        "arguments": executable.program().arguments,
        "folder": executable.program().folder.display().to_string(),
        "timeout_secs": executable.timeout.map(|time| time.as_secs_f64()),
        "queue": executable.options().queue,
        "priority": executable.priority,
    })
}

fn error(error: &ConfigError) -> serde_json::Value {
    json!({ "line": error.line, "column": error.column, "message": error.message })
}
