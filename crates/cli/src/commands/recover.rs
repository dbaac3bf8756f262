//! `task-engine recover`.

use std::io::Write;

use clap::Args;
use task_engine::model::instance::{Admission, admission};
use task_engine::model::store::{TakeBack, TakenBack};
use task_engine::model::words::{count, fate, relative, span};
use task_engine::model::{InstanceRow, Next};
use task_engine::{Recovery, Store, TaskStatus, process_is_gone};

use crate::console::{Console, now};
use crate::database::Access;
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
    let lives = store.instances(Some(&args.name)).await?;
    let Some(last) = lives.first() else {
        return Err(unknown(&*store, &args.name).await?);
    };
    let name = escape(&args.name);
    let (mut recovered, mut dead, mut alive) = (Vec::new(), 0, None);
    for life in &lives {
        let gone = process_is_gone(life);
        match admission(life, gone, Recovery::Auto) {
            Admission::Recover => {
                store.declare_lost(life.id, gone).await?;
                recovered.extend(store.take_back(TakeBack::Lost(life.id)).await?);
                dead += 1;
            }
            Admission::Wait(_) | Admission::Taken => alive = Some(life),
            Admission::Free | Admission::LeftTasks => {}
        }
    }
    if let (Some(life), 0) = (alive, dead) {
        return Err(is_alive(life));
    }
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

fn is_alive(life: &InstanceRow) -> Fault {
    let patience = life.lease.saturating_sub(life.heartbeat_age);
    Fault::Conflict(format!(
        "the engine {} is alive: process {} on {}, last heard of {} ago. If its machine is gone, it counts as dead in {}; try again then",
        escape(&life.name),
        life.pid,
        escape(&life.host),
        span(life.heartbeat_age),
        span(patience)
    ))
}

async fn unknown(store: &dyn Store, name: &str) -> Result<Fault, Fault> {
    let mut names: Vec<_> =
        store.instances(None).await?.into_iter().map(|engine| engine.name).collect();
    names.sort();
    names.dedup();
    let known = if names.is_empty() {
        "none has ever run here".to_owned()
    } else {
        format!("there are {}", names.join(", "))
    };
    Ok(Fault::NotFound(format!("no engine is known by the name {name}; {known}")))
}
