//! The first task: its stored part, its code, and an engine.
//!
//! A task is a type; its fields are its parameters. The code is a function that takes
//! it. `TaskEngine` creates tasks and makes engines that run them. This program uses a
//! database in memory; with `sqlite:task-engine.db` tasks are kept for the next start.

use serde::{Deserialize, Serialize};
use task_engine::{Context, Failure, StopHandle, Task, TaskEngine};

#[derive(Serialize, Deserialize, Task)]
struct Greet {
    name: String,
}

/// The state of the application is the handle that stops the engine.
async fn greet(task: Greet, cx: Context<StopHandle>) -> Result<(), Failure> {
    println!("Hello {}!", task.name);
    cx.state().stop();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tasks = TaskEngine::connect("sqlite::memory:").await?;
    tasks.migrate().await?;
    let stop = StopHandle::new();
    let engine = tasks.engine(stop.clone()).stopped_by(stop).handle(greet);
    tasks.create(Greet { name: "World".into() }).await?;
    engine.run().await?;
    Ok(())
}
