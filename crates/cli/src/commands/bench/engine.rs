//! `task-engine bench-engine`: an engine under measurement, in a process of its
//! own so that its processor time and memory are its own too.
//!
//! It says what happens in it ([`Event`]) on its standard output, claims
//! nothing before it is told [`GO`], and stops when its standard input ends:
//! also when the bench was killed.

use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use task_engine::{ClassRules, Engine, Failure, RetryRule, Run, StopHandle};
use tokio::sync::{Notify, watch};

use super::event::{Event, GO, now_us};
use super::witnessed::Witnessed;
use crate::console::Console;
use crate::database::OpenMode;
use crate::error::CliError;
use crate::times::duration;

/// Run an engine for `bench`
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    instance: String,
    #[arg(long)]
    workers: u16,
    #[arg(long, value_parser = duration)]
    poll: Duration,
    /// Claim tasks without being told to
    #[arg(long)]
    at_once: bool,
}

pub(super) const QUEUE: &str = "bench";
/// Where a crowd waits that no engine serves.
pub(super) const CROWD_QUEUE: &str = "bench_crowd";
pub(super) const NOOP: &str = "bench_noop";
pub(super) const ONE_MS: &str = "bench_1ms";
/// Does nothing but to say when it began.
pub(super) const STAMP: &str = "bench_stamp";

/// The parameters of every task: about 100 bytes, as of a usual one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Parameters {
    to: String,
    subject: String,
    template: String,
}

impl Parameters {
    pub(super) fn sample() -> Self {
        Self {
            to: "ada.lovelace@example.org".to_owned(),
            subject: "Your order is on its way".to_owned(),
            template: "order_shipped".to_owned(),
        }
    }
}

/// How long tasks may go on after the bench has seen enough.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.database()?.open(OpenMode::MustExist).await?;
    let stop = StopHandle::new();
    let gate = watch::Sender::new(args.at_once);
    let reporter = Arc::new(Reporter::default());
    tokio::spawn(report_records(reporter.clone()));
    let store = Witnessed::new(store, reporter, gate.subscribe());
    obey(gate, stop.clone())?;
    let rules = || ClassRules::default().retry(RetryRule::never()).queue(QUEUE);
    Engine::new(Arc::new(store), ())
        .instance(args.instance)
        .workers(args.workers)
        .queues([QUEUE])
        .poll(args.poll)
        .retention(None)
        .stop_timeout(STOP_TIMEOUT)
        .handle_class(NOOP, rules(), noop)
        .handle_class(ONE_MS, rules(), one_ms)
        .handle_class(STAMP, rules(), stamp)
        .stopped_by(stop)
        .run_until_stopped()
        .await?;
    Ok(())
}

async fn noop(_: Parameters, _: Run<()>) -> Result<&'static str, Failure> {
    Ok("done")
}

async fn one_ms(_: Parameters, _: Run<()>) -> Result<&'static str, Failure> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok("done")
}

async fn stamp(_: Parameters, run: Run<()>) -> Result<&'static str, Failure> {
    let at_us = now_us();
    say(Event::Began { task_id: run.task_id().0, at_us });
    Ok("done")
}

/// Does what the standard input says. On a thread, because reading blocks.
fn obey(gate: watch::Sender<bool>, stop: StopHandle) -> Result<(), CliError> {
    let listen = move || {
        for line in io::stdin().lock().lines() {
            match line {
                Ok(word) if word == GO => {
                    gate.send_replace(true);
                }
                _ => break,
            }
        }
        stop.stop();
        // An engine that still waits at the gate could not end either.
        gate.send_replace(true);
    };
    std::thread::Builder::new()
        .name("bench-orders".to_owned())
        .spawn(listen)
        .map(drop)
        .map_err(|error| CliError::Failure(format!("no thread to listen to the bench: {error}")))
}

/// Counts endings on record. They are told at most every [`TELL_EVERY`], so
/// that telling costs nothing, each with the time at which it was true.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    recorded: Mutex<(u64, i64)>,
    news: Notify,
}

const TELL_EVERY: Duration = Duration::from_millis(10);

impl Reporter {
    pub(super) fn alive(&self) {
        say(Event::Alive);
    }

    pub(super) fn recorded(&self, endings: usize) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        *recorded = (recorded.0 + endings as u64, now_us());
        drop(recorded);
        self.news.notify_one();
    }
}

async fn report_records(reporter: Arc<Reporter>) {
    loop {
        reporter.news.notified().await;
        let (count, at_us) = *reporter.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        say(Event::Recorded { count, at_us });
        tokio::time::sleep(TELL_EVERY).await;
    }
}

/// One write a line, at once. Without anybody to hear it, the standard input
/// has ended as well, and so does the engine.
fn say(event: Event) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(format!("{event}\n").as_bytes()).and_then(|()| out.flush());
}
