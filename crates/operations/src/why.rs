//! Why a task does not run: facts in, reasons out, the one to look at first in
//! front. [`why`] gathers the facts; [`crate::why::sentences::reason`] has words for them.

mod gather;
pub mod sentences;

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use task_engine_core::instance::InstanceRow;
use task_engine_core::queue::{Count, PausedQueue, Pool};
use task_engine_core::report::ProgressRow;
use task_engine_core::retry::RetryOverride;
use task_engine_core::task::{ExecutionStatus, TaskDetails, TaskRow, TaskStatus};
use task_engine_store::activity::{Activity, EndingRow};
use task_engine_store::lock::BlockingSession;
use task_engine_store::queue_position::{QueuePosition, QueuePositionQuery};

/// All that is known about a task and about those who could run it.
#[derive(Debug, Clone)]
pub struct TaskFacts<'a> {
    /// The task.
    pub task: &'a TaskDetails,
    /// What goes on.
    pub moving: &'a Activity,
    /// Engines, living and dead.
    pub engines: &'a [InstanceRow],
    /// Set if its queue is paused.
    pub paused: Option<&'a PausedQueue>,
    /// What is before it, if it waits.
    pub ahead: Option<&'a QueuePosition>,
    /// Attempts that ended not longer ago than [`RATE_OVER`].
    pub endings: &'a [EndingRow],
    /// Sessions that have locked whole tables.
    pub table_locks: &'a [BlockingSession],
}

pub use gather::{Why, why};

/// What a task wants of an engine.
#[derive(Debug, Clone, Copy)]
pub struct Requirements<'a> {
    /// That it knows this class,
    pub class: &'a str,
    /// takes from this queue,
    pub queue: &'a str,
    /// and takes tasks of this priority.
    pub priority: i32,
}

impl<'a> From<&'a TaskRow> for Requirements<'a> {
    fn from(row: &'a TaskRow) -> Self {
        Self { class: &row.class, queue: &row.queue, priority: row.priority }
    }
}

/// The rate at which tasks are done now is that of so long.
pub const RATE_OVER: Duration = Duration::from_secs(300);
/// An engine looks for work at least as often, whatever notifications are lost.
pub const POLL: Duration = Duration::from_secs(10);

/// One thing to know about why a task is where it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// It has ended.
    Ended {
        /// How.
        status: TaskStatus,
        /// When.
        at: Timestamp,
        /// The last error.
        error: Option<String>,
    },
    /// It runs.
    Running {
        /// On this engine.
        instance: Option<String>,
        /// Since then.
        since: Timestamp,
        /// The number of the attempt.
        attempt: i32,
        /// What it last said.
        progress: Option<ProgressRow>,
        /// How long ago its engine was heard of, in seconds.
        heartbeat_age_secs: Option<f64>,
        /// After so many seconds without a word, its engine counts as dead.
        lease_secs: Option<f64>,
        /// Whether its engine counts as alive.
        engine_is_alive: bool,
        /// Whether the process of its engine is gone from the machine that asks.
        engine_process_gone: bool,
        /// Since when somebody wants it cancelled.
        cancel_requested_at: Option<Timestamp>,
    },
    /// An attempt failed, and the next one has its time.
    Retry {
        /// Its number.
        retry: i32,
        /// How many there may be, if a living engine knows its rule.
        of: Option<u32>,
        /// When it is due.
        due_at: Timestamp,
        /// What the last attempt failed with.
        error: Option<String>,
    },
    /// Its last attempt postponed it, without using a retry.
    Snoozed {
        /// Until when.
        due_at: Timestamp,
        /// What the attempt said.
        because: String,
    },
    /// Its time has not come.
    NotDue {
        /// When it comes.
        due_at: Timestamp,
    },
    /// Nobody takes tasks from its queue.
    QueuePaused {
        /// The queue.
        queue: String,
        /// Since when.
        since: Timestamp,
        /// Why.
        because: Option<String>,
    },
    /// No engine is alive.
    NoEngine {
        /// When the last one was heard of.
        last_seen: Option<Timestamp>,
    },
    /// No living engine knows its class.
    UnknownClass {
        /// The class.
        class: String,
        /// Who is alive, and what they know.
        engines: Vec<Candidate>,
    },
    /// Those who know its class do not take from its queue.
    QueueNotServed {
        /// The queue.
        queue: String,
        /// Who knows its class, and what they serve.
        engines: Vec<Candidate>,
    },
    /// Those who serve its queue are for higher priorities.
    PriorityTooLow {
        /// Its priority.
        priority: i32,
        /// The lowest that is taken.
        lowest: i32,
        /// By these engines.
        engines: Vec<String>,
    },
    /// Another session has locked it, or the tables that it is in.
    Locked(BlockingSession),
    /// All workers that could take it are busy.
    WorkersBusy {
        /// So many.
        workers: i32,
        /// Since when the one runs that has run longest.
        oldest_since: Option<Timestamp>,
    },
    /// Others come first.
    Behind {
        /// So many.
        ahead: Count,
        /// About how long that takes, in seconds; nothing if nothing ended lately.
        about_secs: Option<f64>,
    },
    /// Nothing stands in its way.
    Ready {
        /// It starts within so many seconds.
        within_secs: f64,
    },
}

impl From<PausedQueue> for Reason {
    fn from(paused: PausedQueue) -> Self {
        let PausedQueue { queue, paused_at: since, reason: because } = paused;
        Self::QueuePaused { queue, since, because }
    }
}

/// An engine, and what it would take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Its name.
    pub instance: String,
    /// The classes, or the queues.
    pub names: Vec<String>,
}

/// What a store is asked for to tell what is before a task: what those would
/// claim who could claim it.
pub(crate) fn queue_position_query(
    task: &TaskDetails,
    engines: &[InstanceRow],
) -> QueuePositionQuery {
    let mut look = QueuePositionQuery { id: task.row.id, queues: Vec::new(), classes: Vec::new() };
    for (engine, pool) in candidates((&task.row).into(), engines) {
        look.queues.extend(pool.queues.iter().cloned());
        look.classes.extend(engine.classes.keys().cloned());
    }
    for names in [&mut look.queues, &mut look.classes] {
        names.sort();
        names.dedup();
    }
    look
}

/// The reasons why a task is where it is, in the order in which somebody should
/// look at them. Never empty.
#[must_use]
pub fn reasons(facts: &TaskFacts<'_>) -> Vec<Reason> {
    match facts.task.row.status {
        TaskStatus::Waiting => waiting(facts),
        TaskStatus::Running => [running(facts)].into_iter().chain(table_locks(facts)).collect(),
        status => vec![Reason::Ended {
            status,
            at: facts.task.row.updated_at,
            error: facts.task.row.error.as_ref().map(ToString::to_string),
        }],
    }
}

fn running(facts: &TaskFacts<'_>) -> Reason {
    let row = &facts.task.row;
    let attempt = facts.task.executions.iter().rfind(|one| one.status == ExecutionStatus::Running);
    let held = facts.moving.held.iter().find(|held| held.task_id == row.id);
    let life = |engine: &&InstanceRow| match held {
        Some(held) => engine.id == held.instance_id,
        // It was not under way when that was asked, a moment apart from this.
        None => Some(&engine.name) == row.instance.as_ref(),
    };
    let engine = facts.engines.iter().find(life);
    Reason::Running {
        instance: row.instance.clone(),
        since: row.updated_at,
        attempt: attempt.map_or(row.attempts, |one| one.attempt),
        progress: attempt.and_then(|one| one.progress.clone()),
        heartbeat_age_secs: engine.map(|engine| engine.heartbeat_age.as_secs_f64()),
        lease_secs: engine.map(|engine| engine.lease.as_secs_f64()),
        engine_is_alive: engine.is_some_and(InstanceRow::is_alive),
        engine_process_gone: engine.is_some_and(|engine| engine.process_gone),
        cancel_requested_at: attempt
            .and_then(|one| one.cancel.as_ref())
            .filter(|_| facts.task.cancel_requested)
            .map(|cancel| cancel.requested_at),
    }
}

fn waiting(facts: &TaskFacts<'_>) -> Vec<Reason> {
    let row = &facts.task.row;
    let is_due = row.scheduled_at <= facts.moving.now;
    let mut reasons = Vec::new();
    let last = facts.task.executions.last();
    let snoozed = last.filter(|one| one.status == ExecutionStatus::Snoozed);
    if let Some(snoozed) = snoozed.filter(|_| !is_due) {
        reasons.push(Reason::Snoozed {
            due_at: row.scheduled_at,
            because: snoozed.error.as_ref().map_or_else(String::new, |why| why.message.clone()),
        });
    } else if row.retry_number > 0 && !is_due {
        reasons.push(Reason::Retry {
            retry: row.retry_number,
            of: retries(facts),
            due_at: row.scheduled_at,
            error: row.error.as_ref().map(ToString::to_string),
        });
    } else if !is_due {
        reasons.push(Reason::NotDue { due_at: row.scheduled_at });
    }
    reasons.extend(facts.paused.cloned().map(Reason::from));
    if is_due {
        reasons.extend(table_locks(facts));
    }
    if let Some(reason) = no_candidate(row.into(), facts.engines) {
        reasons.push(reason);
    } else if is_due {
        reasons.extend(facts.ahead.and_then(|ahead| ahead.locked_by.clone()).map(Reason::Locked));
        if facts.paused.is_none() {
            reasons.extend(no_turn(facts));
        }
    }
    if reasons.is_empty() {
        reasons.push(Reason::Ready { within_secs: POLL.as_secs_f64() });
    }
    reasons
}

/// No task is claimed or recorded while somebody has locked the tables.
fn table_locks(facts: &TaskFacts<'_>) -> impl Iterator<Item = Reason> {
    facts.table_locks.iter().cloned().map(Reason::Locked)
}

/// How many retries it may have: by the newest engine that knows its class, and
/// by its own context.
fn retries(facts: &TaskFacts<'_>) -> Option<u32> {
    let own = RetryOverride::of(&facts.task.context).unwrap_or_default();
    let rule = facts.engines.iter().find_map(|one| one.classes.get(&facts.task.row.class))?;
    Some(rule.retry.with(&own).maximum)
}

/// That nobody alive would take such a task, ever.
#[must_use]
pub fn no_candidate(wanted: Requirements<'_>, engines: &[InstanceRow]) -> Option<Reason> {
    let alive: Vec<_> = engines.iter().filter(|engine| engine.is_alive()).collect();
    if alive.is_empty() {
        let last_seen = engines.iter().map(|engine| engine.heartbeat_at).max();
        return Some(Reason::NoEngine { last_seen });
    }
    let knows = |engine: &&&InstanceRow| engine.classes.contains_key(wanted.class);
    let knowing: Vec<_> = alive.iter().filter(knows).collect();
    if knowing.is_empty() {
        let each = |engine: &&InstanceRow| Candidate {
            instance: engine.name.clone(),
            names: engine.classes.keys().cloned().collect(),
        };
        let engines = alive.iter().map(each).collect();
        return Some(Reason::UnknownClass { class: wanted.class.to_owned(), engines });
    }
    let serves = |engine: &&&&InstanceRow| engine.queues.iter().any(|queue| queue == wanted.queue);
    let serving: Vec<_> = knowing.iter().filter(serves).collect();
    if serving.is_empty() {
        let each = |engine: &&&InstanceRow| Candidate {
            instance: engine.name.clone(),
            names: engine.queues.clone(),
        };
        let engines = knowing.iter().map(each).collect();
        return Some(Reason::QueueNotServed { queue: wanted.queue.to_owned(), engines });
    }
    if !candidates(wanted, engines).is_empty() {
        return None;
    }
    let pools = serving.iter().flat_map(|engine| &engine.pools);
    let pools = pools.filter(|pool| pool.queues.iter().any(|queue| queue == wanted.queue));
    Some(Reason::PriorityTooLow {
        priority: wanted.priority,
        lowest: pools.filter_map(|pool| pool.lowest_priority).min().unwrap_or_default(),
        engines: serving.iter().map(|engine| engine.name.clone()).collect(),
    })
}

/// The pools of living engines that would take it.
fn candidates<'a>(
    wanted: Requirements<'_>,
    engines: &'a [InstanceRow],
) -> Vec<(&'a InstanceRow, std::borrow::Cow<'a, Pool>)> {
    let mut candidates = Vec::new();
    for engine in engines.iter().filter(|engine| engine.is_alive()) {
        if !engine.classes.contains_key(wanted.class) {
            continue;
        }
        // One that says nothing of pools has one for all.
        let whole = Pool::new(engine.queues.clone(), engine.workers);
        let pools: Vec<_> = if engine.pools.is_empty() {
            vec![std::borrow::Cow::Owned(whole)]
        } else {
            engine.pools.iter().map(std::borrow::Cow::Borrowed).collect()
        };
        let takes = |pool: &std::borrow::Cow<'_, Pool>| {
            pool.takes_class(wanted.class, &engine.pools)
                && takes(pool, wanted.queue, wanted.priority)
        };
        candidates.extend(pools.into_iter().filter(takes).map(|pool| (engine, pool)));
    }
    candidates
}

fn takes(pool: &Pool, queue: &str, priority: i32) -> bool {
    let fits = pool.lowest_priority.is_none_or(|lowest| priority >= lowest);
    fits && pool.queues.iter().any(|name| name == queue)
}

/// That it is due and somebody would take it, but not yet.
fn no_turn(facts: &TaskFacts<'_>) -> Vec<Reason> {
    let candidates = candidates((&facts.task.row).into(), facts.engines);
    let mut reasons = Vec::new();
    let workers: i32 = candidates.iter().map(|(_, pool)| pool.workers).sum();
    // What these pools hold, as far as it can be told: which worker has which
    // task is not on record before its end.
    let mut busy: Vec<_> = facts
        .moving
        .held
        .iter()
        .filter(|held| {
            candidates.iter().any(|(engine, pool)| {
                engine.id == held.instance_id && takes(pool, &held.queue, held.priority)
            })
        })
        .collect();
    busy.sort_by_key(|held| held.claimed_at);
    if workers > 0 && busy.len() >= usize::try_from(workers).unwrap_or(0) {
        let oldest_since = busy.first().map(|held| held.claimed_at);
        reasons.push(Reason::WorkersBusy { workers, oldest_since });
    }
    if let Some(ahead) = facts.ahead.map(|ahead| ahead.tasks).filter(|ahead| ahead.counted > 0) {
        reasons.push(Reason::Behind { ahead, about_secs: about(facts, &candidates, ahead) });
    }
    reasons
}

/// How long those before it take at the rate of lately.
fn about<P>(facts: &TaskFacts<'_>, candidates: &[(&InstanceRow, P)], ahead: Count) -> Option<f64> {
    let by_them = |ending: &&EndingRow| {
        candidates.iter().any(|(engine, _)| Some(engine.id) == ending.instance_id)
    };
    let ages = facts.endings.iter().filter(by_them).map(|ending| {
        let age = facts.moving.now.duration_since(ending.stopped_at);
        Duration::try_from(age).unwrap_or_default()
    });
    let ages: Vec<_> = ages.filter(|age| *age <= RATE_OVER).collect();
    // Too few to speak of a rate; an engine that began to work a moment ago is
    // judged by that moment.
    const ENDINGS_MIN: usize = 3;
    if ages.len() < ENDINGS_MIN {
        return None;
    }
    let covered = ages.iter().max()?.max(&Duration::from_millis(100)).as_secs_f64();
    let ended = u32::try_from(ages.len()).unwrap_or(u32::MAX);
    #[allow(clippy::cast_precision_loss)] // It says "about".
    let ahead = ahead.counted as f64;
    Some(ahead * covered / f64::from(ended))
}

#[cfg(test)]
mod tests;
