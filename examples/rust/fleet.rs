//! A fleet: three engines share the tasks of one PostgreSQL, and each task runs on
//! one of them.
//!
//! Usually each engine is a process on its own machine; they share only the
//! database. If one of them dies, the others recover its tasks. Names are optional;
//! here they show which engine ran which task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::{Context, Failure, NewTask, StopHandle, Task, TaskEngine};

const TASKS: usize = 300;

#[derive(Serialize, Deserialize, Task)]
struct Square {
    number: u64,
}

#[derive(Default)]
struct Progress {
    done: AtomicUsize,
    stop: StopHandle,
}

async fn square(task: Square, cx: Context<Arc<Progress>>) -> Result<u64, Failure> {
    tokio::time::sleep(Duration::from_millis(5)).await;
    if cx.state().done.fetch_add(1, Ordering::Relaxed) + 1 == TASKS {
        cx.state().stop.stop();
    }
    Ok(task.number * task.number)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a PostgreSQL")?;
    let tasks = TaskEngine::connect(&url).await?;
    tasks.migrate().await?;
    let squares: Result<Vec<NewTask>, _> =
        (1..=TASKS as u64).map(|number| NewTask::of(&Square { number })).collect();
    let ids = tasks.create_many(&squares?).await?;

    let progress = Arc::new(Progress::default());
    let mut fleet = Vec::new();
    for name in ["north", "south", "west"] {
        let engine = TaskEngine::connect(&url)
            .await?
            .engine(progress.clone())
            .instance(name)
            .workers(4)
            .stopped_by(progress.stop.clone())
            .handle(square);
        fleet.push(tokio::spawn(engine.run()));
    }
    for engine in fleet {
        engine.await??;
    }

    let mut by_engine = BTreeMap::<String, usize>::new();
    for id in ids {
        let task = tasks.get(id).await?.ok_or("a task is missing")?;
        assert_eq!(task.executions.len(), 1, "each has run once");
        *by_engine.entry(task.row.instance.unwrap_or_default()).or_default() += 1;
    }
    println!("{} tasks: {by_engine:?}", by_engine.values().sum::<usize>());
    Ok(())
}
