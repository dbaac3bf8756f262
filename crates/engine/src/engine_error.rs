//! The error of an engine that does not run.

use std::fmt;

use task_engine_core::display::{count, span};
use task_engine_core::instance::InstanceRow;
#[cfg(doc)]
use task_engine_core::instance::Recovery;
use task_engine_core::recovery::UnendedAttempt;
use task_engine_store::error::StoreError;

use crate::admission;

/// The error of an engine that cannot start, or that cannot go on.
///
/// `Debug` prints the same text as `Display`, so that a `main` that returns it prints
/// a readable message.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Two handlers were added for one class: remove one of them.
    #[error("class {class} has two handlers: the first at {first}, the second at {second}")]
    TwoHandlers {
        /// The class.
        class: String,
        /// Where the first was given.
        first: String,
        /// Where the second was given.
        second: String,
    },
    /// A setting cannot work: the message names the setting and its limits.
    #[error("{0}")]
    Setting(String),
    /// A live engine has the name: stop that engine, or give this one another name.
    #[error(
        "{}. Give this one another name with Engine::instance, or none: then it gets one that is free",
        name_taken(.0)
    )]
    NameTaken(Box<InstanceRow>),
    /// A dead engine of this name left tasks, and no engine may recover them
    /// ([`Recovery::Manual`]).
    ///
    /// Recover them with the command `task-engine recover`, or use [`Recovery::Auto`].
    #[error(
        "{}\nRecover them with `task-engine recover {}`, or let engines do it: Engine::recovery(Recovery::Auto), the default",
        left_tasks(.holder, .tasks), .holder.name
    )]
    LeftTasks {
        /// The dead engine.
        holder: Box<InstanceRow>,
        /// Its tasks.
        tasks: Vec<UnendedAttempt>,
    },
    /// The store failed while the engine started, or it ended the session of this engine.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A part of the engine panicked: report this bug, and start the engine again.
    ///
    /// Its tasks are left to recovery.
    #[error("the engine broke, which is a bug of Task Engine: {0}")]
    Broken(String),
    /// The operating system refused a thread or a handler of signals: check the limits of the
    /// process.
    #[error("the engine cannot start: {0}")]
    System(#[from] std::io::Error),
}

impl fmt::Debug for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl EngineError {
    /// Returns what happened, without the advice for Rust callers: the command line has its own.
    #[doc(hidden)]
    #[must_use]
    pub fn without_advice(&self) -> String {
        match self {
            Self::NameTaken(holder) => name_taken(holder),
            Self::LeftTasks { holder, tasks } => left_tasks(holder, tasks),
            other => other.to_string(),
        }
    }
}

fn name_taken(holder: &InstanceRow) -> String {
    format!(
        "an engine named {:?} is alive: process {} on {}, since {}, last heartbeat {} ago",
        holder.name,
        holder.pid,
        holder.host,
        holder.started_at,
        span(holder.heartbeat_age)
    )
}

fn left_tasks(holder: &InstanceRow, tasks: &[UnendedAttempt]) -> String {
    format!(
        "the last engine named {:?} (process {} on {}) died and left {}:\n{}",
        holder.name,
        holder.pid,
        holder.host,
        count(tasks.len(), "running task"),
        admission::attempt_lines(tasks)
    )
}
