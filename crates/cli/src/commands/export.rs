//! `task-engine export`.

use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use task_engine::TaskStatus;
use task_engine_core::display::count;
use task_engine_store::export::{End, ExportFilter, Line};

use crate::choice::status_of;
use crate::console::Console;
use crate::database::Access;
use crate::escape::escape;
use crate::exit::Fault;
use crate::json_output::write_json_line;

/// Write tasks, schedules and paused queues as lines of JSON
#[derive(Debug, Args)]
#[command(after_help = "\
The lines are one snapshot, whatever happens meanwhile. `task-engine import`
reads them, also into the other kind of database.

Tasks that run are written as running. Import treats them as those of an engine
that died: the attempt ends with InstanceLost, and the rule of the class decides
what comes next. So stop the engines first; with --live, their tasks may be done
here and once more there.")]
pub(crate) struct Arguments {
    /// Only tasks in this status; can be repeated. `succeeded` means `stopped`
    #[arg(long, value_name = "STATUS", value_parser = status_of(&TaskStatus::ALL))]
    status: Vec<TaskStatus>,
    /// Also while engines are alive
    #[arg(long)]
    live: bool,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), Fault> {
    let store = console.database()?.open(Access::MustExist).await?;
    let engines = store.instances(None).await?;
    let alive: Vec<_> = engines.iter().filter(|engine| engine.is_alive()).collect();
    if let Some(first) = alive.first()
        && !args.live
    {
        return Err(Fault::Conflict(format!(
            "{} alive ({} on {}, process {}); stop it, so that no task is done here and there, or add --live",
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
    let state = Arc::new(Mutex::new((End::default(), None)));
    let skipped = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let state = state.clone();
        let skipped = skipped.clone();
        let mut out = BufWriter::new(io::stdout());
        Box::new(move |line: Line| {
            let written = write(&mut out, &line);
            if let Line::SkippedTask(one) = &line {
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
    console.say(format_args!("Exported {} from {}.", words(state.0), store.location()));
    for one in skipped.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        console.say(format_args!("Left out task {}: {}.", one.id, escape(&one.reason)));
    }
    Ok(())
}

fn write(out: &mut impl Write, line: &Line) -> io::Result<()> {
    write_json_line(out, line)?;
    if matches!(line, Line::End(_)) { out.flush() } else { Ok(()) }
}

/// What a file holds.
pub(super) fn words(end: End) -> String {
    let many = |number: u64, what| count(usize::try_from(number).unwrap_or(usize::MAX), what);
    format!(
        "{}, {}, {}",
        many(end.tasks, "task"),
        many(end.schedules, "schedule"),
        many(end.paused_queues, "paused queue")
    )
}
