//! Whether all is well: checks with a verdict, the reason in numbers, and what
//! mends it. Stores find the facts; what they mean is decided here, so that it
//! is the same on every one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use crate::instance::InstanceRow;
use crate::queue::PausedQueue;

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// Why, with numbers.
    pub reason: String,
    /// The statement or command that mends it.
    pub remedy: Option<String>,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It could not be found out.
    Unknown,
    /// It may be meant so, or is about to become wrong.
    Warning,
    /// Work is not done, or could be lost.
    Wrong,
}

impl Verdict {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Wrong => "wrong",
        }
    }
}

impl Check {
    /// All is well.
    pub fn ok(name: &'static str, reason: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, reason: reason.into(), remedy: None }
    }

    /// It could not be found out.
    pub fn unknown(name: &'static str, reason: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Unknown, reason: reason.into(), remedy: None }
    }

    /// Something is, or may be, wrong.
    pub fn bad(
        name: &'static str,
        verdict: Verdict,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { name, verdict, reason: reason.into(), remedy: Some(remedy.into()) }
    }
}

impl Check {
    /// What `Store::verify` has found.
    #[must_use]
    pub fn of_ledger(violations: &[String]) -> Self {
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

/// How much a check may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// What a page may ask every few seconds: a handful of small reads.
    Glance,
    /// Also what opens connections, or compares the tables with what they
    /// should be. Reads no history.
    Usual,
    /// Also what reads everything.
    Deep,
}

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // The names say it.
pub struct Inventory {
    pub tasks: i64,
    pub waiting: i64,
    pub running: i64,
    pub executions: i64,
    pub schedules: i64,
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

/// No more lanes than these are looked at.
pub const LANES_MAX: u32 = 1000;
/// No more failed tasks than these are looked at, unless everything is read.
pub const FAILED_MAX: u32 = 1000;

/// What a store finds in its tables about the work itself.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Lives of engines, as `Store::instances` tells them.
    pub instances: Vec<InstanceRow>,
    /// What waits, by queue and class.
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
    /// Tasks that failed within the last hour.
    pub failed: u64,
    /// Whether more were not looked at.
    pub failed_and_more: bool,
}

/// A class or a queue that waits for longer than this waits for nobody.
const PATIENCE: Duration = Duration::from_secs(60);
/// A slot that is due for longer than this is stuck: engines look at once.
const SLOT_PATIENCE: Duration = Duration::from_secs(60);
const OLDEST_DUE_WARNING: Duration = Duration::from_secs(5 * 60);
const PAUSE_WARNING: Duration = Duration::from_secs(24 * 3600);

impl Facts {
    /// What they mean.
    #[must_use]
    pub fn judge(&self) -> Vec<Check> {
        vec![
            self.orphans(),
            self.heartbeats(),
            self.classes(),
            self.queues(),
            self.paused_queues(),
            self.schedules(),
            self.oldest_due(),
            self.failures(),
        ]
    }

    fn alive(&self) -> impl Iterator<Item = &InstanceRow> {
        self.instances.iter().filter(|life| life.is_alive())
    }

    fn orphans(&self) -> Check {
        const NAME: &str = "orphaned tasks";
        let lost: Vec<_> = self.instances.iter().filter(|i| !i.is_alive() && i.held > 0).collect();
        if lost.is_empty() {
            return Check::ok(NAME, "no dead engine holds a task");
        }
        let held: i64 = lost.iter().map(|life| life.held).sum();
        let names: BTreeSet<_> = lost.iter().map(|life| life.name.as_str()).collect();
        Check::bad(
            NAME,
            Verdict::Wrong,
            format!("{} held by dead engines: {}", tasks(held), list(names.iter().copied())),
            each(names.iter().map(|name| format!("task-engine recover {}", word(name)))),
        )
    }

    fn heartbeats(&self) -> Check {
        const NAME: &str = "heartbeats";
        let late: Vec<_> = self
            .instances
            .iter()
            .filter(|life| !life.has_ended() && life.heartbeat_age > life.lease / 2)
            .collect();
        let alive = self.alive().count();
        if late.is_empty() {
            return Check::ok(NAME, format!("{alive} engines alive, none of them late"));
        }
        let one = |life: &&InstanceRow| {
            format!(
                "{} (process {} on {}) was last heard of {} ago, its lease is {}",
                life.name,
                life.pid,
                life.host,
                span(life.heartbeat_age),
                span(life.lease)
            )
        };
        // One that is dead and holds nothing stands in nobody's way.
        let verdict = if late.iter().any(|life| life.is_alive() || life.held > 0) {
            Verdict::Wrong
        } else {
            Verdict::Warning
        };
        let names: BTreeSet<_> = late.iter().map(|life| life.name.as_str()).collect();
        Check::bad(
            NAME,
            verdict,
            late.iter().map(one).collect::<Vec<_>>().join("; "),
            format!(
                "look at those processes; if they are gone: {}",
                each(names.iter().map(|name| format!("task-engine recover {}", word(name))))
            ),
        )
    }

    /// Due tasks of classes that no living engine knows.
    fn classes(&self) -> Check {
        const NAME: &str = "unknown classes";
        let known: BTreeSet<&str> =
            self.alive().flat_map(|life| life.classes.keys().map(String::as_str)).collect();
        let mut unknown: BTreeMap<&str, Duration> = BTreeMap::new();
        for lane in self.lanes.iter().filter(|lane| !known.contains(lane.class.as_str())) {
            if let Some(due_for) = lane.due_for {
                let longest = unknown.entry(&lane.class).or_default();
                *longest = due_for.max(*longest);
            }
        }
        if unknown.is_empty() {
            return Check::ok(NAME, "every class with due tasks is known to a living engine");
        }
        let longest = unknown.values().max().copied().unwrap_or_default();
        if self.alive().next().is_none() {
            return Check::bad(
                NAME,
                waits_for_nobody(longest),
                format!("tasks are due, and no engine is alive: {}", list(unknown.keys().copied())),
                "task-engine start, or the application that knows these classes",
            );
        }
        Check::bad(
            NAME,
            waits_for_nobody(longest),
            format!(
                "no living engine knows {}; the first task has been due for {}",
                list(unknown.keys().copied()),
                span(longest)
            ),
            "start the application that knows the class; or, if it is a mistake, cancel the tasks: task-engine tasks --class CLASS, then task-engine cancel ID",
        )
    }

    fn queues(&self) -> Check {
        const NAME: &str = "unserved queues";
        let served: BTreeSet<&str> = self
            .alive()
            .flat_map(|life| life.pools.iter().flat_map(|pool| &pool.queues).chain(&life.queues))
            .map(String::as_str)
            .collect();
        let mut unserved: BTreeMap<&str, Duration> = BTreeMap::new();
        for lane in self.lanes.iter().filter(|lane| !served.contains(lane.queue.as_str())) {
            if let Some(due_for) = lane.due_for {
                let longest = unserved.entry(&lane.queue).or_default();
                *longest = due_for.max(*longest);
            }
        }
        let longest = unserved.values().max().copied().unwrap_or_default();
        if unserved.is_empty() {
            return Check::ok(NAME, "every queue with due tasks is served");
        }
        let commands =
            unserved.keys().map(|queue| format!("task-engine start --queue {}", word(queue)));
        Check::bad(
            NAME,
            waits_for_nobody(longest),
            format!(
                "no living engine takes from {}; the first task has been due for {}",
                list(unserved.keys().copied()),
                span(longest)
            ),
            each(commands),
        )
    }

    fn paused_queues(&self) -> Check {
        const NAME: &str = "paused queues";
        if self.paused.is_empty() {
            return Check::ok(NAME, "no queue is paused");
        }
        let mut holds_up = false;
        let mut words = Vec::new();
        for (paused, long) in self.paused.iter().zip(&self.paused_for) {
            let due = self.lanes.iter().any(|l| l.queue == paused.queue && l.due_for.is_some());
            holds_up |= due && *long > PAUSE_WARNING;
            let reason = paused.reason.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
            let tail = if due { ", and tasks in it are due" } else { "" };
            words.push(format!(
                "{} has been paused for {}{reason}{tail}",
                paused.queue,
                span(*long)
            ));
        }
        Check::bad(
            NAME,
            if holds_up { Verdict::Wrong } else { Verdict::Warning },
            words.join("; "),
            each(
                self.paused.iter().map(|p| format!("task-engine queues resume {}", word(&p.queue))),
            ),
        )
    }

    fn schedules(&self) -> Check {
        const NAME: &str = "schedules";
        if let Some((first, _)) = self.broken_schedules.first() {
            let errors = self.broken_schedules.iter();
            let errors = errors.map(|(name, error)| format!("{name} cannot fire: {error}"));
            return Check::bad(
                NAME,
                Verdict::Wrong,
                errors.collect::<Vec<_>>().join("; "),
                format!(
                    "task-engine schedules show {0}, then change it, or: task-engine schedules remove {0}",
                    word(first)
                ),
            );
        }
        let late = self.due_schedules.iter().filter(|(_, due_for, _)| *due_for > SLOT_PATIENCE);
        let (waits, stuck): (Vec<_>, Vec<_>) = late.partition(|(.., waits)| *waits);
        if let Some((name, due_for, _)) = stuck.iter().max_by_key(|(_, due_for, _)| *due_for) {
            return Check::bad(
                NAME,
                Verdict::Wrong,
                format!(
                    "{} due and not fired; {name} for {}",
                    schedules(stuck.len()),
                    span(*due_for)
                ),
                "an engine fires them: task-engine start; if one is alive, look at its log",
            );
        }
        if let Some((name, due_for, _)) = waits.first() {
            return Check::bad(
                NAME,
                Verdict::Warning,
                format!(
                    "{} for the last task to end; {name} for {}",
                    if waits.len() == 1 {
                        "1 schedule waits".to_owned()
                    } else {
                        format!("{} schedules wait", waits.len())
                    },
                    span(*due_for)
                ),
                format!("task-engine schedules show {}, then look at its last task", word(name)),
            );
        }
        Check::ok(NAME, "none has an error, none is late")
    }

    fn oldest_due(&self) -> Check {
        const NAME: &str = "oldest due task";
        let paused: BTreeSet<_> = self.paused.iter().map(|paused| paused.queue.as_str()).collect();
        let open = self.lanes.iter().filter(|lane| !paused.contains(lane.queue.as_str()));
        let oldest =
            open.filter_map(|lane| Some((lane.due_for?, lane))).max_by_key(|(due, _)| *due);
        match oldest {
            None => Check::ok(NAME, "nothing is due that could start"),
            Some((due_for, lane)) if due_for > OLDEST_DUE_WARNING => Check::bad(
                NAME,
                Verdict::Warning,
                format!(
                    "a task of class {} in queue {} has been due for {}",
                    lane.class,
                    lane.queue,
                    span(due_for)
                ),
                "start more workers (task-engine start --workers N), or see the checks above",
            ),
            Some((due_for, _)) => Check::ok(NAME, format!("due for {}", span(due_for))),
        }
    }

    fn failures(&self) -> Check {
        const NAME: &str = "failures";
        let more = if self.failed_and_more { " at least" } else { "" };
        match self.failed {
            0 if !self.failed_and_more => Check::ok(NAME, "no task has failed in the last hour"),
            failed => Check::bad(
                NAME,
                Verdict::Warning,
                format!(
                    "{}{more} failed for good in the last hour",
                    tasks(i64::try_from(failed).unwrap_or(i64::MAX))
                ),
                "task-engine tasks --status failed, then task-engine retry ID",
            ),
        }
    }
}

/// Engines are stopped and started: for a moment it is nobody's fault.
fn waits_for_nobody(due_for: Duration) -> Verdict {
    if due_for > PATIENCE { Verdict::Wrong } else { Verdict::Warning }
}

/// A name as a shell takes it.
fn word(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@%+=,".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

fn each(commands: impl Iterator<Item = String>) -> String {
    commands.take(5).collect::<Vec<_>>().join("; ")
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    match names.len() {
        0..=5 => names.join(", "),
        all => format!("{} and {} others", names[..5].join(", "), all - 5),
    }
}

fn tasks(number: i64) -> String {
    if number == 1 { "1 task".to_owned() } else { format!("{number} tasks") }
}

fn schedules(number: usize) -> String {
    if number == 1 { "1 schedule is".to_owned() } else { format!("{number} schedules are") }
}

/// A duration in words: `35 ms`, `7 s`, `3 min`, `5 h`, `2 days`.
#[must_use]
pub fn span(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        secs @ 1..120 => format!("{secs} s"),
        secs @ 120..7200 => format!("{} min", secs / 60),
        secs @ 7200..172_800 => format!("{} h", secs / 3600),
        secs => format!("{} days", secs / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::InstanceId;
    use crate::queue::Pool;
    use crate::task::ClassRules;
    use jiff::Timestamp;

    fn engine(age_secs: u64, held: i64) -> InstanceRow {
        InstanceRow {
            id: InstanceId(1),
            name: "it's me".into(),
            host: "h".into(),
            pid: 7,
            process: None,
            version: String::new(),
            workers: 1,
            queues: vec!["default".into()],
            pools: vec![Pool::new(vec!["default".into()], 1)],
            classes: BTreeMap::from([("known".to_owned(), ClassRules::default())]),
            started_at: Timestamp::UNIX_EPOCH,
            heartbeat_at: Timestamp::UNIX_EPOCH,
            heartbeat_age: Duration::from_secs(age_secs),
            lease: Duration::from_secs(30),
            stopped_at: None,
            lost_at: None,
            held,
        }
    }

    fn lane(queue: &str, class: &str, due_secs: Option<u64>) -> WaitingLane {
        let due_for = due_secs.map(Duration::from_secs);
        WaitingLane { queue: queue.into(), class: class.into(), due_for }
    }

    fn of<'a>(checks: &'a [Check], name: &str) -> &'a Check {
        checks.iter().find(|check| check.name == name).expect("a check of this name")
    }

    #[test]
    fn all_is_well_when_nothing_is_wrong() {
        let lanes = vec![lane("default", "known", Some(1)), lane("q", "strange", None)];
        let facts = Facts { instances: vec![engine(1, 3)], lanes, ..Facts::default() };
        for check in facts.judge() {
            assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        }
        for check in Facts::default().judge() {
            assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        }
    }

    #[test]
    fn each_fault_has_its_verdict() {
        use Verdict::{Ok, Warning, Wrong};
        let well = |instances, lanes| Facts { instances, lanes, ..Facts::default() };
        for (facts, name, verdict) in [
            (well(vec![engine(31, 2)], vec![]), "orphaned tasks", Wrong),
            (well(vec![engine(31, 0)], vec![]), "orphaned tasks", Ok),
            (well(vec![engine(31, 0)], vec![]), "heartbeats", Warning),
            (well(vec![engine(20, 0)], vec![]), "heartbeats", Wrong),
            (
                well(vec![engine(1, 0)], vec![lane("default", "x", Some(5))]),
                "unknown classes",
                Warning,
            ),
            (
                well(vec![engine(1, 0)], vec![lane("default", "x", Some(61))]),
                "unknown classes",
                Wrong,
            ),
            (well(vec![], vec![lane("default", "known", Some(61))]), "unknown classes", Wrong),
            (
                well(vec![engine(1, 0)], vec![lane("q", "known", Some(61))]),
                "unserved queues",
                Wrong,
            ),
            (
                well(vec![engine(1, 0)], vec![lane("q", "known", Some(301))]),
                "oldest due task",
                Warning,
            ),
            (Facts { failed: 2, ..Facts::default() }, "failures", Warning),
        ] {
            let checks = facts.judge();
            assert_eq!(of(&checks, name).verdict, verdict, "{:?}", of(&checks, name));
        }
        let checks = well(vec![engine(31, 2)], vec![]).judge();
        assert_eq!(
            of(&checks, "orphaned tasks").remedy.as_deref(),
            Some(r"task-engine recover 'it'\''s me'")
        );
    }

    #[test]
    fn a_pause_is_wrong_when_it_has_held_up_tasks_for_a_day() {
        let facts = |hours: u64, due| Facts {
            paused: vec![PausedQueue {
                queue: "q".into(),
                reason: None,
                paused_at: Timestamp::UNIX_EPOCH,
            }],
            paused_for: vec![Duration::from_secs(hours * 3600)],
            lanes: vec![lane("q", "known", due)],
            ..Facts::default()
        };
        for (hours, due, verdict) in [
            (1, Some(9), Verdict::Warning),
            (25, None, Verdict::Warning),
            (25, Some(9), Verdict::Wrong),
        ] {
            assert_eq!(of(&facts(hours, due).judge(), "paused queues").verdict, verdict);
        }
    }
}
