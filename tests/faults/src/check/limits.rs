//! I17 to I19: limits, from the lines of tasks.
//!
//! An attempt counts while its engine is alive: until its end, until its process was killed or
//! suspended. What ran after the lease of an engine had expired is not judged.

use std::collections::BTreeMap;

use task_engine::TaskError;
use task_engine_store::export::{ExecutionRecord, TaskRecord};

use super::{Evidence, over, was_silent};
use crate::history::exception_of;
use crate::limits::{ORDERED, RATED, RUNNING_MAX, STARTS_MAX, WINDOW};
use crate::witness::ObservedAttempt;

/// An engine compares the time before it calls the code that writes the line.
const START_TOLERANCE_US: i64 = 50_000;
/// An engine that continues may have compared the time before it was suspended.
const RESUMED_US: i64 = 500_000;

/// An attempt that was witnessed.
struct LimitedAttempt<'a> {
    task: &'a TaskRecord,
    process: u32,
    began: i64,
    /// Until then it certainly ran in a live engine.
    ran_until: i64,
}

pub(super) fn check_limits(evidence: &Evidence, broken: &mut Vec<String>) {
    if !evidence.limited {
        return;
    }
    let mut customers: BTreeMap<String, Vec<LimitedAttempt<'_>>> = BTreeMap::new();
    let mut rated: BTreeMap<String, Vec<LimitedAttempt<'_>>> = BTreeMap::new();
    let mut ordered: BTreeMap<String, Vec<LimitedAttempt<'_>>> = BTreeMap::new();
    for task in evidence.history.tasks.values() {
        let parameters: serde_json::Value = task.parameters.decode().unwrap_or_default();
        let context: serde_json::Value = task.context.decode().unwrap_or_default();
        let key = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        for execution in &task.executions {
            let Some(seen) = evidence.witness.attempts.get(&(task.id, execution.attempt)) else {
                continue;
            };
            let attempt = || LimitedAttempt {
                task,
                process: seen.process,
                began: seen.began,
                ran_until: ran_until(evidence, execution, *seen),
            };
            customers.entry(key(&parameters["customer"])).or_default().push(attempt());
            for (name, by_key) in [(RATED, &mut rated), (ORDERED, &mut ordered)] {
                if let Some(value) = context["limits"].get(name) {
                    by_key.entry(key(value)).or_default().push(attempt());
                }
            }
        }
    }
    for (key, attempts) in customers {
        check_running(&key, &attempts, broken);
    }
    for (key, attempts) in rated {
        check_starts(evidence, &key, &attempts, broken);
    }
    for (key, attempts) in ordered {
        check_order(&key, attempts, broken);
    }
}

fn ran_until(evidence: &Evidence, execution: &ExecutionRecord, seen: ObservedAttempt) -> i64 {
    let holder = execution.instance_id.and_then(|id| evidence.history.instances.get(&id));
    let over = over(evidence, seen);
    if exception_of(execution) != TaskError::INSTANCE_LOST || !holder.is_some_and(was_silent) {
        return over.unwrap_or(i64::MAX);
    }
    // Its engine was declared lost: only the time before it was suspended or killed counts. An
    // attempt that began as the engine continued has no such time.
    let pauses = evidence.suspended.get(&seen.process).into_iter().flatten();
    let suspended = pauses
        .filter(|(_, until)| until.saturating_add(RESUMED_US) >= seen.began)
        .map(|(from, _)| *from);
    let killed = evidence.dead.get(&seen.process).copied().flatten();
    let last = suspended.chain(killed).min().unwrap_or(seen.began);
    over.map_or(last, |over| over.min(last))
}

/// I17: no key has more attempts at a time than its limit allows.
fn check_running(key: &str, attempts: &[LimitedAttempt<'_>], broken: &mut Vec<String>) {
    let mut changes: Vec<(i64, i32, i64)> = Vec::new();
    for attempt in attempts.iter().filter(|attempt| attempt.ran_until > attempt.began) {
        changes.push((attempt.began, 1, attempt.task.id));
        changes.push((attempt.ran_until, -1, attempt.task.id));
    }
    // An end before a beginning of the same moment.
    changes.sort_unstable();
    let mut running: Vec<i64> = Vec::new();
    for (_, change, id) in changes {
        if change < 0 {
            running.retain(|one| *one != id);
            continue;
        }
        running.push(id);
        if running.len() > RUNNING_MAX {
            broken.push(format!("I17: tasks {running:?} of {key} ran at the same time"));
            return;
        }
    }
}

/// I18: no key has more starts in a window than its rate allows.
fn check_starts(
    evidence: &Evidence,
    key: &str,
    attempts: &[LimitedAttempt<'_>],
    broken: &mut Vec<String>,
) {
    let is_exact = |attempt: &&LimitedAttempt<'_>| {
        let mut pauses = evidence.suspended.get(&attempt.process).into_iter().flatten();
        !pauses.any(|(_, until)| (*until..*until + RESUMED_US).contains(&attempt.began))
    };
    let mut starts: Vec<(i64, i64)> =
        attempts.iter().filter(is_exact).map(|attempt| (attempt.began, attempt.task.id)).collect();
    starts.sort_unstable();
    let window = i64::try_from(WINDOW.as_micros()).unwrap_or(i64::MAX) - START_TOLERANCE_US;
    for some in starts.windows(STARTS_MAX + 1) {
        let took = some[STARTS_MAX].0 - some[0].0;
        if took < window {
            broken.push(format!(
                "I18: {} attempts of {key} started within {took} µs: {some:?}",
                some.len()
            ));
            return;
        }
    }
}

/// I19: a task in order begins after the end of the one before it.
fn check_order(key: &str, mut attempts: Vec<LimitedAttempt<'_>>, broken: &mut Vec<String>) {
    attempts.sort_by_key(|attempt| attempt.began);
    for pair in attempts.windows(2) {
        let place = |attempt: &LimitedAttempt<'_>| (attempt.task.scheduled_at, attempt.task.id);
        let (first, next) = (&pair[0], &pair[1]);
        if place(first) > place(next) {
            broken.push(format!(
                "I19: task {} of {key} began after task {}",
                next.task.id, first.task.id
            ));
        }
        if first.ran_until > next.began && first.task.id != next.task.id {
            broken.push(format!(
                "I19: task {} of {key} began before the end of task {}",
                next.task.id, first.task.id
            ));
        }
    }
}
