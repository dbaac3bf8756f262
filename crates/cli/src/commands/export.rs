//! `task-engine export`.

use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use task_engine::TaskStatus;
use task_engine_core::display::count;
use task_engine_store::export::{ExportCounts, ExportFilter, ExportLine};

use crate::args::status_of;
use crate::console::Console;
use crate::error::CliError;
use crate::escape::escape;
use crate::json_output::write_json_line;

/// Write tasks, schedules and paused queues as lines of JSON
#[derive(Debug, Args)]
#[command(after_help = "\
All lines are of one snapshot. `task-engine import`
reads them, also into the other kind of database.

Running tasks are written as running. Import treats them as tasks of a dead
engine: the attempt ends with InstanceLost, and the retry rule of the class decides
what comes next. So stop the engines first; with --live, their tasks may run twice,
here and there.")]
pub(crate) struct Arguments {
    /// Only tasks in this status; can be repeated. `succeeded` means `stopped`
    #[arg(long, value_name = "STATUS", value_parser = status_of(&TaskStatus::ALL))]
    status: Vec<TaskStatus>,
    /// Export even while engines are alive
    #[arg(long)]
    live: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let engines = store.instances(None).await?;
    let alive: Vec<_> = engines.iter().filter(|engine| engine.is_alive()).collect();
    if let Some(first) = alive.first()
        && !args.live
    {
        return Err(CliError::Conflict(format!(
            "{} alive ({} on {}, process {}); stop it, so that no task runs twice, or pass --live",
            if alive.len() == 1 {
                "an engine is".to_owned()
            } else {
                format!("{} engines are", alive.len())
            },
            escape(&first.name),
            escape(&first.host),
            first.pid
        )));
    }
    let state = Arc::new(Mutex::new((ExportCounts::default(), None)));
    let skipped = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let state = state.clone();
        let skipped = skipped.clone();
        let mut out = BufWriter::new(io::stdout());
        Box::new(move |line: ExportLine| {
            let written = write(&mut out, &line);
            if let ExportLine::SkippedTask(one) = &line {
                skipped.lock().unwrap_or_else(PoisonError::into_inner).push(one.clone());
            }
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.0.count(&line);
            match written {
                Ok(()) => true,
                Err(error) => {
                    state.1 = Some(error);
                    false
                }
            }
        })
    };
    store.export(&ExportFilter { statuses: args.status }, sink).await?;
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = state.1.take() {
        return Err(error.into());
    }
    console.message(format_args!("Exported {} from {}.", content_text(state.0), store.location()));
    for one in skipped.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        console.message(format_args!("Left out task {}: {}.", one.id, escape(&one.reason)));
    }
    Ok(())
}

fn write(out: &mut impl Write, line: &ExportLine) -> io::Result<()> {
    write_json_line(out, line)?;
    if matches!(line, ExportLine::End(_)) { out.flush() } else { Ok(()) }
}

/// The content of a file, counted.
pub(super) fn content_text(end: ExportCounts) -> String {
    let many = |number: u64, what| count(usize::try_from(number).unwrap_or(usize::MAX), what);
    format!(
        "{}, {}, {}",
        many(end.tasks, "task"),
        many(end.schedules, "schedule"),
        many(end.paused_queues, "paused queue")
    )
}
