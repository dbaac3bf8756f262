//! The first task: what is stored, what runs, and an engine for it.
//!
//! A task is a type; its fields are its parameters. The code is a function of it.
//! Whoever has a client creates tasks, whoever has an engine runs them; here it
//! is one program, with a database in memory. `SqliteStore::open("tasks.db")`
//! keeps tasks for the next start.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use task_engine::sqlite::SqliteStore;
use task_engine::{Client, Engine, Failure, Run, StopHandle, Task};

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Task for Greet {
    const CLASS: &'static str = "greet";
}

/// The state of the application is what `run` is for the code; here it is the
/// handle that stops the engine.
async fn greet(task: Greet, run: Run<StopHandle>) -> Result<(), Failure> {
    println!("Hello {}!", task.name);
    run.stop();
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
