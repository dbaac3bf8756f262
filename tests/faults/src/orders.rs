//! What the processes of a test are told: engines, producers, and tasks.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::{ClassRules, Json, NewTask, RetryRule, Unique};
use task_engine_core::retry::RetryOverride;

/// The class of every task that a test creates.
pub const CLASS: &str = "Witness";

/// What `fault-engine` is started with, as one argument of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Run tasks.
    Run(EngineOrder),
    /// Create tasks.
    Produce(ProducerOrder),
}

/// An engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)] // As in `task_engine::Engine`.
pub struct EngineOrder {
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

/// A producer. It ends when it has created so many tasks for certain.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ProducerOrder {
    pub database: String,
    /// The file that gets the id of each task whose creation was confirmed.
    pub acks: PathBuf,
    pub count: usize,
    pub batch: usize,
    pub pause_ms: u64,
    pub duty: Duty,
    /// Each task is unique by one of so many keys.
    pub keys: Option<u64>,
}

/// The parameters of a task.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Duty {
    /// How long it works.
    pub ms: u64,
    /// What it does beside that.
    #[serde(default)]
    pub deed: Deed,
    /// In which of its first attempts; in all if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,
}

/// What a task does to its engine, or to itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// Works, and no more.
    #[default]
    Work,
    /// Returns an error.
    Fail,
    /// Ends the process with SIGABRT before it has done anything.
    Abort,
    /// Does all of its work, and ends the process before anybody knows.
    AbortAfter,
    /// Ends the process as if all were well.
    Exit,
    /// Runs out of its stack.
    Overflow,
    /// Takes memory until there is none.
    Eat,
    /// Panics.
    Panic,
    /// Panics, and once more while its values are dropped.
    PanicTwice,
    /// Blocks its thread, asleep.
    Block,
    /// Blocks its thread, busy.
    Spin,
    /// Goes on when it is told to end.
    Deaf,
}

/// How often a task is retried if nothing else is said, and how soon.
#[must_use]
pub fn rules() -> ClassRules {
    ClassRules::default().retry(RetryRule::every(Duration::from_millis(100), RETRIES))
}

/// See [`rules`].
pub const RETRIES: u32 = 100;

impl Duty {
    /// Work for so many milliseconds.
    #[must_use]
    pub fn work(ms: u64) -> Self {
        Self { ms, ..Self::default() }
    }

    /// A deed, in every attempt.
    #[must_use]
    pub fn deed(deed: Deed) -> Self {
        Self { deed, ..Self::default() }
    }

    /// The task.
    #[must_use]
    pub fn task(&self) -> NewTask {
        let parameters = Json::encode(self).expect("plain numbers and words");
        NewTask::new(CLASS, parameters).expect("an object")
    }

    /// The task, unique by one of so many keys.
    #[must_use]
    pub fn task_with_key(&self, keys: u64) -> NewTask {
        let key = fastrand::u64(..keys).to_string();
        self.task().unique(Unique::by(key)).expect("a key")
    }

    /// The task, with so many retries.
    #[must_use]
    pub fn task_with_retries(&self, maximum: u32) -> NewTask {
        self.task().retry(RetryOverride::default().maximum(maximum))
    }
}
