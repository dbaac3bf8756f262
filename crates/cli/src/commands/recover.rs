//! `task-engine recover`.

use std::io::Write;
use std::sync::Arc;

use clap::Args;
use task_engine::Store;
use task_engine_core::display::{count, next_state_text, relative, span};
use task_engine_core::recovery::ReclaimedAttempt;
use task_engine_operations::{OperationError, OperationOutcome};

use crate::console::{Console, now, quoted};
use crate::error::CliError;
use crate::escape::{escape, summary};
use crate::operations::operator;
use crate::table::table;

/// Recover the tasks that a dead engine left, or list dead engines
///
/// Each of its attempts ends as a failure (`InstanceLost`), and the retry rule of its class decides
/// what comes next. An engine that is alive is left alone. It counts as dead when its process is
/// gone from this machine, or when it has sent no heartbeat for the time it was started with
/// (--dead-after, 30 s).
///
/// Live engines do this by themselves, unless they were started with
/// --recovery manual.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The name of the engine; without it, dead engines are listed with the tasks
    /// that they hold
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    match args.name {
        Some(name) => recover_one(console, &store, &name).await,
        None => list_dead(console, &*store).await,
    }
}

async fn recover_one(
    console: &Console,
    store: &Arc<dyn Store>,
    name: &str,
) -> Result<(), CliError> {
    let report = match operator(store).recover(name).await {
        Err(OperationError::Partial { report, left, cause }) => {
            print(console, &report.recovered)?;
            return Err(OperationError::Partial { report, left, cause }.into());
        }
        result => result?,
    };
    print(console, &report.recovered)?;
    let shown = escape(name);
    if !report.recovered.is_empty() {
        let number = count(report.recovered.len(), "task");
        console.message(format_args!("Recovered {number} of {shown}."));
    } else if report.has(OperationOutcome::DeclaredLost) {
        console.message(format_args!("{shown} was declared lost; it held no tasks."));
    } else {
        let instances = store.instances(Some(name)).await?;
        let ended = instances.first().and_then(|last| last.stopped_at.or(last.lost_at));
        let ended = ended.map_or_else(String::new, |at| {
            format!(" (it ended {})", relative(at, now().timestamp()))
        });
        console.message(format_args!("Nothing to recover: {shown} holds no tasks{ended}."));
    }
    Ok(())
}

fn print(console: &Console, recovered: &[ReclaimedAttempt]) -> Result<(), CliError> {
    let mut out = console.results();
    for task in recovered {
        writeln!(out, "{} ({}) {}", task.id, escape(&task.class), next_state_text(task))?;
    }
    Ok(out.flush()?)
}

/// No more tasks of one engine than these are listed.
const TASKS_SHOWN: usize = 20;

async fn list_dead(console: &Console, store: &dyn Store) -> Result<(), CliError> {
    let mut engines = store.instances(None).await?;
    engines.retain(|engine| !engine.is_alive() && engine.held > 0);
    if engines.is_empty() {
        console.message("No dead engine holds a task.");
        return Ok(());
    }
    let mut rows = Vec::new();
    for engine in &engines {
        let held = store.held_attempts(engine.id).await?;
        let more = held.len().saturating_sub(TASKS_SHOWN);
        let shown = held.iter().take(TASKS_SHOWN);
        let mut tasks: Vec<_> =
            shown.map(|task| format!("{} ({})", task.id, summary(&task.class, 40))).collect();
        if more > 0 {
            tasks.push(format!("and {more} more"));
        }
        rows.push(vec![
            summary(&engine.name, 40),
            engine.state().label().to_owned(),
            summary(&engine.host, 40),
            engine.pid.to_string(),
            format!("{} ago", span(engine.heartbeat_age)),
            tasks.join("\n"),
        ]);
    }
    let mut out = console.results();
    writeln!(
        out,
        "{}",
        table(&["NAME", "STATE", "HOST", "PID", "HEARTBEAT", "TASKS"], &[3], rows)
    )?;
    out.flush()?;
    let names: std::collections::BTreeSet<_> = engines.iter().map(|engine| &engine.name).collect();
    for name in names {
        let command = console.command(&format!("recover {}", quoted(name)));
        console.message(format_args!("Recover the tasks of {}: {command}", escape(name)));
    }
    Ok(())
}
