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
pub const ENDED_KEPT: Duration = Duration::from_secs(7 * 86_400);

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
    /// Whether its process is known to be gone from the machine that this was
    /// read on, though this life is not over on record. Always false on other
    /// machines: there only its lease tells.
    pub process_gone: bool,
}

/// How a life of an engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InstanceState {
    /// It is heard of.
    Alive,
    /// Its process is gone from the machine that asks.
    ProcessGone,
    /// It has not been heard of within its lease.
    Dead,
    /// It stopped in good order.
    Stopped,
    /// It was declared lost.
    Lost,
}

impl InstanceState {
    /// The token that programs read.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::ProcessGone => "process_gone",
            Self::Dead => "dead",
            Self::Stopped => "stopped",
            Self::Lost => "lost",
        }
    }

    /// The words that people read.
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
    /// Whether this life is over on record.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.stopped_at.is_some() || self.lost_at.is_some()
    }

    /// Whether it counts as alive: not over, its process not known to be gone,
    /// and heard of within its lease.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.state() == InstanceState::Alive
    }

    /// How it is.
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

/// What happens to the tasks of dead engines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// Engines recover them: at their start those of their own name and of
    /// processes that are gone from their machine, later on those of all engines
    /// that are dead.
    #[default]
    Auto,
    /// An operator decides: an engine whose name left tasks refuses to start.
    Manual,
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
#[must_use]
pub fn admission(holder: &InstanceRow, recovery: Recovery) -> Admission {
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

/// The name of an engine that is not given one: that of its machine, or the
/// first of `machine-2`, `machine-3`, … that is free. So a restarted engine gets
/// its name back, and lists of engines stay short.
///
/// `last` is the name that this engine had in its life before: it keeps it if it
/// can. After an outage of the database all leases have run out, also those of
/// live engines; so with automatic recovery a name is free only if its holder
/// has ended or its process is gone. Without it, the tasks that a dead holder
/// left are a reason to refuse.
#[must_use]
pub fn free_name(
    lives: &[InstanceRow],
    machine: &str,
    last: Option<&str>,
    recovery: Recovery,
) -> String {
    let holds = |life: &InstanceRow| match recovery {
        Recovery::Auto => !life.has_ended() && !life.process_gone,
        Recovery::Manual => life.is_alive(),
    };
    let is_free = |name: &String| !lives.iter().any(|life| life.name == *name && holds(life));
    let numbered = (2_u32..).map(|number| format!("{machine}-{number}"));
    let mut names = last.map(str::to_owned).into_iter().chain([machine.to_owned()]).chain(numbered);
    names.find(is_free).unwrap_or_else(|| machine.to_owned())
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
            process_gone: false,
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
            let holder = InstanceRow { process_gone: gone, ..holder(age, ended, held) };
            assert_eq!(
                admission(&holder, recovery),
                expected,
                "heartbeat {age} s ago, ended {ended}, holds {held}, gone {gone}, {recovery:?}"
            );
        }
    }

    #[test]
    fn default_names_do_not_collide() {
        use Recovery::*;
        let named = |name: &str, age| InstanceRow { name: name.into(), ..holder(age, false, 0) };
        let gone = InstanceRow { process_gone: true, ..named("web-3", 1) };
        let lives = [named("web", 1), named("web-2", 31), gone];
        for (lives, last, recovery, expected) in [
            (&[][..], None, Auto, "web"),
            (&lives[..1], None, Auto, "web-2"),
            (&lives[..], None, Auto, "web-3"),
            (&lives[..], None, Manual, "web-2"),
            (&lives[..], Some("old"), Auto, "old"),
            (&lives[..], Some("web"), Auto, "web-3"),
        ] {
            assert_eq!(free_name(lives, "web", last, recovery), expected, "{last:?} {recovery:?}");
        }
    }
}
