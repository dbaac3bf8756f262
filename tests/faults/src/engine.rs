//! The engine of `fault-engine`: a class whose tasks act by their parameters, and the classes
//! of durable tasks.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use task_engine::postgres::PgStore;
use task_engine::sqlite::SqliteStore;
use task_engine::{
    Context, Failure, Recovery, Schedule, StopHandle, Store, StoreError, Task as _, TaskEngine,
};

use crate::commands::{Action, CLASS, EngineConfig, TaskSpec, options};
use crate::durable::{Part, Process, part, process};
use crate::witness::{append_line, now_us};

/// Opens `postgres://…`, or else a file.
pub async fn open(database: &str) -> Result<Arc<dyn Store>, StoreError> {
    if database.starts_with("postgres://") {
        return Ok(Arc::new(PgStore::connect(database).await?));
    }
    Ok(Arc::new(SqliteStore::open(database)?))
}

/// Runs until SIGTERM.
pub async fn run(config: EngineConfig) -> Result<(), String> {
    let stop = StopHandle::new();
    stop.stop_on_signals().map_err(|e| e.to_string())?;
    let store = open(&config.database).await.map_err(|e| e.to_string())?;
    let witness: Arc<Path> = config.witness.into();
    let mut engine = TaskEngine::new(store)
        .engine(witness)
        .instance(config.instance)
        .recovery(Recovery::Auto)
        .heartbeat(ms(config.heartbeat_ms), ms(config.lease_ms))
        .poll(ms(config.poll_ms))
        .retention(None)
        .handle_class(CLASS, options(), perform)
        .handle_class(Process::CLASS, options(), process)
        .handle_class(Part::CLASS, options(), part)
        .stopped_by(stop);
    let shared = if config.queues.is_empty() { config.workers } else { 0 };
    engine = engine.workers(shared);
    for (queue, workers) in config.queues {
        engine = engine.queue(queue, workers);
    }
    if let Some(name) = config.schedule {
        let task = TaskSpec::work(1).task();
        engine = engine.schedule(Schedule::every(name, Duration::from_secs(1)).new_task(task));
    }
    let stopped = engine.run_until(std::future::pending()).await.map_err(|e| e.to_string())?;
    if stopped.unrecorded > 0 { Err(format!("{stopped:?}")) } else { Ok(()) }
}

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

async fn perform(spec: TaskSpec, cx: Context<Arc<Path>>) -> Result<i32, Failure> {
    let file: Arc<Path> = cx.state().clone();
    let (id, attempt) = (cx.task_id(), cx.attempt());
    let line = |word| format!("{word} {id} {attempt} {} {}\n", std::process::id(), now_us());
    append_line(&file, &line("begin"))?;
    let action =
        if spec.attempts.is_none_or(|last| attempt <= last) { spec.action } else { Action::Work };
    match action {
        Action::Block => std::thread::sleep(ms(spec.ms)),
        Action::Spin => spin(ms(spec.ms)),
        Action::IgnoreCancel => ignore_cancel(ms(spec.ms)).await,
        Action::Abort => std::process::abort(),
        Action::Exit => std::process::exit(0),
        Action::OverflowStack => drop(overflow_stack(1)),
        Action::ExhaustMemory => exhaust_memory(),
        Action::Panic => panic!("as it was asked to"),
        Action::PanicTwice => {
            let _guard = PanicOnDrop;
            tokio::time::sleep(ms(spec.ms)).await;
            return Err(Failure::named("Asked", "and a panic when it is dropped"));
        }
        Action::Work | Action::Fail | Action::AbortAfter => tokio::time::sleep(ms(spec.ms)).await,
    }
    append_line(&file, &line("end"))?;
    match action {
        Action::AbortAfter => std::process::abort(),
        Action::Fail => Err(Failure::named("Asked", "failed as it was asked to")),
        _ => Ok(attempt),
    }
}

struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("dropped, as it was asked to");
    }
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Sleeps in short steps and ignores cancellation.
async fn ignore_cancel(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::thread::sleep(Duration::from_millis(20));
        tokio::task::yield_now().await;
    }
}

fn overflow_stack(depth: u64) -> u64 {
    let here = std::hint::black_box([depth; 1000]);
    if depth == u64::MAX { 0 } else { overflow_stack(depth + 1).wrapping_add(here[7]) }
}

fn exhaust_memory() {
    let mut allocated: Vec<Vec<u8>> = Vec::new();
    loop {
        // Written to, because an untouched page uses no memory.
        allocated.push(std::hint::black_box(vec![1; 1 << 20]));
    }
}
