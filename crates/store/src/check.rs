//! Health checks, with a verdict, a message and a remedy.
//!
//! Stores find the facts; the verdict is decided here, so that all stores agree.

mod evaluate;
mod violation;

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::activity::HeldAttempt;
use task_engine_core::instance::InstanceRow;
use task_engine_core::queue::PausedQueue;
use task_engine_core::task::TaskId;

pub use violation::{Violation, ViolationKind};

/// The names of all checks: a closed list.
pub const CHECK_NAMES: [&str; 33] = [
    "clock",
    "connection",
    "connections",
    "distribution",
    "durability",
    "encoding",
    "engines",
    "failures",
    "file",
    "flows",
    "ids",
    "journal",
    "ledger",
    "limits",
    "long_running_tasks",
    "oldest_due_task",
    "orphaned_tasks",
    "paused_queues",
    "permissions",
    "schedules",
    "schema",
    "server",
    "tables",
    "tasks",
    "transaction_ids",
    "transactions",
    "unknown_classes",
    "unserved_queues",
    "unserved_schedules",
    "vacuum",
    "wake_ups",
    "writable",
    "write_ahead_log",
];

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name: one of [`CHECK_NAMES`].
    pub name: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// The facts for people, with numbers.
    pub message: String,
    /// The statement or command that fixes it.
    pub remedy: Option<String>,
}

/// The verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing is wrong.
    Ok,
    /// It could not be checked.
    Unknown,
    /// It may be intended, or may become wrong.
    Warning,
    /// Work is not done, or could be lost.
    Wrong,
}

task_engine_core::enum_tokens!(Verdict {
    Ok = "ok", Unknown = "unknown", Warning = "warning", Wrong = "wrong",
});

impl Check {
    /// Creates a finding that nothing is wrong.
    pub fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, message.into(), None)
    }

    /// Creates a finding that something could not be checked.
    pub fn unknown(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Verdict::Unknown, message.into(), None)
    }

    /// Creates a finding that something is, or may be, wrong.
    pub fn bad(
        name: &'static str,
        verdict: Verdict,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(name, verdict, message.into(), Some(remedy.into()))
    }

    fn new(name: &'static str, verdict: Verdict, message: String, remedy: Option<String>) -> Self {
        debug_assert!(CHECK_NAMES.contains(&name), "{name} is not in the list of checks");
        Self { name, verdict, message, remedy }
    }

    /// Returns its title, for people.
    #[must_use]
    pub fn title(&self) -> String {
        self.name.replace('_', " ")
    }

    /// Returns the findings of `OperatorStore::verify`.
    #[must_use]
    pub fn of_ledger(violations: &[Violation]) -> Self {
        const NAME: &str = "ledger";
        match violations.first() {
            None => Self::ok(NAME, "every invariant holds"),
            Some(first) => Self::bad(
                NAME,
                Verdict::Wrong,
                format!("{} invariants are broken; the first: {first}", violations.len()),
                "task-engine verify lists them all; keep a backup before anything is changed",
            ),
        }
    }
}

/// The amount of data that checks may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckDepth {
    /// A few small reads, for a page that refreshes every few seconds.
    Quick,
    /// These reads, and checks that open connections or compare the tables with the migrations.
    ///
    /// Reads no history.
    Standard,
    /// All checks, also those that read everything.
    Deep,
}

/// The amount of data in the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // The names say it.
pub struct Inventory {
    pub tasks: i64,
    pub waiting: i64,
    pub running: i64,
    pub executions: i64,
    pub schedules: i64,
    pub steps: i64,
    pub signals: i64,
    /// Waiting tasks that a signal or the end of a child wakes.
    pub suspended: i64,
}

/// The waiting tasks of one class in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingLane {
    /// The queue.
    pub queue: String,
    /// The class.
    pub class: String,
    /// For how long the first of them has been due; `None` if none is.
    pub due_for: Option<Duration>,
}

/// The most lanes that are read.
pub const LANES_MAX: u32 = 1000;
/// The most failed tasks that are read, unless everything is read.
pub const FAILED_MAX: u32 = 1000;

/// The facts about tasks and engines in the tables of a store.
#[derive(Debug, Clone, Default)]
pub struct CheckFacts {
    /// Engine sessions, as `ReadStore::instances` returns them.
    pub instances: Vec<InstanceRow>,
    /// Waiting tasks, by queue and class.
    pub lanes: Vec<WaitingLane>,
    /// The queues that are paused.
    pub paused: Vec<PausedQueue>,
    /// For how long each of them has been.
    pub paused_for: Vec<Duration>,
    /// Schedules that have an error, and the error.
    pub broken_schedules: Vec<(String, String)>,
    /// Schedules that are due: by name, for how long, and whether they wait for
    /// their last task to end.
    pub due_schedules: Vec<(String, Duration, bool)>,
    /// Tasks that failed within the last hour, by class.
    pub failed: Vec<FailedClass>,
    /// Whether more were not looked at.
    pub failed_and_more: bool,
    /// Attempts that engines hold.
    pub held: Vec<HeldAttempt>,
    /// The database's time.
    pub now: Timestamp,
}

/// The failed tasks of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedClass {
    /// The class.
    pub class: String,
    /// How many.
    pub tasks: i64,
    /// The newest of them.
    pub newest: TaskId,
}

#[cfg(test)]
mod tests;
