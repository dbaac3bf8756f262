//! `task-engine check`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use task_engine::model::words::span;

use crate::console::Console;
use crate::escape::summary;
use crate::executables::{self, Executable, FILE, Mistake, Mode, Purpose, Read};
use crate::exit::Fault;
use crate::json_output::write_json_line;
use crate::table::table;

/// Check the file task-engine.toml, without a database
///
/// Prints the classes and the programs that were found for them. Every mistake is
/// told with its line and column (exit code 2).
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file [default: task-engine.toml]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The same, as for `start`
    #[arg(long, value_name = "FILE", conflicts_with = "file", hide = true)]
    config: Option<PathBuf>,
    /// One JSON document: {"file", "classes": […], "mistakes": [{"line",
    /// "column", "message"}]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(console: &Console, args: Arguments) -> Result<(), Fault> {
    let file = args.file.or(args.config).unwrap_or_else(|| PathBuf::from(FILE));
    let Some(Read { file, executables }) = executables::read(Some(&file), Purpose::Run)? else {
        return Ok(());
    };
    let (classes, mistakes) = match executables {
        Ok(classes) => (classes, Vec::new()),
        Err(mistakes) => (Vec::new(), mistakes),
    };
    let mut out = console.results();
    if args.json {
        let document = json!({
            "file": file.display().to_string(),
            "classes": classes.iter().map(class).collect::<Vec<_>>(),
            "mistakes": mistakes.iter().map(mistake).collect::<Vec<_>>(),
        });
        write_json_line(&mut out, &document)?;
    } else if mistakes.is_empty() {
        let rows = classes.iter().map(row).collect();
        writeln!(out, "{}", table(&["CLASS", "MODE", "TIMEOUT", "QUEUE", "PROGRAM"], &[], rows))?;
    }
    out.flush()?;
    if !mistakes.is_empty() {
        return Err(executables::complaint(&file, &mistakes));
    }
    let number = if classes.len() == 1 {
        "1 class".to_owned()
    } else {
        format!("{} classes", classes.len())
    };
    console.say(format_args!("{}: {number}, no mistakes", file.display()));
    Ok(())
}

fn mode(executable: &Executable) -> &'static str {
    match executable.mode {
        Mode::Once => "once",
        Mode::Lines { .. } => "lines",
    }
}

fn row(executable: &Executable) -> Vec<String> {
    vec![
        summary(&executable.class, 40),
        mode(executable).to_owned(),
        executable.timeout.map_or_else(|| "none".to_owned(), span),
        summary(&executable.rules().queue, 40),
        summary(&executable.program.display().to_string(), 100),
    ]
}

fn class(executable: &Executable) -> serde_json::Value {
    json!({
        "class": executable.class,
        "mode": mode(executable),
        "program": executable.program.display().to_string(),
        "arguments": executable.arguments,
        "folder": executable.folder.display().to_string(),
        "timeout_secs": executable.timeout.map(|time| time.as_secs_f64()),
        "queue": executable.rules().queue,
        "priority": executable.priority,
    })
}

fn mistake(mistake: &Mistake) -> serde_json::Value {
    json!({ "line": mistake.line, "column": mistake.column, "message": mistake.message })
}
