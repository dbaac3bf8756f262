//! Checks the promises against three independent sources: ids that producers got,
//! lines that tasks wrote to a file, and the store.

mod durable;
mod flows;
mod limits;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use task_engine::TaskStatus;
use task_engine::{RetryOverride, TaskError};
use task_engine_core::unique::key_of;
use task_engine_store::export::{ExecutionRecord, InstanceRecord, TaskRecord};

pub use self::durable::DurableEvidence;
use self::durable::check_durable;
use self::flows::check_flows;
use self::limits::check_limits;
use crate::commands::RETRIES;
use crate::history::{History, exception_of};
use crate::witness::{ObservedAttempt, Witness};

/// The sources of one run.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The tasks whose creation was confirmed.
    pub acks: BTreeSet<i64>,
    /// The lines of tasks.
    pub witness: Witness,
    /// The history in the store.
    pub history: History,
    /// Earlier histories: ends must not change.
    pub before: Vec<History>,
    /// Processes that ended, and a time when they still ran.
    pub dead: HashMap<u32, Option<i64>>,
    /// When processes were suspended, and when they continued.
    pub suspended: HashMap<u32, Vec<(i64, i64)>>,
    /// Whether tasks have the limits of [`crate::limits`].
    pub limited: bool,
    /// Workers of each process.
    pub workers: HashMap<u32, usize>,
    /// Tasks that an operator has retried, and how often.
    pub requeued: HashMap<i64, usize>,
    /// The violations of `Store::verify`.
    pub verify: Vec<String>,
    /// What is known about durable tasks.
    pub durable: DurableEvidence,
}

/// All broken promises.
#[must_use]
pub fn broken(evidence: &Evidence) -> Vec<String> {
    let mut broken: Vec<String> =
        evidence.verify.iter().map(|words| format!("I2: verify: {words}")).collect();
    broken.extend(
        evidence.witness.contradictions.iter().map(|words| format!("I4: witness: {words}")),
    );
    for id in &evidence.acks {
        if !evidence.history.tasks.contains_key(id) {
            broken.push(format!("I1: task {id} was confirmed and is missing"));
        }
    }
    for task in evidence.history.tasks.values() {
        check_task(evidence, task, &mut broken);
    }
    check_seen(evidence, &mut broken);
    check_unchanged(evidence, &mut broken);
    check_workers(evidence, &mut broken);
    check_keys(evidence, &mut broken);
    check_slots(&evidence.history, &mut broken);
    check_durable(evidence, &mut broken);
    check_limits(evidence, &mut broken);
    check_flows(evidence, &mut broken);
    broken
}

fn check_task(evidence: &Evidence, task: &TaskRecord, broken: &mut Vec<String>) {
    let id = task.id;
    let mut say = |words: String| broken.push(words);
    if matches!(task.status, TaskStatus::Waiting | TaskStatus::Running) {
        say(format!("I8: task {id} is still {}", task.status));
    }
    let ends = task.executions.iter().filter(|e| e.ends_task.is_some()).count();
    let allowed = 1 + evidence.requeued.get(&id).copied().unwrap_or(0) + restored(task);
    if ends == 0 || ends > allowed {
        say(format!("I2: task {id} has ended {ends} times, not 1 to {allowed}"));
    }
    for (place, execution) in task.executions.iter().enumerate() {
        if usize::try_from(execution.attempt) != Ok(place + 1) {
            say(format!("I7: task {id} lacks attempt {}", place + 1));
            break;
        }
    }
    check_retries(task, allowed, &mut say);
    for execution in &task.executions {
        check_success(evidence, id, execution, &mut say);
    }
    for pair in task.executions.windows(2) {
        check_overlap(evidence, id, &pair[0], &pair[1], &mut say);
    }
    for late in &task.late_results {
        if !task.executions.iter().any(|e| e.attempt == late.attempt) {
            say(format!(
                "I5: task {id} has a late result of attempt {}, which has not ended",
                late.attempt
            ));
        }
    }
}

/// How often a task was cancelled because of another one, and restored by its retry.
fn restored(task: &TaskRecord) -> usize {
    let Some((_, before)) = task.executions.split_last() else { return 0 };
    before.iter().filter(|one| exception_of(one) == TaskError::DEPENDENCY_FAILED).count()
}

/// I6: crashes count, releases and snoozes do not.
fn check_retries(task: &TaskRecord, lives: usize, say: &mut impl FnMut(String)) {
    let rule = RetryOverride::of(&task.context).unwrap_or_default();
    let most = rule.maximum.unwrap_or(RETRIES) as usize + 1;
    let free = [
        TaskError::ENGINE_STOPPED,
        TaskError::NEVER_STARTED,
        TaskError::CANCELLED,
        TaskError::SNOOZED,
    ];
    let counted =
        task.executions.iter().filter(|e| !free.contains(&exception_of(e).as_str())).count();
    if counted > most * lives {
        say(format!("I6: task {} was tried {counted} times, not {most} at the most", task.id));
    }
}

/// I3: a recorded success has a witnessed end.
fn check_success(
    evidence: &Evidence,
    id: i64,
    execution: &ExecutionRecord,
    say: &mut impl FnMut(String),
) {
    if execution.error.is_some() {
        return;
    }
    let seen = evidence.witness.attempts.get(&(id, execution.attempt));
    if seen.is_none_or(|seen| seen.ended.is_none()) {
        say(format!(
            "I3: attempt {} of task {id} is a success, and nobody saw it end",
            execution.attempt
        ));
    }
}

/// I4: the next attempt begins after the end of this one, or after the lease of its
/// engine has expired by the database's clock.
fn check_overlap(
    evidence: &Evidence,
    id: i64,
    first: &ExecutionRecord,
    next: &ExecutionRecord,
    say: &mut impl FnMut(String),
) {
    let seen = |attempt| evidence.witness.attempts.get(&(id, attempt)).copied();
    let (Some(one), Some(two)) = (seen(first.attempt), seen(next.attempt)) else {
        return;
    };
    if over(evidence, one).is_some_and(|over| over <= two.began) {
        return;
    }
    let lost = exception_of(first) == TaskError::INSTANCE_LOST;
    let holder = first.instance_id.and_then(|id| evidence.history.instances.get(&id));
    if lost && holder.is_some_and(was_silent) {
        return;
    }
    say(format!(
        "I4: attempt {} of task {id} began {} µs before attempt {} was over ({first:?}, held by {holder:?})",
        next.attempt,
        over(evidence, one).map_or(0, |over| over - two.began),
        first.attempt
    ));
}

/// When an attempt had ended; for a killed one, when it still ran.
fn over(evidence: &Evidence, seen: ObservedAttempt) -> Option<i64> {
    let killed = || evidence.dead.get(&seen.process).map(|time| time.unwrap_or(seen.began));
    seen.ended.or_else(killed)
}

/// Whether a lost engine had sent no heartbeat for its lease.
fn was_silent(engine: &InstanceRecord) -> bool {
    engine.lost_at.is_some_and(|lost| {
        let silent = lost.duration_since(engine.heartbeat_at).as_millis();
        silent >= i128::from(engine.lease_ms)
    })
}

/// I7: a witnessed attempt is recorded.
fn check_seen(evidence: &Evidence, broken: &mut Vec<String>) {
    for (id, attempt) in evidence.witness.attempts.keys() {
        let task = evidence.history.tasks.get(id);
        if !task.is_some_and(|task| task.executions.iter().any(|e| e.attempt == *attempt)) {
            broken.push(format!(
                "I7: attempt {attempt} of task {id} was witnessed and is not recorded"
            ));
        }
    }
}

/// I2: an end does not change.
fn check_unchanged(evidence: &Evidence, broken: &mut Vec<String>) {
    for (id, was) in evidence.before.iter().flat_map(History::executions) {
        let now = evidence.history.tasks.get(&id);
        let now = now.and_then(|task| task.executions.iter().find(|e| e.attempt == was.attempt));
        if now != Some(was) {
            broken.push(format!(
                "I2: attempt {} of task {id} was {was:?} and is {now:?}",
                was.attempt
            ));
        }
    }
}

/// I9: no process runs more at a time than it has workers.
fn check_workers(evidence: &Evidence, broken: &mut Vec<String>) {
    let mut by_process: BTreeMap<u32, Vec<(i64, i32)>> = BTreeMap::new();
    for seen in evidence.witness.attempts.values() {
        if let Some(ended) = seen.ended {
            let changes = by_process.entry(seen.process).or_default();
            changes.extend([(seen.began, 1), (ended, -1)]);
        }
    }
    for (process, mut changes) in by_process {
        // An end before a beginning of the same moment.
        changes.sort_unstable();
        let (mut now, mut most) = (0, 0);
        for (_, change) in changes {
            now += change;
            most = most.max(now);
        }
        let workers = evidence.workers.get(&process).copied();
        if workers.is_some_and(|workers| usize::try_from(most).unwrap_or(0) > workers) {
            broken.push(format!(
                "I9: process {process} ran {most} tasks at a time, with {workers:?} workers"
            ));
        }
    }
}

/// I9: while a task with a key is open, there is no other with it; so they never
/// run at the same time.
fn check_keys(evidence: &Evidence, broken: &mut Vec<String>) {
    let mut by_key: BTreeMap<String, Vec<(i64, i64, i64)>> = BTreeMap::new();
    for task in evidence.history.tasks.values() {
        let Some(key) = key_of(&task.context) else { continue };
        let seen = || evidence.witness.attempts.iter().filter(|((id, _), _)| *id == task.id);
        let began = seen().map(|(_, seen)| seen.began).min();
        let over = seen().map(|(_, seen)| over(evidence, *seen).unwrap_or(i64::MAX)).max();
        if let (Some(began), Some(over)) = (began, over) {
            by_key.entry(key).or_default().push((began, over, task.id));
        }
    }
    for (key, mut runs) in by_key {
        runs.sort_unstable();
        for pair in runs.windows(2) {
            let ((_, over, first), (began, _, next)) = (pair[0], pair[1]);
            if began < over {
                broken.push(format!(
                    "I9: task {next} began while task {first} with the same key {key} was open"
                ));
            }
        }
    }
}

/// I10: one task a slot.
fn check_slots(history: &History, broken: &mut Vec<String>) {
    for schedule in &history.schedules {
        let slots: BTreeSet<_> = schedule.fired_slots.iter().map(|fired| fired.slot).collect();
        let tasks: BTreeSet<_> = schedule.fired_slots.iter().map(|fired| fired.task_id).collect();
        let fired = schedule.fired_slots.len();
        if slots.len() != fired || tasks.len() != fired {
            broken.push(format!(
                "I10: schedule {} fired {fired} tasks for {} slots",
                schedule.name,
                slots.len()
            ));
        }
    }
}

#[cfg(test)]
mod tests;
