//! `task-engine recover`.

use std::io::Write;

use clap::Args;
use task_engine::model::recovery::{RecoverError, Recovered, recover};
use task_engine::model::words::{count, fate, relative};
use task_engine::process_is_gone;

use crate::console::{Console, now};
use crate::database::Access;
use crate::deed::Deed;
use crate::escape::escape;
use crate::exit::Fault;

/// Recover the tasks that a dead engine left
///
/// Each of its attempts ends as a failure (`InstanceLost`), and the retry rule
/// of its class decides what comes next. An engine that is alive is left alone:
/// it counts as dead when its process is gone from this machine, or when it has
/// not been heard of for the time it was started with (--dead-after, 30 s).
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The name of the engine
    #[arg(value_name = "NAME")]
    name: String,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), Fault> {
    let store = console.database()?.open(Access::MustExist).await?;
    let work = async { recover(&*store, &args.name, process_is_gone).await.map_err(fault) };
    let became = |done: &Recovered| (format!("{} recovered", count(done.tasks.len(), "task")), 1);
    let deed = Deed::new("instances.recover", args.name.as_str());
    let recovered = deed.perform(&*store, work, became).await?;
    let Recovered { dead, tasks: recovered, last } = recovered;
    let name = escape(&args.name);
    let mut out = console.results();
    for task in &recovered {
        writeln!(out, "{} ({}) {}", task.id, escape(&task.class), fate(task))?;
    }
    out.flush()?;
    if !recovered.is_empty() {
        console.say(format_args!("Recovered {} of {name}.", count(recovered.len(), "task")));
    } else if dead > 0 {
        console.say(format_args!("{name} is declared lost; it had left no tasks."));
    } else {
        let ended = last.stopped_at.or(last.lost_at);
        let ended = ended.map_or_else(String::new, |at| {
            format!(" (it ended {})", relative(at, now().timestamp()))
        });
        console.say(format_args!("Nothing to recover: {name} left no tasks{ended}."));
    }
    Ok(())
}

fn fault(error: RecoverError) -> Fault {
    let words = escape(&error.to_string()).into_owned();
    match error {
        RecoverError::Unknown { .. } => Fault::NotFound(words),
        RecoverError::Alive(_) => Fault::Conflict(words),
        RecoverError::Store(error) => error.into(),
        _ => Fault::Failure(words),
    }
}
