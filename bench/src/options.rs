//! The command line.

use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use jiff::SignedDuration;
use serde::Serialize;

use crate::engine::EngineArguments;
use crate::error::BenchError;

pub(crate) const URL_VARIABLE: &str = "TASK_ENGINE_DATABASE_URL";

/// Measure how fast the engine is on a database, and what it costs
///
/// Works in a temporary schema (PostgreSQL) or a temporary file beside the
/// database (SQLite) and removes it at the end; no other table is touched.
/// Engines run in processes of their own. Costs are those of the whole server, so
/// use a server without other load; its CPU time can be read only if it runs on
/// this machine.
#[derive(Debug, Parser)]
#[command(name = "task-engine-bench", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// postgres://user:password@host/database or sqlite:FILE
    #[arg(long, env = URL_VARIABLE, hide_env_values = true, default_value = "sqlite:task-engine.db",
          value_name = "URL", global = true)]
    pub(crate) database: String,
    #[command(subcommand)]
    pub(crate) mode: Option<Mode>,
    /// What to measure; repeatable [default: all]
    #[arg(long = "scenario", value_name = "NAME")]
    scenarios: Vec<Scenario>,
    /// Tasks to drain; also the maximum that creation scenarios create
    #[arg(long, default_value_t = 50_000, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    tasks: u64,
    /// Workers per engine
    #[arg(long, default_value_t = 500, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    workers: u16,
    /// Engines in drain, limited-drain, rate and steady
    #[arg(long, default_value_t = 1, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    engines: u16,
    /// Concurrent producers in create-many
    #[arg(long, default_value_t = 16, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(1..=500))]
    producers: u16,
    /// Tasks per call in create-batch and steady
    #[arg(long, default_value_t = 1000, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Repeats of each scenario, alternating with the others
    #[arg(long, default_value_t = 3, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeats: u16,
    /// Latency samples per repeat
    #[arg(long, default_value_t = 200, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    samples: u16,
    /// Duration of creation, rate and steady scenarios
    #[arg(long, default_value = "3s", value_name = "DURATION", value_parser = duration)]
    time: Duration,
    /// Duration of the idle scenario
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    idle_time: Duration,
    /// Finished tasks to insert before
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    history: u64,
    /// Tasks of a higher priority, due tomorrow, to insert before
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    future: u64,
    /// Due tasks of a lower priority to insert before, in a queue that no engine
    /// serves
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    unserved: u64,
    /// Tasks to insert before that sleep or wait for a signal for another week, in
    /// the queue and class of the tasks to drain
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    sleepers: u64,
    /// Keys of the tasks in limited-drain
    #[arg(long, default_value_t = 1000, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
    /// Attempts of a key that may run at a time in limited-drain
    #[arg(long, default_value_t = 10, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max: u32,
    /// Starts per second in rate
    #[arg(long, default_value_t = 100, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Tasks that wait beside the measured ones in blocked and fair
    #[arg(long, default_value_t = 50_000, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    backlog: u64,
    /// Hold a snapshot open on another connection, so that no dead row can be
    /// removed
    #[arg(long)]
    hold_snapshot: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Mode {
    #[command(hide = true)]
    Engine(EngineArguments),
}

const EXAMPLES: &str = "\
Examples:
  cargo run --release -p task-engine-bench
  cargo run --release -p task-engine-bench -- --scenario drain --tasks 200000 --engines 2
  cargo run --release -p task-engine-bench -- --scenario drain --history 1000000 --future 1000000
  cargo run --release -p task-engine-bench -- --scenario claim --unserved 1000000 --future 1000000
  cargo run --release -p task-engine-bench -- --scenario drain --scenario steps --workers 1000
  cargo run --release -p task-engine-bench -- --scenario drain --scenario pickup --sleepers 1000000
  cargo run --release -p task-engine-bench -- --scenario steady --time 3m --hold-snapshot --repeats 1
  cargo run --release -p task-engine-bench -- --scenario drain --scenario limited-drain --tasks 200000
  cargo run --release -p task-engine-bench -- --scenario limited-drain --tasks 200000 --keys 10000 --max 1
  cargo run --release -p task-engine-bench -- --scenario pickup --scenario drain --scenario blocked --backlog 1000000
  cargo run --release -p task-engine-bench -- --scenario rate --engines 4 --time 1m
  cargo run --release -p task-engine-bench -- --scenario fair --backlog 1000000
  cargo run --release -p task-engine-bench -- --scenario drain --scenario flow-layers --tasks 100000
  cargo run --release -p task-engine-bench -- --scenario flow-chain --tasks 10000
  cargo run --release -p task-engine-bench -- --json > before.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// One producer, one task per call
    CreateSingle,
    /// One producer, --batch tasks per call
    CreateBatch,
    /// --producers, one task per call, no engine
    CreateMany,
    /// create-many beside an idle engine that executes them
    CreateManyIdle,
    /// The same without notifications: the engine polls every 10 ms
    CreateManyIdleSilent,
    /// create-many beside an engine that is busy with other tasks
    CreateManyBusy,
    /// The same without notifications
    CreateManyBusySilent,
    /// Empty tasks, created before
    Drain,
    /// Tasks that sleep for a millisecond, created before
    #[value(name = "drain-1ms")]
    #[serde(rename = "drain-1ms")]
    Drain1ms,
    /// Concurrent creation and execution
    Steady,
    /// From the commit of a task to its start, on an idle engine
    Pickup,
    /// How late scheduled tasks start, on an idle engine
    Schedule,
    /// From the start of the process to its first task
    StartUp,
    /// Costs of an idle engine
    Idle,
    /// How long a claim takes that leaves alone what waits in other queues, of
    /// other classes, and of other priorities
    Claim,
    /// Tasks of ten steps, created before
    Steps,
    /// From a signal to the code behind the wait for it
    Signal,
    /// How long an attempt takes to get the results of 1,000 recorded steps
    Replay,
    /// One task that creates --tasks children (at most 10,000) and awaits them
    Children,
    /// Tasks of flows, created before: all others depend on the first
    FlowFanOut,
    /// Tasks of flows, created before: the last depends on all others
    FlowFanIn,
    /// Tasks of flows, created before: twenty layers, and each task depends on three
    FlowLayers,
    /// Tasks of flows, created before: each depends on the one before
    FlowChain,
    /// Empty tasks of --keys keys, of which --max may run at a time for each key, created
    /// before
    LimitedDrain,
    /// Drain and pickup of other tasks beside --backlog tasks of one key that may not start
    Blocked,
    /// How many tasks start in a second at most, and how many could, with a limit of
    /// --rate per second
    Rate,
    /// From the commit of a task to its start, beside --backlog tasks of another key, with
    /// a fair share for each key
    Fair,
}

impl Scenario {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The options of a run; part of its report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct BenchSettings {
    pub(crate) tasks: u64,
    pub(crate) workers: u16,
    pub(crate) engines: u16,
    pub(crate) producers: u16,
    pub(crate) batch: u32,
    pub(crate) repeats: u16,
    pub(crate) samples: u16,
    #[serde(rename = "time_secs", serialize_with = "as_secs")]
    pub(crate) time: Duration,
    #[serde(rename = "idle_time_secs", serialize_with = "as_secs")]
    pub(crate) idle_time: Duration,
    pub(crate) history: u64,
    pub(crate) future: u64,
    pub(crate) unserved: u64,
    pub(crate) sleepers: u64,
    pub(crate) keys: u32,
    pub(crate) max: u32,
    pub(crate) rate: u32,
    pub(crate) backlog: u64,
    pub(crate) hold_snapshot: bool,
}

impl BenchSettings {
    /// Whether tasks are inserted before the first measurement.
    pub(crate) fn inserts_tasks(&self) -> bool {
        [self.history, self.future, self.unserved, self.sleepers].iter().any(|count| *count > 0)
    }
}

impl Arguments {
    pub(crate) fn settings(&self) -> Result<BenchSettings, BenchError> {
        for (name, time) in [("--time", self.time), ("--idle-time", self.idle_time)] {
            if !(SHORTEST..=LONGEST).contains(&time) {
                return Err(BenchError::Usage(format!("{name} must be between 50 ms and 1 h")));
            }
        }
        Ok(BenchSettings {
            tasks: self.tasks,
            workers: self.workers,
            engines: self.engines,
            producers: self.producers,
            batch: self.batch,
            repeats: self.repeats,
            samples: self.samples,
            time: self.time,
            idle_time: self.idle_time,
            history: self.history,
            future: self.future,
            unserved: self.unserved,
            sleepers: self.sleepers,
            keys: self.keys,
            max: self.max,
            rate: self.rate,
            backlog: self.backlog,
            hold_snapshot: self.hold_snapshot,
        })
    }

    /// The named scenarios, or all; each once, in the order of the enum.
    pub(crate) fn scenarios(&self) -> Vec<Scenario> {
        let all = Scenario::value_variants().iter().copied();
        all.filter(|one| self.scenarios.is_empty() || self.scenarios.contains(one)).collect()
    }
}

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(3600);

/// `300ms`, `3s`, `2m`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<SignedDuration, _> = text.parse();
    parsed
        .ok()
        .and_then(|time| time.try_into().ok())
        .ok_or_else(|| "a duration looks like 300ms, 3s, 2m or 1h".to_owned())
}

fn as_secs<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}
