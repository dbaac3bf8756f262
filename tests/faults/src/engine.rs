//! The engine of `fault-engine`: one class, whose tasks do what they are told.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use task_engine::postgres::PgStore;
use task_engine::sqlite::SqliteStore;
use task_engine::{Engine, Failure, Recovery, Run, Schedule, StopHandle, Store, StoreError};

use crate::orders::{CLASS, Deed, Duty, EngineOrder, rules};
use crate::witness::{now_us, testify};

/// Opens `postgres://…`, or else a file.
pub async fn open(database: &str) -> Result<Arc<dyn Store>, StoreError> {
    if database.starts_with("postgres://") {
        return Ok(Arc::new(PgStore::connect(database).await?));
    }
    Ok(Arc::new(SqliteStore::open(database)?))
}

/// Runs until SIGTERM.
pub async fn run(order: EngineOrder) -> Result<(), String> {
    let stop = StopHandle::new();
    stop.stop_on_signals().map_err(|e| e.to_string())?;
    let store = open(&order.database).await.map_err(|e| e.to_string())?;
    let witness: Arc<Path> = order.witness.into();
    let mut engine = Engine::new(store, witness)
        .instance(order.instance)
        .recovery(Recovery::Auto)
        .heartbeat(ms(order.heartbeat_ms), ms(order.lease_ms))
        .poll(ms(order.poll_ms))
        .retention(None)
        .handle_class(CLASS, rules(), perform)
        .stopped_by(stop);
    let shared = if order.queues.is_empty() { order.workers } else { 0 };
    engine = engine.workers(shared);
    for (queue, workers) in order.queues {
        engine = engine.queue(queue, workers);
    }
    if let Some(name) = order.schedule {
        let task = Duty::work(1).task();
        engine = engine.schedule(Schedule::every(name, Duration::from_secs(1)).new_task(task));
    }
    let stopped = engine.run_until_stopped().await.map_err(|e| e.to_string())?;
    if stopped.unrecorded > 0 { Err(format!("{stopped:?}")) } else { Ok(()) }
}

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

async fn perform(duty: Duty, run: Run<Arc<Path>>) -> Result<i32, Failure> {
    let file: Arc<Path> = (*run).clone();
    let (id, attempt) = (run.task_id(), run.attempt());
    let line = |word| format!("{word} {id} {attempt} {} {}\n", std::process::id(), now_us());
    testify(&file, &line("begin"))?;
    let deed =
        if duty.attempts.is_none_or(|last| attempt <= last) { duty.deed } else { Deed::Work };
    match deed {
        Deed::Block => std::thread::sleep(ms(duty.ms)),
        Deed::Spin => spin(ms(duty.ms)),
        Deed::Deaf => stay(ms(duty.ms)).await,
        Deed::Abort => std::process::abort(),
        Deed::Exit => std::process::exit(0),
        Deed::Overflow => drop(descend(1)),
        Deed::Eat => eat(),
        Deed::Panic => panic!("as it was asked to"),
        Deed::PanicTwice => {
            let _bomb = Bomb;
            tokio::time::sleep(ms(duty.ms)).await;
            return Err(Failure::named("Asked", "and a panic when it is dropped"));
        }
        Deed::Work | Deed::Fail | Deed::AbortAfter => tokio::time::sleep(ms(duty.ms)).await,
    }
    testify(&file, &line("end"))?;
    match deed {
        Deed::AbortAfter => std::process::abort(),
        Deed::Fail => Err(Failure::named("Asked", "failed as it was asked to")),
        _ => Ok(attempt),
    }
}

struct Bomb;

impl Drop for Bomb {
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

/// Sleeps in pieces, and asks nobody whether it should go on.
async fn stay(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::thread::sleep(Duration::from_millis(20));
        tokio::task::yield_now().await;
    }
}

fn descend(depth: u64) -> u64 {
    let here = std::hint::black_box([depth; 1000]);
    if depth == u64::MAX { 0 } else { descend(depth + 1).wrapping_add(here[7]) }
}

fn eat() {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        // Written to: a page that nobody has touched is not there.
        eaten.push(std::hint::black_box(vec![1; 1 << 20]));
    }
}
