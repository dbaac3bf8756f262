//! The verdicts about the facts of a store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::{Check, CheckFacts, FailedClass, Verdict};
use crate::activity::HeldAttempt;
use task_engine_core::display::span;
use task_engine_core::instance::{InstanceRow, InstanceState};

/// A class or a queue that waits for longer than this waits for no engine.
const DUE_TIMEOUT: Duration = Duration::from_secs(60);
/// A slot that is due for longer than this is stuck: engines fire slots at once.
const SLOT_TIMEOUT: Duration = Duration::from_secs(60);
const OLDEST_DUE_WARNING: Duration = Duration::from_secs(5 * 60);
const PAUSE_WARNING: Duration = Duration::from_secs(24 * 3600);
/// An attempt without a report for longer than this may hang.
const SILENT_WARNING: Duration = Duration::from_secs(3600);
/// An attempt that is cancelled because of its time limit has this long to end.
const TIMEOUT_GRACE: Duration = Duration::from_secs(60);

impl CheckFacts {
    /// Evaluates the facts.
    ///
    /// If no engine is alive, the consequences are part of that one finding.
    #[must_use]
    pub fn evaluate(&self) -> Vec<Check> {
        if self.alive().next().is_none() {
            let broken = self.broken_schedules().unwrap_or_else(|| {
                Check::ok("schedules", "none has an error; an engine would fire those that are due")
            });
            return vec![self.no_engine(), self.paused_queues(), broken, self.failures()];
        }
        vec![
            self.engines(),
            self.orphans(),
            self.long_running(),
            self.classes(),
            self.queues(),
            self.paused_queues(),
            self.schedules(),
            self.oldest_due(),
            self.failures(),
        ]
    }

    fn alive(&self) -> impl Iterator<Item = &InstanceRow> {
        self.instances.iter().filter(|session| session.is_alive())
    }

    /// Dead engines that hold tasks, and how many they hold.
    fn dead_holders(&self) -> (BTreeSet<&str>, i64) {
        let dead = self.instances.iter().filter(|session| !session.is_alive() && session.held > 0);
        let names = dead.clone().map(|session| session.name.as_str()).collect();
        (names, dead.map(|session| session.held).sum())
    }

    fn no_engine(&self) -> Check {
        let (holders, held) = self.dead_holders();
        let due: Vec<_> = self
            .lanes
            .iter()
            .filter_map(|lane| Some((lane.class.as_str(), lane.due_for?)))
            .collect();
        let longest = due.iter().map(|(_, due_for)| *due_for).max().unwrap_or_default();
        let late = self.due_schedules.iter().filter(|(_, due_for, _)| *due_for > SLOT_TIMEOUT);
        let late = late.count();
        let mut reason = vec!["no engine is alive".to_owned()];
        if !due.is_empty() {
            let classes: BTreeSet<_> = due.iter().map(|(class, _)| *class).collect();
            reason.push(format!(
                "tasks of {} are due, the first for {}",
                list(classes.into_iter()),
                span(longest)
            ));
        }
        if held > 0 {
            let names = list(holders.into_iter());
            reason.push(format!("dead engines hold {}: {names}", tasks(held)));
        }
        if late > 0 {
            reason.push(format!("{} due and not fired", schedules(late)));
        }
        if let Some(last) = self.instances.iter().min_by_key(|session| session.heartbeat_age) {
            let age = span(last.heartbeat_age);
            reason.push(format!("the last one, {}, was heard of {age} ago", identity(last)));
        }
        let is_wrong = held > 0 || late > 0 || longest > DUE_TIMEOUT;
        let recovers = if held > 0 { "; it recovers the tasks of dead engines" } else { "" };
        Check::bad(
            "engines",
            if is_wrong { Verdict::Wrong } else { Verdict::Warning },
            reason.join("; "),
            format!("task-engine start, or the application that knows these classes{recovers}"),
        )
    }

    fn orphans(&self) -> Check {
        const NAME: &str = "orphaned_tasks";
        let (names, held) = self.dead_holders();
        if names.is_empty() {
            return Check::ok(NAME, "no dead engine holds a task");
        }
        Check::bad(
            NAME,
            Verdict::Wrong,
            format!("{} held by dead engines: {}", tasks(held), list(names.iter().copied())),
            each(names.iter().map(|name| format!("task-engine recover {}", word(name)))),
        )
    }

    /// Engines that are late, or dead without holding a task. Those that hold tasks have
    /// their own check.
    fn engines(&self) -> Check {
        const NAME: &str = "engines";
        let (mut late, mut dead) = (Vec::new(), Vec::new());
        for session in self.instances.iter().filter(|session| !session.has_ended()) {
            if session.is_alive() && session.heartbeat_age > session.lease / 2 {
                late.push(session);
            } else if !session.is_alive() && session.held == 0 {
                dead.push(session);
            }
        }
        let one = |session: &&InstanceRow| {
            let how = match session.state() {
                InstanceState::ProcessGone => "its process is gone".to_owned(),
                _ => format!(
                    "last heard of {} ago, its lease is {}",
                    span(session.heartbeat_age),
                    span(session.lease)
                ),
            };
            format!("{}: {how}", identity(session))
        };
        let alive = self.alive().count();
        if late.is_empty() && dead.is_empty() {
            return Check::ok(NAME, format!("{alive} alive, none of them late"));
        }
        let words = late.iter().chain(&dead).map(one).collect::<Vec<_>>().join("; ");
        if late.is_empty() {
            let remedy = each(
                dead.iter()
                    .map(|session| session.name.as_str())
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .map(|name| format!("task-engine recover {}", word(name))),
            );
            return Check::bad(NAME, Verdict::Warning, format!("{alive} alive; {words}"), remedy);
        }
        let remedy = "look at the late ones: is the process stopped, its machine overloaded, or its way to the database slow?";
        Check::bad(NAME, Verdict::Wrong, words, remedy)
    }

    /// Attempts that run although their time limit is over, or have said nothing
    /// for long.
    fn long_running(&self) -> Check {
        const NAME: &str = "long_running_tasks";
        let (mut stuck, mut silent) = (Vec::new(), Vec::new());
        for held in &self.held {
            let Some(engine) = self.alive().find(|session| session.id == held.instance_id) else {
                continue;
            };
            let age = |time: Timestamp| self.now.duration_since(time).unsigned_abs();
            let runs_for = age(held.claimed_at);
            let said = held.progress.as_ref().map(|progress| age(progress.reported_at));
            let limit = engine.classes.get(&held.class).and_then(|options| options.timeout);
            if limit.is_some_and(|limit| runs_for > limit.saturating_add(TIMEOUT_GRACE)) {
                stuck.push((held, runs_for, engine));
            } else if said.unwrap_or(runs_for).min(runs_for) > SILENT_WARNING {
                silent.push((held, runs_for, engine));
            }
        }
        let words = |all: &[(&HeldAttempt, Duration, &InstanceRow)]| {
            let shown = all.iter().take(5).map(|(held, runs_for, engine)| {
                let (id, class) = (held.task_id, &held.class);
                format!("{id} ({class}) on {} for {}", engine.name, span(*runs_for))
            });
            let more = all.len().saturating_sub(5);
            let more = if more > 0 { format!(" and {more} others") } else { String::new() };
            format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
        };
        if let Some((first, ..)) = stuck.first() {
            return Check::bad(
                NAME,
                Verdict::Wrong,
                format!("running although their time limit is over: {}", words(&stuck)),
                format!(
                    "task-engine show {}: its code blocks its thread; restart its engine to free the worker",
                    first.task_id
                ),
            );
        }
        if let Some((first, ..)) = silent.first() {
            return Check::bad(
                NAME,
                Verdict::Warning,
                format!("running for more than an hour without a word: {}", words(&silent)),
                format!(
                    "task-engine show {0}; if it hangs: task-engine cancel {0}. Tasks that are long by nature should report progress, or have a time limit",
                    first.task_id
                ),
            );
        }
        Check::ok(NAME, "none is beyond its time limit, or silent for an hour")
    }

    /// Due tasks of classes that no living engine knows.
    fn classes(&self) -> Check {
        const NAME: &str = "unknown_classes";
        let known: BTreeSet<&str> =
            self.alive().flat_map(|session| session.classes.keys().map(String::as_str)).collect();
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
        Check::bad(
            NAME,
            waits_for_no_engine(longest),
            format!(
                "no living engine knows {}; the first task has been due for {}",
                list(unknown.keys().copied()),
                span(longest)
            ),
            format!(
                "start the application that knows the class; or, if it is a mistake: {}",
                each(unknown.keys().map(|class| {
                    let filter = format!("status=waiting class={}", value(class));
                    format!("task-engine cancel {}", word(&filter))
                }))
            ),
        )
    }

    fn queues(&self) -> Check {
        const NAME: &str = "unserved_queues";
        let served: BTreeSet<&str> = self
            .alive()
            .flat_map(|session| {
                session.pools.iter().flat_map(|pool| &pool.queues).chain(&session.queues)
            })
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
            waits_for_no_engine(longest),
            format!(
                "no living engine takes from {}; the first task has been due for {}",
                list(unserved.keys().copied()),
                span(longest)
            ),
            each(commands),
        )
    }

    fn paused_queues(&self) -> Check {
        const NAME: &str = "paused_queues";
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

    fn broken_schedules(&self) -> Option<Check> {
        let (first, _) = self.broken_schedules.first()?;
        let errors = self.broken_schedules.iter();
        let errors = errors.map(|(name, error)| format!("{name} cannot fire: {error}"));
        Some(Check::bad(
            "schedules",
            Verdict::Wrong,
            errors.collect::<Vec<_>>().join("; "),
            format!(
                "task-engine schedules show {0}, then change it, or: task-engine schedules remove {0}",
                word(first)
            ),
        ))
    }

    fn schedules(&self) -> Check {
        const NAME: &str = "schedules";
        if let Some(broken) = self.broken_schedules() {
            return broken;
        }
        let late = self.due_schedules.iter().filter(|(_, due_for, _)| *due_for > SLOT_TIMEOUT);
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
                "engines fire them, and some are alive: look at their log",
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
        const NAME: &str = "oldest_due_task";
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
        let failed: i64 = self.failed.iter().map(|one| one.tasks).sum();
        let mut by_number: Vec<&FailedClass> = self.failed.iter().collect();
        by_number.sort_by_key(|one| (std::cmp::Reverse(one.tasks), &one.class));
        let Some(first) = by_number.first() else {
            return Check::ok(NAME, "no task has failed in the last hour");
        };
        let at_least = if self.failed_and_more { "at least " } else { "" };
        let classes = by_number.iter().map(|one| format!("{} ({})", one.class, one.tasks));
        let classes: Vec<_> = classes.collect();
        let reason = format!(
            "{at_least}{} failed for good in the last hour: {}",
            tasks(failed),
            list(classes.iter().map(String::as_str))
        );
        let remedy = if failed == 1 {
            format!(
                "task-engine show {0}; then, to try it again: task-engine retry {0}",
                first.newest
            )
        } else {
            let retry = by_number.iter().map(|one| {
                let filter = format!("status=failed class={} updated>now-1h", value(&one.class));
                format!("task-engine retry {}", word(&filter))
            });
            format!("task-engine errors; then, to try them again: {}", each(retry))
        };
        Check::bad(NAME, Verdict::Warning, reason, remedy)
    }
}

fn identity(session: &InstanceRow) -> String {
    format!("{} (process {} on {})", session.name, session.pid, session.host)
}

/// A name as a value in a filter.
fn value(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

/// Engines are stopped and started: for a moment that is as it should be.
fn waits_for_no_engine(due_for: Duration) -> Verdict {
    if due_for > DUE_TIMEOUT { Verdict::Wrong } else { Verdict::Warning }
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
