//! Explains why a task does not run: it turns facts into reasons, the most important first.
//!
//! [`why`] reads the facts; [`sentences::reason`] has the text of a reason.

mod gather;
pub mod sentences;

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use task_engine_core::dependency::DependencyCondition;
use task_engine_core::display::{StepEntry, StepState};
use task_engine_core::instance::InstanceRow;
use task_engine_core::limit::{Rate, TaskLimit};
use task_engine_core::progress::ProgressRow;
use task_engine_core::queue::{BoundedCount, PausedQueue, Pool};
use task_engine_core::retry::RetryOverride;
use task_engine_core::task::{ExecutionStatus, TaskDetails, TaskId, TaskRow, TaskStatus};
use task_engine_store::activity::{Activity, EndingRow};
use task_engine_store::lock::BlockingSession;
use task_engine_store::queue_position::{QueuePosition, QueuePositionQuery};

use crate::limits::{KeyClosing, KeyWait, LimitHolder, closing, key_wait, next_start_at};

pub use gather::{Explanation, why};

/// The facts about a task and about the engines that could run it.
#[derive(Debug, Clone)]
pub struct TaskFacts<'a> {
    /// The task.
    pub task: &'a TaskDetails,
    /// Running and next tasks.
    pub activity: &'a Activity,
    /// Engines, live and dead.
    pub engines: &'a [InstanceRow],
    /// Set if its queue is paused.
    pub paused: Option<&'a PausedQueue>,
    /// Its position in the queue, if it waits.
    pub position: Option<&'a QueuePosition>,
    /// Attempts that ended within the last [`RATE_PERIOD`].
    pub endings: &'a [EndingRow],
    /// Sessions that have locked whole tables.
    pub table_locks: &'a [BlockingSession],
    /// The sleeps, waits and calls that it is suspended by, if it is.
    pub open_steps: &'a [StepEntry],
    /// The children that it waits for, if it does.
    pub open_children: &'a OpenChildren,
    /// The tasks that it depends on, if it waits for them or was cancelled because of one.
    pub dependencies: &'a TaskDependencies,
    /// Its limits, if it waits.
    pub limits: &'a [TaskLimit],
    /// Tasks that hold a key in order and wait.
    pub waiting_holders: &'a [WaitingHolder],
}

/// A task that holds a key in order and waits.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingHolder {
    /// The task.
    pub row: TaskRow,
    /// The sleeps, waits and calls that it is suspended by, if it is.
    pub open_steps: Vec<StepEntry>,
}

/// Children of a task that have not ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpenChildren {
    /// How many.
    pub number: BoundedCount,
    /// Some of them.
    pub some: Vec<OpenChild>,
}

/// A child that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OpenChild {
    /// Its id.
    pub id: TaskId,
    /// Its status.
    pub status: TaskStatus,
}

/// The tasks that a task depends on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskDependencies {
    /// How many there are.
    pub all: BoundedCount,
    /// How many of them have not ended.
    pub open: BoundedCount,
    /// Some of those.
    pub some: Vec<OpenDependency>,
    /// The tasks from the one that did not succeed first to the one that this task depends on.
    pub failed: Vec<FailedDependency>,
}

/// A task that has not ended, and that another one depends on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpenDependency {
    /// Its id.
    pub id: TaskId,
    /// Its name in its flow, if it has one.
    pub name: Option<String>,
    /// Its class.
    pub class: String,
    /// Its status.
    pub status: TaskStatus,
    /// Whether it waits for other tasks itself.
    pub is_blocked: bool,
    /// The number of the retry that it waits for; 0 if it has not failed.
    pub retry: i32,
    /// When it is due, if it waits.
    pub due_at: Option<Timestamp>,
    /// Since when it runs.
    pub since: Option<Timestamp>,
    /// The engine that runs it.
    pub instance: Option<String>,
    /// When it may start the dependent task.
    pub condition: DependencyCondition,
}

/// A task that did not succeed, so that others were cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedDependency {
    /// Its id.
    pub id: TaskId,
    /// Its name in its flow, if it has one.
    pub name: Option<String>,
    /// Its status; `None` if it was removed.
    pub status: Option<TaskStatus>,
}

/// The requirements of a task to an engine.
#[derive(Debug, Clone, Copy)]
pub struct Requirements<'a> {
    /// A handler for this class.
    pub class: &'a str,
    /// A worker for this queue.
    pub queue: &'a str,
    /// A worker for this priority.
    pub priority: i32,
}

impl<'a> From<&'a TaskRow> for Requirements<'a> {
    fn from(row: &'a TaskRow) -> Self {
        Self { class: &row.class, queue: &row.queue, priority: row.priority }
    }
}

/// The period over which the rate of ended tasks is measured.
pub const RATE_PERIOD: Duration = Duration::from_secs(300);
/// An engine polls at least this often, even if notifications are lost.
pub const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// One reason for the status of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The task has ended.
    Ended {
        /// Its status.
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
        /// Its last progress report.
        progress: Option<ProgressRow>,
        /// The age of its engine's last heartbeat, in seconds.
        heartbeat_age_secs: Option<f64>,
        /// The lease of its engine, in seconds: without a heartbeat it counts as dead then.
        lease_secs: Option<f64>,
        /// Whether its engine counts as alive.
        engine_is_alive: bool,
        /// Whether the process of its engine has ended on the machine that reads this.
        engine_process_gone: bool,
        /// When a cancel request was made, if one is pending.
        cancel_requested_at: Option<Timestamp>,
    },
    /// An attempt failed, and the task waits for a retry.
    Retry {
        /// Its number.
        retry: i32,
        /// The most retries, if an engine declared its rule.
        of: Option<u32>,
        /// When it is due.
        due_at: Timestamp,
        /// The error of the last attempt.
        error: Option<String>,
    },
    /// Its last attempt postponed it, without using a retry.
    Snoozed {
        /// Until when.
        due_at: Timestamp,
        /// The reason that the attempt gave.
        because: String,
    },
    /// It waits for a signal.
    WaitingForSignal {
        /// The task.
        task_id: TaskId,
        /// The name of the signal.
        signal: String,
        /// The deadline of the wait.
        until: Timestamp,
    },
    /// It sleeps.
    Sleeping {
        /// The name of the sleep.
        step: String,
        /// Until when.
        until: Timestamp,
    },
    /// It waits for child tasks.
    WaitingForChildren {
        /// How many it waits for.
        children: usize,
        /// How many of them have not ended.
        open: BoundedCount,
        /// Some of those.
        some: Vec<OpenChild>,
    },
    /// It waits for tasks that it depends on.
    Blocked {
        /// How many it depends on.
        dependencies: BoundedCount,
        /// How many of them have not ended.
        open: BoundedCount,
        /// Some of those.
        some: Vec<OpenDependency>,
    },
    /// It was cancelled because a task that it depends on did not succeed.
    DependencyFailed {
        /// The task that did not succeed first.
        first: FailedDependency,
        /// The tasks between that one and this one, which were cancelled, too.
        through: Vec<TaskId>,
    },
    /// The task is not due.
    NotDue {
        /// When it is due.
        due_at: Timestamp,
    },
    /// Its queue is paused.
    QueuePaused {
        /// The queue.
        queue: String,
        /// Since when.
        since: Timestamp,
        /// Why.
        because: Option<String>,
    },
    /// There is no live engine.
    NoEngine {
        /// The last heartbeat of any engine.
        last_seen: Option<Timestamp>,
    },
    /// No live engine has a handler for its class.
    UnknownClass {
        /// The class.
        class: String,
        /// Live engines and their classes.
        engines: Vec<EngineOffer>,
    },
    /// No live engine with a handler for its class serves its queue.
    QueueNotServed {
        /// The queue.
        queue: String,
        /// Live engines with a handler, and their queues.
        engines: Vec<EngineOffer>,
    },
    /// The workers of its queue take only higher priorities.
    PriorityTooLow {
        /// Its priority.
        priority: i32,
        /// The lowest priority that is taken.
        lowest: i32,
        /// The engines of these workers.
        engines: Vec<String>,
    },
    /// Another session has locked the task or its tables.
    Locked(BlockingSession),
    /// A limit keeps it from starting.
    Limited(LimitedBy),
    /// All workers that could take it are busy.
    WorkersBusy {
        /// How many workers.
        workers: i32,
        /// When the longest running attempt began.
        oldest_since: Option<Timestamp>,
    },
    /// Other tasks are ahead of it.
    Behind {
        /// How many tasks.
        ahead: BoundedCount,
        /// The estimated time until it starts, in seconds; `None` without a recent rate.
        estimated_secs: Option<f64>,
    },
    /// Nothing prevents it from running.
    Ready {
        /// It starts within this many seconds.
        within_secs: f64,
    },
}

impl Reason {
    /// The tokens of all reasons: a closed list.
    pub const TOKENS: [&'static str; 20] = [
        "ended",
        "running",
        "retry",
        "snoozed",
        "waiting_for_signal",
        "sleeping",
        "waiting_for_children",
        "blocked",
        "dependency_failed",
        "not_due",
        "queue_paused",
        "no_engine",
        "unknown_class",
        "queue_not_served",
        "priority_too_low",
        "locked",
        "limited",
        "workers_busy",
        "behind",
        "ready",
    ];
}

impl From<PausedQueue> for Reason {
    fn from(paused: PausedQueue) -> Self {
        let PausedQueue { queue, paused_at: since, reason: because } = paused;
        Self::QueuePaused { queue, since, because }
    }
}

/// The limit that keeps a task from starting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LimitedBy {
    /// The task that waits.
    pub task_id: TaskId,
    /// The limit.
    pub limit: String,
    /// The parameter of its keys, if it has one.
    pub parameter: Option<String>,
    /// The key of the task; empty if it has none.
    pub key: String,
    /// What the task waits for.
    pub waits_for: KeyWait,
    /// The most running attempts.
    pub max: Option<u32>,
    /// The most starts in a window.
    pub rate: Option<Rate>,
    /// How many attempts hold the key.
    pub held: usize,
    /// Some of them.
    pub holders: Vec<LimitHolder>,
    /// The earliest time of the next start, if it is known.
    pub next_start_at: Option<Timestamp>,
    /// Set while the key is closed.
    pub closed: Option<KeyClosing>,
}

/// An engine, and the classes or queues that it serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EngineOffer {
    /// Its name.
    pub instance: String,
    /// The classes or the queues.
    pub names: Vec<String>,
}

/// The query for the tasks ahead of a task: all that its candidate engines would claim.
pub(crate) fn queue_position_query(
    task: &TaskDetails,
    engines: &[InstanceRow],
) -> QueuePositionQuery {
    let mut query = QueuePositionQuery { id: task.row.id, queues: Vec::new(), classes: Vec::new() };
    for (engine, pool) in candidates((&task.row).into(), engines) {
        query.queues.extend(pool.queues.iter().cloned());
        query.classes.extend(engine.classes.keys().cloned());
    }
    for names in [&mut query.queues, &mut query.classes] {
        names.sort();
        names.dedup();
    }
    query
}

/// Returns the reasons for the status of a task, the most important first.
///
/// Never empty.
#[must_use]
pub fn reasons(facts: &TaskFacts<'_>) -> Vec<Reason> {
    match facts.task.row.status {
        TaskStatus::Waiting => waiting(facts),
        TaskStatus::Running => [running(facts)].into_iter().chain(table_locks(facts)).collect(),
        status => {
            let ended = Reason::Ended {
                status,
                at: facts.task.row.updated_at,
                error: facts.task.row.error.as_ref().map(ToString::to_string),
            };
            [ended].into_iter().chain(dependency_failed(facts)).collect()
        }
    }
}

fn dependency_failed(facts: &TaskFacts<'_>) -> Option<Reason> {
    let (first, through) = facts.dependencies.failed.split_first()?;
    let through = through.iter().map(|one| one.id).collect();
    Some(Reason::DependencyFailed { first: first.clone(), through })
}

fn blocked(facts: &TaskFacts<'_>) -> Vec<Reason> {
    let TaskDependencies { all, open, some, .. } = facts.dependencies.clone();
    let mut reasons = vec![Reason::Blocked { dependencies: all, open, some }];
    if facts.task.row.scheduled_at > facts.activity.now {
        reasons.push(Reason::NotDue { due_at: facts.task.row.scheduled_at });
    }
    reasons.extend(facts.paused.cloned().map(Reason::from));
    reasons.extend(no_candidate((&facts.task.row).into(), facts.engines));
    reasons
}

fn running(facts: &TaskFacts<'_>) -> Reason {
    let row = &facts.task.row;
    let attempt = facts.task.executions.iter().rfind(|one| one.status == ExecutionStatus::Running);
    let held = facts.activity.held.iter().find(|held| held.task_id == row.id);
    let is_holder = |engine: &&InstanceRow| match held {
        Some(held) => engine.id == held.instance_id,
        // Activity was read a moment before or after the task.
        None => Some(&engine.name) == row.instance.as_ref(),
    };
    let engine = facts.engines.iter().find(is_holder);
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
    if row.is_blocked {
        return blocked(facts);
    }
    let is_due = row.scheduled_at <= facts.activity.now;
    let mut reasons = Vec::new();
    let last = facts.task.executions.last();
    let snoozed = last.filter(|one| one.status == ExecutionStatus::Snoozed);
    let suspended = if is_due { Vec::new() } else { suspended(facts) };
    if !suspended.is_empty() {
        reasons.extend(suspended);
    } else if let Some(snoozed) = snoozed.filter(|_| !is_due) {
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
        reasons.extend(
            facts.position.and_then(|position| position.locked_by.clone()).map(Reason::Locked),
        );
        if facts.paused.is_none() {
            let limited: Vec<_> = limited(facts).collect();
            let is_limited = !limited.is_empty();
            reasons.extend(limited);
            reasons.extend(queued(facts, is_limited));
        }
    }
    if reasons.is_empty() {
        reasons.push(Reason::Ready { within_secs: POLL_INTERVAL.as_secs_f64() });
    }
    reasons
}

/// What a durable task waits for.
fn suspended(facts: &TaskFacts<'_>) -> Vec<Reason> {
    let (row, steps) = (&facts.task.row, facts.open_steps);
    let mut reasons = Vec::new();
    for step in steps {
        let (name, until) = (step.name.clone(), step.until.unwrap_or(row.scheduled_at));
        match step.state {
            StepState::Waiting => {
                reasons.push(Reason::WaitingForSignal { task_id: row.id, signal: name, until });
            }
            StepState::Sleeping => reasons.push(Reason::Sleeping { step: name, until }),
            _ => {}
        }
    }
    let calls = steps.iter().filter(|step| step.state == StepState::Running);
    let children: usize = calls.map(|step| step.children.len()).sum();
    if children > 0 {
        let OpenChildren { number: open, some } = facts.open_children.clone();
        reasons.push(Reason::WaitingForChildren { children, open, some });
    }
    reasons
}

/// No task is claimed or recorded while a session has locked the tables.
fn table_locks(facts: &TaskFacts<'_>) -> impl Iterator<Item = Reason> {
    facts.table_locks.iter().cloned().map(Reason::Locked)
}

/// The limits that keep a due task from starting.
fn limited(facts: &TaskFacts<'_>) -> impl Iterator<Item = Reason> {
    facts.limits.iter().filter_map(|limit| limited_by(facts, limit)).map(Reason::Limited)
}

fn limited_by(facts: &TaskFacts<'_>, limit: &TaskLimit) -> Option<LimitedBy> {
    let TaskLimit { limit: row, usage } = limit;
    let (own, options) = (facts.task.row.id, &row.limit.options);
    let mut usage = usage.clone();
    // A task that holds its key in order does not wait for itself.
    usage.holders.retain(|holder| holder.attempt.task_id != own || holder.is_running);
    let holders = usage.holders.iter().take(HOLDERS_NAMED).map(|holder| {
        let known = LimitHolder::of(holder, facts.activity, facts.engines);
        let task = facts.waiting_holders.iter().find(|task| task.row.id == known.task_id);
        known.waiting_as(task)
    });
    Some(LimitedBy {
        task_id: own,
        limit: row.limit.name.clone(),
        parameter: options.key.clone(),
        key: usage.key.clone(),
        waits_for: key_wait(row, &usage)?,
        max: options.max_running(),
        rate: options.rate,
        held: usage.holders.len(),
        holders: holders.collect(),
        next_start_at: next_start_at(&usage, facts.activity.now),
        closed: closing(&usage),
    })
}

/// So many holders of a key are named.
pub(crate) const HOLDERS_NAMED: usize = 5;

/// The most retries: by the newest engine with a handler, and by the task's own context.
fn retries(facts: &TaskFacts<'_>) -> Option<u32> {
    let own = RetryOverride::of(&facts.task.context).unwrap_or_default();
    let rule = facts.engines.iter().find_map(|one| one.classes.get(&facts.task.row.class))?;
    Some(rule.retry.with(&own).maximum)
}

/// Returns why no live engine would ever take such a task, if so.
#[must_use]
pub fn no_candidate(required: Requirements<'_>, engines: &[InstanceRow]) -> Option<Reason> {
    let alive: Vec<_> = engines.iter().filter(|engine| engine.is_alive()).collect();
    if alive.is_empty() {
        let last_seen = engines.iter().map(|engine| engine.heartbeat_at).max();
        return Some(Reason::NoEngine { last_seen });
    }
    let has_handler = |engine: &&InstanceRow| engine.classes.contains_key(required.class);
    let with_handler: Vec<_> = alive.iter().copied().filter(has_handler).collect();
    if with_handler.is_empty() {
        let engines = offers(&alive, |engine| engine.classes.keys().cloned().collect());
        return Some(Reason::UnknownClass { class: required.class.to_owned(), engines });
    }
    let serves = |engine: &&InstanceRow| engine.queues.iter().any(|queue| queue == required.queue);
    let serving: Vec<_> = with_handler.iter().copied().filter(serves).collect();
    if serving.is_empty() {
        let engines = offers(&with_handler, |engine| engine.queues.clone());
        return Some(Reason::QueueNotServed { queue: required.queue.to_owned(), engines });
    }
    if !candidates(required, engines).is_empty() {
        return None;
    }
    let pools = serving.iter().flat_map(|engine| &engine.pools);
    let pools = pools.filter(|pool| pool.queues.iter().any(|queue| queue == required.queue));
    Some(Reason::PriorityTooLow {
        priority: required.priority,
        lowest: pools.filter_map(|pool| pool.lowest_priority).min().unwrap_or_default(),
        engines: serving.iter().map(|engine| engine.name.clone()).collect(),
    })
}

fn offers(engines: &[&InstanceRow], names: fn(&InstanceRow) -> Vec<String>) -> Vec<EngineOffer> {
    let offer =
        |engine: &&InstanceRow| EngineOffer { instance: engine.name.clone(), names: names(engine) };
    engines.iter().map(offer).collect()
}

/// The pools of live engines that would take it.
fn candidates<'a>(
    required: Requirements<'_>,
    engines: &'a [InstanceRow],
) -> Vec<(&'a InstanceRow, Cow<'a, Pool>)> {
    let mut candidates = Vec::new();
    for engine in engines.iter().filter(|engine| engine.is_alive()) {
        if !engine.classes.contains_key(required.class) {
            continue;
        }
        // Without pools, all workers serve all queues.
        let whole = Pool::new(engine.queues.clone(), engine.workers);
        let pools: Vec<_> = if engine.pools.is_empty() {
            vec![Cow::Owned(whole)]
        } else {
            engine.pools.iter().map(Cow::Borrowed).collect()
        };
        let takes = |pool: &Cow<'_, Pool>| {
            pool.takes_class(required.class, &engine.pools)
                && takes(pool, required.queue, required.priority)
        };
        candidates.extend(pools.into_iter().filter(takes).map(|pool| (engine, pool)));
    }
    candidates
}

fn takes(pool: &Pool, queue: &str, priority: i32) -> bool {
    let fits = pool.lowest_priority.is_none_or(|lowest| priority >= lowest);
    fits && pool.queues.iter().any(|name| name == queue)
}

/// Why a due task with candidate engines does not start yet.
fn queued(facts: &TaskFacts<'_>, is_limited: bool) -> Vec<Reason> {
    let candidates = candidates((&facts.task.row).into(), facts.engines);
    let mut reasons = Vec::new();
    let workers: i32 = candidates.iter().map(|(_, pool)| pool.workers).sum();
    // An approximation: which worker runs which task is not recorded before its end.
    let mut busy: Vec<_> = facts
        .activity
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
    if let Some(ahead) =
        facts.position.map(|position| position.tasks).filter(|ahead| ahead.counted > 0)
    {
        // A limited task waits for its limit, however fast the tasks ahead are.
        let estimated_secs = if is_limited { None } else { estimate(facts, &candidates, ahead) };
        reasons.push(Reason::Behind { ahead, estimated_secs });
    }
    reasons
}

/// How long the tasks ahead take at the recent rate.
fn estimate<P>(
    facts: &TaskFacts<'_>,
    candidates: &[(&InstanceRow, P)],
    ahead: BoundedCount,
) -> Option<f64> {
    let by_candidates = |ending: &&EndingRow| {
        candidates.iter().any(|(engine, _)| Some(engine.id) == ending.instance_id)
    };
    let ages = facts.endings.iter().filter(by_candidates).map(|ending| {
        let age = facts.activity.now.duration_since(ending.stopped_at);
        Duration::try_from(age).unwrap_or_default()
    });
    let ages: Vec<_> = ages.filter(|age| *age <= RATE_PERIOD).collect();
    // Fewer give no rate. An engine that just started is measured over that short time.
    const ENDINGS_MIN: usize = 3;
    if ages.len() < ENDINGS_MIN {
        return None;
    }
    let period = ages.iter().max()?.max(&Duration::from_millis(100)).as_secs_f64();
    let ended = u32::try_from(ages.len()).unwrap_or(u32::MAX);
    #[allow(clippy::cast_precision_loss)] // An estimate.
    let ahead = ahead.counted as f64;
    Some(ahead * period / f64::from(ended))
}

#[cfg(test)]
mod tests;
