//! Limits as stores return them, and what operators write.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::{LaneKey, Limit, LimitId, LimitOptions};
use crate::attempt::AttemptId;
use crate::queue::BoundedCount;

/// A stored limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitRow {
    /// Its id.
    pub id: LimitId,
    /// The limit as it applies now.
    #[serde(flatten)]
    pub limit: Limit,
    /// What engines declare, if an operator has set something else or engines declare it.
    pub declared: Option<LimitOptions>,
    /// Whether an operator has set its options.
    pub set_by_operator: bool,
    /// When it was last changed.
    pub changed_at: Timestamp,
}

/// The limits that an engine declares when it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeclaredLimits {
    /// The classes that the engine executes.
    ///
    /// A limit that an engine has declared for one of them, and that is not in `limits`, is
    /// removed.
    pub classes: Vec<String>,
    /// Its limits.
    pub limits: Vec<Limit>,
}

/// A key that starts no attempts for some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedKey {
    /// The limit.
    pub limit: LimitId,
    /// The key.
    pub key: String,
    /// For how long, from now on.
    pub closed_for: Duration,
    /// Why: the message of the failure.
    pub reason: String,
}

/// The outcome of a declaration or of an operator's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitChange {
    /// It is new.
    Added,
    /// Its options have changed.
    Changed,
    /// It was like this already.
    Unchanged,
    /// The limit was removed, because no engine declares it any more.
    Removed,
    /// An operator has set other options, which stay.
    Overridden,
}

/// The outcome of a request to clear a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitCleared {
    /// It was removed.
    Removed,
    /// The options of the operator were removed, and those that engines declare apply again.
    Declared,
    /// Nothing was changed: engines declare it, and an operator has not set anything.
    OnlyDeclared,
    /// There is no limit of this name.
    NotFound,
}

/// The use of limits: of one, or of all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitUsage {
    /// Lanes with waiting tasks (some, if there are very many).
    pub lanes: Vec<LaneUsage>,
    /// Keys that are in use (some, if there are very many).
    pub keys: Vec<LimitKeyUsage>,
    /// Whether there are more lanes or keys than these.
    pub and_more: bool,
}

/// Waiting tasks of one queue, class, priority and lane key.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneUsage {
    /// The queue.
    pub queue: String,
    /// The class.
    pub class: String,
    /// The priority.
    pub priority: i32,
    /// The limits and keys of its tasks.
    pub lane_key: LaneKey,
    /// How many tasks wait, counted up to a limit.
    pub waiting: BoundedCount,
    /// Since when the first one has been due.
    pub due_since: Timestamp,
}

/// The state of one key.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitKeyUsage {
    /// The limit.
    pub limit: LimitId,
    /// The key; empty if the limit has none.
    pub key: String,
    /// The attempts that hold it.
    pub holders: Vec<Holder>,
    /// When the last attempt of the key started.
    pub last_start_at: Option<Timestamp>,
    /// The earliest time of the next start by the rate and by closing, if it is not now.
    pub next_start_in: Option<Duration>,
    /// Until when the key is closed, and why.
    pub closed: Option<(Timestamp, String)>,
}

/// An attempt that counts for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The attempt.
    #[serde(skip)]
    pub attempt: AttemptId,
    /// Whether it runs.
    ///
    /// If not, its task holds a key in order and waits.
    pub is_running: bool,
}

/// One limit of a task: for `why`.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskLimit {
    /// The limit.
    pub limit: LimitRow,
    /// The state of its key.
    pub usage: LimitKeyUsage,
}
