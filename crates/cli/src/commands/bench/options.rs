//! What can be asked of a bench, as it is typed and as it is used.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::error::CliError;
use crate::times::duration;

/// Measure how fast the engine is on a database, and what it costs
///
/// Works in a throw-away schema (PostgreSQL) or a throw-away file beside the
/// database (SQLite), which is removed at the end; no other table is touched.
/// Engines run as processes of their own. Costs are counted over the whole
/// server, so a quiet one gives the better figures; the processor time of the
/// server can be read only if it runs on this machine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// What to measure; may be given several times [default: all]
    #[arg(long = "scenario", value_name = "NAME")]
    scenarios: Vec<Scenario>,
    /// How many tasks are drained, and created at the most
    #[arg(long, default_value_t = 50_000, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    tasks: u64,
    /// How many tasks an engine runs at a time while it drains
    #[arg(long, default_value_t = 500, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    workers: u16,
    /// How many engines drain, and execute in the steady state
    #[arg(long, default_value_t = 1, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    engines: u16,
    /// How many producers create at once in create-many
    #[arg(long, default_value_t = 16, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(1..=500))]
    producers: u16,
    /// How many tasks a call creates in create-batch and in the steady state
    #[arg(long, default_value_t = 1000, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// How often each scenario is measured, in turn with the others
    #[arg(long, default_value_t = 3, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeats: u16,
    /// How many latencies are taken a repeat
    #[arg(long, default_value_t = 200, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    samples: u16,
    /// How long creation and the steady state are measured
    #[arg(long, default_value = "3s", value_name = "DURATION", value_parser = duration)]
    time: Duration,
    /// How long an idle engine is watched
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    idle_time: Duration,
    /// How many finished tasks are there before
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    history: u64,
    /// How many tasks of a higher priority wait for a later day
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    future: u64,
    /// How many due tasks of a lower priority wait in a queue that no engine
    /// serves
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    crowd: u64,
    /// Let another connection keep a snapshot open, so that no dead row can be
    /// removed meanwhile
    #[arg(long)]
    hold_snapshot: bool,
    /// Print everything as JSON, to be saved as a baseline
    #[arg(long)]
    pub(super) json: bool,
    /// Compare with what --json has printed before; exit code 1 if it was better
    #[arg(long, value_name = "FILE")]
    pub(super) baseline: Option<PathBuf>,
    /// The share of the baseline that each figure must reach
    #[arg(long, default_value_t = 0.8, value_name = "SHARE", requires = "baseline",
          allow_negative_numbers = true, value_parser = share)]
    pub(super) tolerance: f64,
    /// Write a page with charts
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  task-engine bench
  task-engine bench --scenario drain --tasks 200000 --engines 2
  task-engine bench --scenario drain --history 1000000 --future 1000000
  task-engine bench --scenario claim --crowd 1000000 --future 1000000
  task-engine bench --scenario steady --time 3m --hold-snapshot --repeats 1
  task-engine bench --json > before.json; task-engine bench --baseline before.json";

/// One thing that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Scenario {
    /// One producer, one task a call
    CreateSingle,
    /// One producer, --batch tasks a call
    CreateBatch,
    /// --producers, one task a call, no engine
    CreateMany,
    /// The same, while an engine waits for them and executes them
    CreateManyIdle,
    /// The same without wake-ups: the engine looks every 10 ms
    CreateManyIdleSilent,
    /// The same, while an engine is busy with other tasks
    CreateManyBusy,
    /// The same without wake-ups
    CreateManyBusySilent,
    /// Tasks that do nothing, created before
    Drain,
    /// Tasks that wait for a millisecond, created before
    #[value(name = "drain-1ms")]
    #[serde(rename = "drain-1ms")]
    Drain1ms,
    /// Creation and execution at once
    Steady,
    /// From the commit of a task to its start, on an idle engine
    Pickup,
    /// How late scheduled tasks start, on an idle engine
    Schedule,
    /// From the start of the process to its first task
    StartUp,
    /// What an engine costs that has nothing to do
    Idle,
    /// How long a claim takes that leaves alone what waits in other queues, of
    /// other classes, and of other priorities
    Claim,
}

impl Scenario {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// What a bench was asked to do; saved with its figures, because they mean
/// nothing without.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) tasks: u64,
    pub(super) workers: u16,
    pub(super) engines: u16,
    pub(super) producers: u16,
    pub(super) batch: u32,
    pub(super) repeats: u16,
    pub(super) samples: u16,
    #[serde(rename = "time_secs", with = "secs")]
    pub(super) time: Duration,
    #[serde(rename = "idle_time_secs", with = "secs")]
    pub(super) idle_time: Duration,
    pub(super) history: u64,
    pub(super) future: u64,
    #[serde(default)]
    pub(super) crowd: u64,
    pub(super) hold_snapshot: bool,
}

impl Arguments {
    pub(super) fn settings(&self) -> Result<Settings, CliError> {
        for (name, time) in [("--time", self.time), ("--idle-time", self.idle_time)] {
            if !(SHORTEST..=LONGEST).contains(&time) {
                return Err(CliError::Usage(format!("{name} must be between 50 ms and 1 h")));
            }
        }
        Ok(Settings {
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
            crowd: self.crowd,
            hold_snapshot: self.hold_snapshot,
        })
    }

    /// Those that were named, or all; each once, in the order of the enum.
    pub(super) fn scenarios(&self) -> Vec<Scenario> {
        let all = Scenario::value_variants().iter().copied();
        all.filter(|one| self.scenarios.is_empty() || self.scenarios.contains(one)).collect()
    }
}

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(3600);

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a share is a number above 0, up to 1".to_owned()),
    }
}

mod secs {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(de::Error::custom)
    }
}
