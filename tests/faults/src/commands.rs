//! The configuration of engines, producers and tasks.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::{Json, NewTask, RetryRule, TaskOptions, Unique};
use task_engine_core::retry::RetryOverride;

/// The class of every task that a test creates.
pub const CLASS: &str = "Witness";

/// The argument of `fault-engine`, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramCommand {
    /// Run tasks.
    Run(EngineConfig),
    /// Create tasks.
    Produce(ProducerConfig),
    /// Send signals to durable tasks.
    Signal(SignallerConfig),
}

/// An engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)] // As in `task_engine::Engine`.
pub struct EngineConfig {
    pub database: String,
    pub instance: String,
    pub witness: PathBuf,
    pub workers: u16,
    pub queues: Vec<(String, u16)>,
    pub heartbeat_ms: u64,
    pub lease_ms: u64,
    pub poll_ms: u64,
    /// A schedule that fires every second, by this name.
    pub schedule: Option<String>,
}

/// A producer. It exits after this many confirmed tasks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ProducerConfig {
    pub database: String,
    /// The file for the ids of confirmed tasks.
    pub acks: PathBuf,
    pub count: usize,
    pub batch: usize,
    pub pause_ms: u64,
    pub spec: TaskSpec,
    /// Each task has one of this many unique keys.
    pub keys: Option<u64>,
    /// The tasks have limits: see [`crate::limits`].
    pub limited: bool,
}

/// A sender of signals. It exits after the signals of this many tasks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SignallerConfig {
    pub database: String,
    /// The file with the ids of confirmed tasks.
    pub acks: PathBuf,
    /// The file for what is sent.
    pub signals: PathBuf,
    pub count: usize,
}

/// The parameters of a task.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// How long it works.
    pub ms: u64,
    /// Additional behaviour.
    #[serde(default)]
    pub action: Action,
    /// Only in this many first attempts; in all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,
    /// The key of its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
}

/// The effect of a task on its engine, or on itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Sleeps.
    #[default]
    Work,
    /// Returns an error.
    Fail,
    /// Aborts the process at the start.
    Abort,
    /// Aborts the process after its work, before the result is recorded.
    AbortAfter,
    /// Exits the process with code 0.
    Exit,
    /// Overflows the stack.
    OverflowStack,
    /// Allocates memory until there is none.
    ExhaustMemory,
    /// Panics.
    Panic,
    /// Returns an error and panics in a destructor.
    PanicTwice,
    /// Blocks its thread by sleeping.
    Block,
    /// Blocks its thread, busy.
    Spin,
    /// Ignores the cancel request.
    IgnoreCancel,
}

/// The default retry rule.
#[must_use]
pub fn options() -> TaskOptions {
    TaskOptions::default().retry(RetryRule::every(Duration::from_millis(100), RETRIES))
}

/// See [`options`].
pub const RETRIES: u32 = 100;

impl TaskSpec {
    /// Works for this many milliseconds.
    #[must_use]
    pub fn work(ms: u64) -> Self {
        Self { ms, ..Self::default() }
    }

    /// An action in every attempt.
    #[must_use]
    pub fn action(action: Action) -> Self {
        Self { action, ..Self::default() }
    }

    /// The task.
    #[must_use]
    pub fn task(&self) -> NewTask {
        let parameters = Json::encode(self).expect("plain numbers and words");
        NewTask::new(CLASS, parameters).expect("an object")
    }

    /// The task, with one of this many unique keys.
    #[must_use]
    pub fn task_with_key(&self, keys: u64) -> NewTask {
        let key = fastrand::u64(..keys).to_string();
        self.task().unique(Unique::by(key)).expect("a key")
    }

    /// The task, with this many retries.
    #[must_use]
    pub fn task_with_retries(&self, maximum: u32) -> NewTask {
        self.task().retry(RetryOverride::default().maximum(maximum))
    }
}
