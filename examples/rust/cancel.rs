//! A long task reports its progress, and ends when it is cancelled.
//!
//! `cx.progress` and `cx.log` never wait. What they report is stored within half
//! a second, and the command line, the dashboard or a program like this one can read
//! it. Cancelling a running task sends a request to its code, on whichever engine it
//! runs, and the code cleans up. Blocking code checks `cx.is_cancelled()`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::core::progress::LogFilter;
use task_engine::core::task::TaskDetails;
use task_engine::{Context, Failure, StoreError, Task, TaskEngine, TaskId};

#[derive(Serialize, Deserialize, Task)]
struct Import {
    files: u32,
}

async fn import(task: Import, cx: Context<()>) -> Result<u32, Failure> {
    for file in 1..=task.files {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
            () = cx.cancelled() => {
                cx.log(format!("file {file} is skipped"));
                return Err(Failure::named("GaveUp", "asked to end"));
            }
        }
        cx.log(format!("file {file} is done"));
        cx.progress(100.0 * f64::from(file) / f64::from(task.files), format!("file {file}"));
    }
    Ok(task.files)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tasks = TaskEngine::connect("sqlite::memory:").await?;
    tasks.migrate().await?;
    let engine = tasks.engine(()).handle(import);
    let id = tasks.create(Import { files: 100_000 }).await?;
    let engine = engine.start().await?;

    let progress = |task: &TaskDetails| task.executions.first()?.progress.clone();
    let task = until(&tasks, id, |task| progress(task).is_some()).await?;
    println!("progress: {}", progress(&task).map_or(String::new(), |p| p.message));
    println!("cancel: {:?}", tasks.cancel(id).await?);
    let task = until(&tasks, id, |task| task.row.error.is_some()).await?;
    println!("{}: {}", task.row.status, task.row.error.map_or(String::new(), |e| e.message));
    let last = LogFilter { newest: true, limit: 1, ..LogFilter::default() };
    for line in tasks.store().logs(id, &last).await? {
        println!("last log line: {}", line.message);
    }

    engine.stop();
    engine.join().await?;
    Ok(())
}

/// Polls until the task matches.
async fn until(
    tasks: &TaskEngine,
    id: TaskId,
    wanted: impl Fn(&TaskDetails) -> bool,
) -> Result<TaskDetails, StoreError> {
    loop {
        match tasks.get(id).await? {
            Some(task) if wanted(&task) => return Ok(task),
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
