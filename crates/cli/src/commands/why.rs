//! `task-engine why`.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use task_engine::model::TaskDetails;
use task_engine::model::watch::MovingLook;
use task_engine::model::why::{Facts, RATE_OVER, Reason, ahead_look, reasons};
use task_engine::{Store, TaskId, TaskStatus};

use super::show::no_such_task;
use crate::console::{Console, now};
use crate::database::Access;
use crate::escape::escape;
use crate::exit::Fault;
use crate::reasons::words;

/// Say why a task does not run, or what it does if it runs
///
/// The reason to look at first comes first. The exit code is 0 whatever the
/// reason, and 3 if there is no such task.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The task, by its id
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    id: TaskId,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Answer<'a> {
    id: TaskId,
    status: TaskStatus,
    task_class: &'a str,
    queue: &'a str,
    priority: i32,
    /// The time that this was so, by the database's clock.
    at: Timestamp,
    reasons: &'a [Reason],
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), Fault> {
    let store = console.database()?.open(Access::MustExist).await?;
    let (task, at, reasons) = ask(&*store, args.id).await?;
    let row = &task.row;
    let mut out = console.results();
    if args.json {
        let answer = Answer {
            id: row.id,
            status: row.status,
            task_class: &row.task_class,
            queue: &row.queue,
            priority: row.priority,
            at,
            reasons: &reasons,
        };
        serde_json::to_writer(&mut out, &answer).map_err(io::Error::from)?;
        writeln!(out)?;
        return Ok(out.flush()?);
    }
    let zone = now().time_zone().clone();
    writeln!(out, "Task {}: {}, {}", row.id, escape(&row.task_class), row.status)?;
    for (at_place, reason) in reasons.iter().enumerate() {
        writeln!(out, "  {}. {}", at_place + 1, words(reason, at, &zone))?;
    }
    Ok(out.flush()?)
}

/// A task that goes on while it is asked about is asked about again.
const ASKED_MAX: usize = 3;

/// The facts, one bounded question each, and what follows from them.
async fn ask(
    store: &dyn Store,
    id: TaskId,
) -> Result<(TaskDetails, Timestamp, Vec<Reason>), Fault> {
    let mut asked = 0;
    loop {
        let Some(task) = store.task(id).await? else {
            return Err(no_such_task(id, store));
        };
        let engines = store.instances(None).await?;
        let paused = store.paused_queues().await?;
        let moving = store.moving(MovingLook { per_lane: 1, soon: Duration::ZERO }).await?;
        let (mut ahead, mut endings) = (None, Vec::new());
        if task.row.status == TaskStatus::Waiting {
            ahead = store.ahead(&ahead_look(&task, &engines)).await?;
            asked += 1;
            if ahead.is_none() && asked < ASKED_MAX {
                continue;
            }
            let mut look = moving.look_for_endings();
            look.age_max = RATE_OVER;
            endings = store.endings(&look).await?;
        }
        let facts = Facts {
            task: &task,
            moving: &moving,
            engines: &engines,
            paused: paused.iter().find(|paused| paused.queue == task.row.queue),
            ahead: ahead.as_ref(),
            endings: &endings,
        };
        let reasons = reasons(&facts);
        return Ok((task, moving.now, reasons));
    }
}
