//! The first task: its stored part, its code, and an engine.
//!
//! A task is a type; its fields are its parameters. The code is a function that takes
//! it. A client creates tasks and an engine runs them; this program has both, with a
//! database in memory. `SqliteStore::open("tasks.db")` keeps tasks for the next start.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use task_engine::sqlite::SqliteStore;
use task_engine::{Client, Context, Engine, Failure, StopHandle, Task};

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Task for Greet {
    const CLASS: &'static str = "greet";
}

/// `run` dereferences to the state of the application; here it is the handle that
/// stops the engine.
async fn greet(task: Greet, cx: Context<StopHandle>) -> Result<(), Failure> {
    println!("Hello {}!", task.name);
    cx.state().stop();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteStore::open_in_memory()?);
    let stop = StopHandle::new();
    let engine = Engine::new(store.clone(), stop.clone()).stopped_by(stop).handle(greet);
    engine.migrate().await?;
    Client::new(store).create(Greet { name: "World".into() }).await?;
    engine.run().await?;
    Ok(())
}
