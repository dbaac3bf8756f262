//! Registered engines, and whether a starting engine may use a name.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::queue::Pool;
use crate::task::TaskOptions;

/// The time for which ended instances are kept and listed.
///
/// In a cluster every start may register a new name.
pub const ENDED_KEPT: Duration = Duration::from_secs(7 * 86_400);

/// One registration of an engine, from its start to its end.
///
/// A restarted engine has the same name and a new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(pub i64);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An engine that registers.
#[derive(Debug, Clone)]
pub struct NewInstance {
    /// Its name.
    ///
    /// No two live engines share a name.
    pub name: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: i32,
    /// Identifies the process even if a later one on the same machine gets its pid: see
    /// [`process::mark`](crate::process::mark).
    ///
    /// `None` if the system has no mark.
    pub process: Option<String>,
    /// The version of the engine.
    pub version: String,
    /// How many workers it has.
    pub workers: i32,
    /// How long after its last heartbeat it counts as dead.
    pub lease: Duration,
    /// The queues that it takes tasks from.
    pub queues: Vec<String>,
    /// Which of its workers take from which of them.
    pub pools: Vec<Pool>,
    /// The classes that it has handlers for, with their options.
    pub classes: BTreeMap<String, TaskOptions>,
}

/// A stored instance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InstanceRow {
    /// Its id.
    pub id: InstanceId,
    /// The name.
    pub name: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: i32,
    /// See [`NewInstance::process`].
    pub process: Option<String>,
    /// The version of the engine.
    pub version: String,
    /// How many workers it has.
    pub workers: i32,
    /// The queues that it takes tasks from.
    pub queues: Vec<String>,
    /// Which of its workers take from which of them.
    pub pools: Vec<Pool>,
    /// The classes that it has handlers for, with their options.
    pub classes: BTreeMap<String, TaskOptions>,
    /// When it registered.
    pub started_at: Timestamp,
    /// The time of its last heartbeat.
    pub heartbeat_at: Timestamp,
    /// How long ago that is, by the database's clock.
    pub heartbeat_age: Duration,
    /// How long after its last heartbeat it counts as dead.
    pub lease: Duration,
    /// When it stopped, if it did.
    pub stopped_at: Option<Timestamp>,
    /// When it was declared lost, if it was.
    pub lost_at: Option<Timestamp>,
    /// How many attempts it holds that have not ended.
    pub held: i64,
    /// Whether its process has ended on the machine that reads this, although the instance has not
    /// ended.
    ///
    /// Always false on other machines: they rely on its lease.
    pub process_gone: bool,
}

/// The state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InstanceState {
    /// Its last heartbeat is younger than its lease.
    Alive,
    /// Its process has ended on the machine that reads this.
    ProcessGone,
    /// Its lease has expired.
    Dead,
    /// It unregistered.
    Stopped,
    /// It was declared lost.
    Lost,
}

enum_tokens!(InstanceState {
    Alive = "alive", ProcessGone = "process_gone", Dead = "dead", Stopped = "stopped",
    Lost = "lost",
});

impl InstanceState {
    /// Returns the label that people read.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::ProcessGone => "process gone",
            other => other.as_str(),
        }
    }
}

/// An engine as programs read it: the HTTP API and `task-engine instances --json`.
#[derive(Debug, Serialize)]
pub struct InstanceSummary {
    id: InstanceId,
    name: String,
    state: InstanceState,
    host: String,
    pid: i32,
    version: String,
    workers: i32,
    held: i64,
    queues: Vec<String>,
    pools: Vec<Pool>,
    classes: Vec<String>,
    started_at: Timestamp,
    heartbeat_at: Timestamp,
    heartbeat_age_secs: f64,
    lease_secs: f64,
    stopped_at: Option<Timestamp>,
    lost_at: Option<Timestamp>,
}

impl From<&InstanceRow> for InstanceSummary {
    fn from(row: &InstanceRow) -> Self {
        Self {
            id: row.id,
            name: row.name.clone(),
            state: row.state(),
            host: row.host.clone(),
            pid: row.pid,
            version: row.version.clone(),
            workers: row.workers,
            held: row.held,
            queues: row.queues.clone(),
            pools: row.pools.clone(),
            classes: row.classes.keys().cloned().collect(),
            started_at: row.started_at,
            heartbeat_at: row.heartbeat_at,
            heartbeat_age_secs: row.heartbeat_age.as_secs_f64(),
            lease_secs: row.lease.as_secs_f64(),
            stopped_at: row.stopped_at,
            lost_at: row.lost_at,
        }
    }
}

impl InstanceRow {
    /// Returns whether it stopped or was declared lost.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.stopped_at.is_some() || self.lost_at.is_some()
    }

    /// Returns whether its state is [`InstanceState::Alive`].
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.state() == InstanceState::Alive
    }

    /// Returns its state.
    #[must_use]
    pub fn state(&self) -> InstanceState {
        match self {
            Self { lost_at: Some(_), .. } => InstanceState::Lost,
            Self { stopped_at: Some(_), .. } => InstanceState::Stopped,
            Self { process_gone: true, .. } => InstanceState::ProcessGone,
            _ if self.heartbeat_age > self.lease => InstanceState::Dead,
            _ => InstanceState::Alive,
        }
    }
}

/// The choice of what happens to the tasks of dead engines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// Engines recover them: at their start those of their own name and of
    /// processes that ended on their machine, later those of all dead engines.
    #[default]
    Auto,
    /// An operator decides: an engine whose name left tasks refuses to start.
    Manual,
}

/// The decision of a starting engine about an earlier instance of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The name is free.
    Free,
    /// The holder is alive: refuse.
    Taken,
    /// The holder may be alive: wait this long, then check again.
    Wait(Duration),
    /// The holder is dead and left tasks: refuse, and list them.
    LeftTasks,
    /// The holder is dead: declare it lost and recover its tasks.
    Recover,
}

/// Decides about one earlier instance of a name.
#[must_use]
pub fn decide_admission(holder: &InstanceRow, recovery: Recovery) -> Admission {
    match (holder.is_alive(), recovery) {
        (false, _) if holder.has_ended() && holder.held == 0 => Admission::Free,
        (false, Recovery::Manual) if holder.held > 0 => Admission::LeftTasks,
        (false, _) => Admission::Recover,
        (true, Recovery::Manual) => Admission::Taken,
        (true, Recovery::Auto) => {
            Admission::Wait(holder.lease.saturating_sub(holder.heartbeat_age))
        }
    }
}

/// Returns the default name of an engine: the name of its machine, or the first free one of
/// `machine-2`, `machine-3`, ….
///
/// So a restarted engine gets its name back, and lists of engines stay short.
///
/// `last` is the name that this engine had before; it is kept if it is free. After an outage of the
/// database all leases have expired, even those of live engines. So with automatic recovery a name
/// is free only if its holder has ended or its process is gone. With manual recovery a dead holder
/// is enough: if it left tasks, the engine refuses to start.
#[must_use]
pub fn free_name(
    instances: &[InstanceRow],
    machine: &str,
    last: Option<&str>,
    recovery: Recovery,
) -> String {
    let holds = |instance: &InstanceRow| match recovery {
        Recovery::Auto => !instance.has_ended() && !instance.process_gone,
        Recovery::Manual => instance.is_alive(),
    };
    let is_free = |name: &String| !instances.iter().any(|it| it.name == *name && holds(it));
    let numbered = (2_u32..).map(|number| format!("{machine}-{number}"));
    let mut names = last.map(str::to_owned).into_iter().chain([machine.to_owned()]).chain(numbered);
    names.find(is_free).unwrap_or_else(|| machine.to_owned())
}

#[cfg(test)]
mod tests;
