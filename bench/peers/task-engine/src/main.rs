//! Task Engine: `preload COUNT` or `work COUNT SETTINGS`.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use task_engine::postgres::PgStore;
use task_engine::{TaskEngine, Engine, Failure, NewTask, Context, Task};

/// Jobs are given in pieces of this size, by every system.
const PIECE: usize = 10_000;

#[derive(Deserialize)]
struct Settings {
    workers: u16,
}

#[derive(Deserialize, Serialize)]
struct NoOp {
    id: u64,
}

impl Task for NoOp {
    const CLASS: &'static str = "no_op";
}

struct Handled {
    so_far: AtomicU64,
    all: u64,
}

/// Says nothing before the last task: a line a task would measure the pipe.
async fn no_op(task: NoOp, cx: Context<Handled>) -> Result<(), Failure> {
    std::hint::black_box(task.id);
    if cx.state().so_far.fetch_add(1, Ordering::Relaxed) + 1 == cx.state().all {
        println!("handled");
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().ok_or("preload or work?")?;
    let count: u64 = arguments.next().ok_or("how many?")?.parse()?;
    let store = PgStore::connect(&std::env::var("DATABASE_URL")?).await?;
    let handled = Handled { so_far: AtomicU64::new(0), all: count };
    let engine = TaskEngine::new(store.clone()).engine(handled).handle(no_op);
    match command.as_str() {
        "preload" => {
            engine.migrate().await?;
            let tasks: Vec<_> =
                (0..count).map(|id| NewTask::of(&NoOp { id })).collect::<Result<_, _>>()?;
            let client = TaskEngine::new(store);
            for piece in tasks.chunks(PIECE) {
                client.create_many(piece).await?;
            }
        }
        "work" => {
            let settings: Settings =
                serde_json::from_str(&arguments.next().ok_or("which settings?")?)?;
            engine.workers(settings.workers).run().await?;
        }
        other => return Err(format!("preload or work, not {other}").into()),
    }
    Ok(())
}
