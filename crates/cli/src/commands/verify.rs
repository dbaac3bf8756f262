//! `task-engine verify`.

use std::io::Write;

use clap::Args;
use task_engine_core::display::count;

use crate::console::Console;
use crate::error::CliError;
use crate::escape::escape;
use crate::json_output::write_json_line;

/// Check that no task is lost or stored twice (reads everything)
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let violations = store.verify().await?;
    let checked = store.inventory().await?;
    let mut out = console.results();
    if args.json {
        let report = serde_json::json!({
            "database": store.location(),
            "checked": checked,
            "violations": violations,
        });
        write_json_line(&mut out, &report)?;
    } else {
        for violation in &violations {
            writeln!(out, "{}", escape(&violation.message))?;
        }
    }
    out.flush()?;
    let many = |number: i64, what| count(usize::try_from(number).unwrap_or(0), what);
    let scope = format!(
        "{} ({} waiting, {} running), {}, {}, {}, {}",
        many(checked.tasks, "task"),
        checked.waiting,
        checked.running,
        many(checked.executions, "execution"),
        many(checked.steps, "step"),
        many(checked.signals, "signal"),
        many(checked.schedules, "schedule")
    );
    if violations.is_empty() {
        console
            .message(format_args!("{}: every invariant holds; checked {scope}", store.location()));
        return Ok(());
    }
    Err(CliError::Unhealthy(format!(
        "{}: {} of an invariant; checked {scope}",
        store.location(),
        count(violations.len(), "violation")
    )))
}
