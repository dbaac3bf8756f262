//! graphile_worker (Rust): `preload COUNT` or `work COUNT SETTINGS`.

use std::error::Error;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext,
    WorkerOptions,
};
use serde::{Deserialize, Serialize};

/// Jobs are given in pieces of this size, by every system.
const PIECE: u64 = 10_000;

static HANDLED: AtomicU64 = AtomicU64::new(0);
static COUNT: OnceLock<u64> = OnceLock::new();

#[derive(Deserialize)]
struct Settings {
    concurrency: usize,
    connections: u32,
    local_queue: usize,
    local_queues: usize,
    complete_delay_ms: u64,
}

#[derive(Deserialize, Serialize)]
struct NoOp {
    id: u64,
}

impl TaskHandler for NoOp {
    const IDENTIFIER: &'static str = "no_op";

    /// Says nothing before the last job: a line a job would measure the pipe.
    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        std::hint::black_box(self.id);
        if HANDLED.fetch_add(1, Ordering::Relaxed) + 1 == *COUNT.wait() {
            println!("handled");
        }
        Ok::<(), String>(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().ok_or("preload or work?")?;
    let count: u64 = arguments.next().ok_or("how many?")?.parse()?;
    let url = std::env::var("DATABASE_URL")?;
    match command.as_str() {
        "preload" => preload(&url, count).await,
        "work" => {
            COUNT.get_or_init(|| count);
            work(&url, serde_json::from_str(&arguments.next().ok_or("which settings?")?)?).await
        }
        other => Err(format!("preload or work, not {other}").into()),
    }
}

async fn preload(url: &str, count: u64) -> Result<(), Box<dyn Error>> {
    let worker = WorkerOptions::default().database_url(url).define_job::<NoOp>().init().await?;
    let utils = worker.create_utils();
    let jobs: Vec<_> = (0..count)
        .map(|id| RawJobSpec {
            identifier: NoOp::IDENTIFIER.to_owned(),
            payload: serde_json::json!({ "id": id }),
            spec: JobSpec::default(),
        })
        .collect();
    for piece in jobs.chunks(PIECE as usize) {
        utils.add_raw_jobs(piece).await?;
    }
    Ok(())
}

async fn work(url: &str, settings: Settings) -> Result<(), Box<dyn Error>> {
    let queue = LocalQueueConfig::default()
        .with_size(settings.local_queue)
        .with_queue_count(settings.local_queues);
    let worker = WorkerOptions::default()
        .database_url(url)
        .max_pg_conn(settings.connections)
        .concurrency(settings.concurrency)
        .local_queue(queue)
        .complete_job_batch_delay(Duration::from_millis(settings.complete_delay_ms))
        .fail_job_batch_delay(Duration::from_millis(settings.complete_delay_ms))
        .define_job::<NoOp>()
        .init()
        .await?;
    worker.run().await?;
    Ok(())
}
