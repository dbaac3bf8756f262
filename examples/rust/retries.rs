//! Retries and errors: how to decide whether and when a task is retried.
//!
//! The class has a rule. An error can override it: no retry, or a retry after its own
//! time. A panic is an error like any other. Every attempt is recorded with its
//! error, and the last one decides the status of the task.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::{Context, Failure, StopHandle, Task, TaskEngine};

/// At most three more times, a tenth of a second apart. The default is ten retries over
/// seventeen hours.
#[derive(Serialize, Deserialize, Task)]
#[task(retries = 3, backoff = "100ms")]
struct Download {
    url: String,
}

/// The number of tasks that have not ended.
struct App {
    open: AtomicUsize,
    stop: StopHandle,
}

async fn download(task: Download, cx: Context<App>) -> Result<u64, Failure> {
    let bytes = fetch(&task.url, &cx);
    let is_last = bytes.is_ok() || task.url == "/gone" || cx.retry_number() == 3;
    if is_last && cx.state().open.fetch_sub(1, Ordering::Relaxed) == 1 {
        cx.state().stop.stop();
    }
    bytes
}

fn fetch(url: &str, cx: &Context<App>) -> Result<u64, Failure> {
    match url {
        // A retry would not help.
        "/gone" => Err(Failure::no_retry("410 Gone")),
        // The server says when to retry.
        "/busy" if cx.retry_number() == 0 => {
            Err(Failure::retry_after("503 Service Unavailable", Duration::from_millis(10)))
        }
        // Any error type works: it is recorded with its type, and the rule decides.
        "/broken" => Ok("many".parse::<u64>()?),
        "/flaky" if cx.retry_number() < 2 => panic!("not now"),
        _ => Ok(42),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tasks = TaskEngine::connect("sqlite::memory:").await?;
    tasks.migrate().await?;
    let urls = ["/fine", "/gone", "/busy", "/broken", "/flaky"];
    let (open, stop) = (AtomicUsize::new(urls.len()), StopHandle::new());
    let engine = tasks.engine(App { open, stop: stop.clone() }).stopped_by(stop).handle(download);
    let mut ids = Vec::new();
    for url in urls {
        ids.push(tasks.create(Download { url: url.into() }).await?);
    }
    engine.run().await?;

    for (url, id) in urls.into_iter().zip(ids) {
        let Some(task) = tasks.get(id).await? else { continue };
        println!("{url}: {} after {} attempts", task.row.status, task.executions.len());
        for error in task.executions.iter().filter_map(|attempt| attempt.error.as_ref()) {
            println!("  {error}");
        }
    }
    Ok(())
}
