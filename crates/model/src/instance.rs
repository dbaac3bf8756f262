//! Engines as the database sees them, and who may use a name.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::queue::Pool;
use crate::task::ClassRules;

/// How long a life that has ended is listed among those of all names, and kept at
/// the least. In a cluster every start may bring a new name.
pub const KEPT: Duration = Duration::from_secs(7 * 86_400);

/// One *life* of an engine: a restarted engine has the same name and a new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(pub i64);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an engine says about itself when it registers.
#[derive(Debug, Clone)]
pub struct NewInstance {
    /// Its name, unique among the living.
    pub name: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: i32,
    /// A mark that tells this process from a later one with the same number on
    /// the same machine; `None` where the system has no such mark.
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
    /// The classes that it knows, with their rules.
    pub classes: BTreeMap<String, ClassRules>,
}

/// What is known about one life of an engine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InstanceRow {
    /// This life.
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
    /// The classes that it knows, with their rules.
    pub classes: BTreeMap<String, ClassRules>,
    /// When it registered.
    pub started_at: Timestamp,
    /// When it was last heard of.
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
}

/// An engine as programs read it: the HTTP API and `task-engine instances --json`.
#[derive(Debug, Serialize)]
pub struct InstanceSummary {
    id: InstanceId,
    name: String,
    state: &'static str,
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
    /// `alive`, `dead` (not heard of for longer than its lease), `stopped` or
    /// `lost` (declared dead).
    #[must_use]
    pub fn state(&self) -> &'static str {
        if self.lost_at.is_some() {
            "lost"
        } else if self.stopped_at.is_some() {
            "stopped"
        } else if self.is_alive() {
            "alive"
        } else {
            "dead"
        }
    }

    /// Whether this life is over on record.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.stopped_at.is_some() || self.lost_at.is_some()
    }

    /// Whether it counts as alive: not over, and heard of within its lease.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.has_ended() && self.heartbeat_age <= self.lease
    }
}

/// What happens to the tasks of dead engines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// Somebody decides: an engine whose name left tasks behind refuses to start.
    #[default]
    Manual,
    /// Engines recover them: their own name's at start, everybody's later on.
    Auto,
}

/// What a starting engine does about a former holder of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Nothing stands in the way of this one.
    Free,
    /// The holder is alive: refuse.
    Taken,
    /// The holder may be alive: wait this long, then look again.
    Wait(Duration),
    /// The holder is dead and left tasks: refuse, and list them.
    LeftTasks,
    /// The holder is dead: declare it lost, and recover what it left.
    Recover,
}

/// Decides about one former holder of a name.
///
/// `process_gone` says that its process is known to be gone from this very
/// machine, so that its lease need not run out first.
#[must_use]
pub fn admission(holder: &InstanceRow, process_gone: bool, recovery: Recovery) -> Admission {
    let dead = holder.has_ended() || process_gone || !holder.is_alive();
    match (dead, recovery) {
        (true, _) if holder.has_ended() && holder.held == 0 => Admission::Free,
        (true, Recovery::Manual) if holder.held > 0 => Admission::LeftTasks,
        (true, _) => Admission::Recover,
        (false, Recovery::Manual) => Admission::Taken,
        (false, Recovery::Auto) => {
            Admission::Wait(holder.lease.saturating_sub(holder.heartbeat_age))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(age_secs: u64, ended: bool, held: i64) -> InstanceRow {
        InstanceRow {
            id: InstanceId(1),
            name: "a".into(),
            host: "h".into(),
            pid: 1,
            process: None,
            version: String::new(),
            workers: 5,
            queues: vec![],
            pools: vec![],
            classes: BTreeMap::new(),
            started_at: Timestamp::UNIX_EPOCH,
            heartbeat_at: Timestamp::UNIX_EPOCH,
            heartbeat_age: Duration::from_secs(age_secs),
            lease: Duration::from_secs(30),
            stopped_at: None,
            lost_at: ended.then_some(Timestamp::UNIX_EPOCH),
            held,
        }
    }

    #[test]
    fn the_admission_table() {
        use Admission::*;
        use Recovery::*;
        for (age, ended, held, gone, recovery, expected) in [
            (5, false, 0, false, Manual, Taken),
            (5, false, 3, false, Manual, Taken),
            (5, false, 3, false, Auto, Wait(Duration::from_secs(25))),
            (5, false, 3, true, Manual, LeftTasks),
            (5, false, 0, true, Manual, Recover),
            (5, false, 3, true, Auto, Recover),
            (31, false, 3, false, Manual, LeftTasks),
            (31, false, 0, false, Manual, Recover),
            (31, false, 3, false, Auto, Recover),
            (31, true, 0, false, Manual, Free),
            (31, true, 3, false, Manual, LeftTasks),
            (31, true, 3, false, Auto, Recover),
        ] {
            let holder = holder(age, ended, held);
            assert_eq!(
                admission(&holder, gone, recovery),
                expected,
                "heartbeat {age} s ago, ended {ended}, holds {held}, gone {gone}, {recovery:?}"
            );
        }
    }
}
