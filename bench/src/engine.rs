//! `task-engine-bench engine`: an engine under measurement. It has a process of
//! its own, so that its CPU time and memory can be read.
//!
//! It writes [`Event`]s to its standard output, claims nothing before it reads
//! [`CLAIM_COMMAND`], and stops when its standard input ends, also because the
//! benchmark was killed.

use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use task_engine::postgres::{PgStore, Schema};
use task_engine::sqlite::SqliteStore;
use task_engine::{
    Context, Failure, RetryRule, StopHandle, Store, TaskEngine, TaskId, TaskOptions,
};

use tokio::sync::{Notify, watch};

use crate::durable_tasks::{
    CHILD, PARENT, REPLAY, SIGNAL, STEPS, child, parent, replay, signalled, steps,
};
use crate::error::BenchError;
use crate::event::{CLAIM_COMMAND, Event, now_us};
use crate::observed::ObservedStore;
use crate::options::duration;

/// Run an engine for the benchmark
#[derive(Debug, Args)]
pub(crate) struct EngineArguments {
    #[arg(long)]
    schema: Option<String>,
    #[arg(long)]
    instance: String,
    #[arg(long)]
    workers: u16,
    #[arg(long, value_parser = duration)]
    poll: Duration,
    /// Claim without waiting for the command
    #[arg(long)]
    at_once: bool,
}

pub(crate) const QUEUE: &str = "bench";
/// No engine serves this queue.
pub(crate) const UNSERVED_QUEUE: &str = "bench_unserved";
pub(crate) const NOOP: &str = "bench_noop";
pub(crate) const ONE_MS: &str = "bench_1ms";
/// Tasks with a key and limits; empty.
pub(crate) const LIMITED: &str = "bench_limited";
/// Tasks with a key and limits that sleep for a millisecond. Those of [`STAMPED_KEY`] report
/// when they started.
pub(crate) const LIMITED_1MS: &str = "bench_limited_1ms";
pub(crate) const STAMPED_KEY: &str = "stamped";
/// Reports when it started.
pub(crate) const STAMP: &str = "bench_stamp";

/// The parameters of every task: about 100 bytes, as usual.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BenchParameters {
    to: String,
    subject: String,
    template: String,
}

impl BenchParameters {
    pub(crate) fn sample() -> Self {
        Self {
            to: "ada.lovelace@example.org".to_owned(),
            subject: "Your order is on its way".to_owned(),
            template: "order_shipped".to_owned(),
        }
    }
}

/// The parameters of a task with a key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeyedParameters {
    pub(crate) customer: String,
    #[serde(flatten)]
    rest: BenchParameters,
}

/// The parameter that is the key.
pub(crate) const KEY: &str = "customer";

impl KeyedParameters {
    pub(crate) fn sample(customer: &str) -> Self {
        Self { customer: customer.to_owned(), rest: BenchParameters::sample() }
    }
}

/// How long tasks may run after the measurement.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) async fn run(url: &str, args: EngineArguments) -> Result<(), BenchError> {
    let store = open(url, args.schema.as_deref()).await?;
    let stop = StopHandle::new();
    let gate = watch::Sender::new(args.at_once);
    let reporter = Arc::new(Reporter::default());
    tokio::spawn(report_records(reporter.clone()));
    let store = ObservedStore::new(store, reporter, gate.subscribe());
    read_commands(gate, stop.clone())?;
    let options = || TaskOptions::default().retry(RetryRule::never()).queue(QUEUE);
    TaskEngine::new(Arc::new(store) as Arc<dyn Store>)
        .engine(())
        .instance(args.instance)
        .workers(args.workers)
        .queues([QUEUE])
        .poll(args.poll)
        .retention(None)
        .stop_timeout(STOP_TIMEOUT)
        .handle_class(NOOP, options(), noop)
        .handle_class(ONE_MS, options(), one_ms)
        .handle_class(STAMP, options(), stamp)
        .handle_class(LIMITED, options(), limited)
        .handle_class(LIMITED_1MS, options(), limited_1ms)
        .handle_class(STEPS, options(), steps)
        .handle_class(SIGNAL, options(), signalled)
        .handle_class(REPLAY, options(), replay)
        .handle_class(PARENT, options(), parent)
        .handle_class(CHILD, options(), child)
        .stopped_by(stop)
        .run_until(std::future::pending())
        .await?;
    Ok(())
}

async fn open(url: &str, schema: Option<&str>) -> Result<Arc<dyn Store>, BenchError> {
    if let Some(path) = url.strip_prefix("sqlite:") {
        return Ok(Arc::new(SqliteStore::open(path)?));
    }
    let schema = schema.map_or(Ok(Schema::default()), Schema::named)?;
    Ok(Arc::new(PgStore::connect_schema(url, schema).await?))
}

async fn noop(_: BenchParameters, _: Context<()>) -> Result<&'static str, Failure> {
    Ok("done")
}

async fn one_ms(_: BenchParameters, _: Context<()>) -> Result<&'static str, Failure> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok("done")
}

async fn stamp(_: BenchParameters, cx: Context<()>) -> Result<&'static str, Failure> {
    let at_us = now_us();
    emit(Event::Began { task_id: cx.task_id().0, at_us });
    Ok("done")
}

async fn limited(_: KeyedParameters, _: Context<()>) -> Result<&'static str, Failure> {
    Ok("done")
}

async fn limited_1ms(task: KeyedParameters, cx: Context<()>) -> Result<&'static str, Failure> {
    if task.customer == STAMPED_KEY {
        let at_us = now_us();
        emit(Event::Began { task_id: cx.task_id().0, at_us });
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok("done")
}

/// Executes the commands on the standard input. On a thread, because reading blocks.
fn read_commands(gate: watch::Sender<bool>, stop: StopHandle) -> Result<(), BenchError> {
    let read = move || {
        for line in io::stdin().lock().lines() {
            match line {
                Ok(line) if line == CLAIM_COMMAND => {
                    gate.send_replace(true);
                }
                _ => break,
            }
        }
        stop.stop();
        // An engine that waits for the command could not stop.
        gate.send_replace(true);
    };
    std::thread::Builder::new()
        .name("bench-commands".to_owned())
        .spawn(read)
        .map(drop)
        .map_err(BenchError::Io)
}

/// Counts recorded attempts. Emits the count at most every [`EMIT_INTERVAL`], so
/// that the events cost nothing, each with the time of the count.
#[derive(Debug, Default)]
pub(crate) struct Reporter {
    recorded: Mutex<(u64, i64)>,
    changed: Notify,
}

const EMIT_INTERVAL: Duration = Duration::from_millis(10);

impl Reporter {
    pub(crate) fn registered(&self) {
        emit(Event::Registered);
    }

    pub(crate) fn suspended(&self, id: TaskId) {
        emit(Event::Suspended { task_id: id.0 });
    }

    pub(crate) fn called(&self) {
        emit(Event::Called { at_us: now_us() });
    }

    pub(crate) fn recorded(&self, attempts: usize) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        *recorded = (recorded.0 + attempts as u64, now_us());
        drop(recorded);
        self.changed.notify_one();
    }
}

async fn report_records(reporter: Arc<Reporter>) {
    loop {
        reporter.changed.notified().await;
        let (count, at_us) = *reporter.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        emit(Event::Recorded { count, at_us });
        tokio::time::sleep(EMIT_INTERVAL).await;
    }
}

/// One write per line. If the reader is gone, the standard input has ended too,
/// and the engine stops.
pub(crate) fn emit(event: Event) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(format!("{event}\n").as_bytes()).and_then(|()| out.flush());
}
