//! Schedules: declared in code, stored in the database, fired once in the whole
//! cluster however many engines declare them.
//!
//! A cron expression is evaluated in a time zone, with its clock changes. A change by
//! an operator (`task-engine schedules`) stays until the declaration in the code
//! changes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::{Context, Failure, Missed, Overlap, Schedule, StopHandle, Task, TaskEngine};

#[derive(Serialize, Deserialize, Task)]
struct Measure {
    sensor: String,
}

#[derive(Default)]
struct App {
    measured: AtomicU32,
    stop: StopHandle,
}

async fn measure(task: Measure, cx: Context<App>) -> Result<(), Failure> {
    let count = cx.state().measured.fetch_add(1, Ordering::Relaxed) + 1;
    println!("measurement {count} of {}", task.sensor);
    if count == 3 {
        cx.state().stop.stop();
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tasks = TaskEngine::connect("sqlite::memory:").await?;
    tasks.migrate().await?;
    let app = App::default();
    let stop = app.stop.clone();
    let every_second = Schedule::every("outside", Duration::from_secs(1))
        .task(&Measure { sensor: "outside".into() })
        // Skip a slot while the previous task has not ended.
        .overlap(Overlap::Skip);
    let at_night = Schedule::cron("inside", "0 3 * * *")
        .time_zone("Europe/Paris")
        .task(&Measure { sensor: "inside".into() })
        // Do not make up for a slot that passed while no engine ran.
        .missed(Missed::Skip);
    let engine = tasks
        .engine(app)
        .stopped_by(stop)
        .schedule(every_second)
        .schedule(at_night)
        .handle(measure);
    engine.run().await?;

    for schedule in tasks.store().schedules(None, 10).await? {
        let next = schedule.state.next_at.map(|time| time.to_string());
        println!("{}: next at {}", schedule.name, next.as_deref().unwrap_or("never"));
    }
    Ok(())
}
