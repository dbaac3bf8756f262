//! I20 and I21: flows, from the lines of tasks and from the final statuses.

use task_engine::{TaskError, TaskId, TaskStatus};
use task_engine_core::dependency::{
    Dependency, DependencyCondition, DependencyState, DependentNext, FLOW_TASK, decide_dependent,
};
use task_engine_store::export::{ExecutionRecord, TaskRecord};

use super::Evidence;
use crate::history::{History, exception_of};

pub(super) fn check_flows(evidence: &Evidence, broken: &mut Vec<String>) {
    let dependent = |task: &&TaskRecord| !task.dependencies.is_empty();
    for task in evidence.history.tasks.values().filter(dependent) {
        check_decision(&evidence.history, task, broken);
        check_starts(evidence, task, broken);
        check_repetitions(task, broken);
    }
}

/// I20: each task has started or was cancelled as follows from the statuses of those that it
/// depends on. One that had started before those were repaired stays.
fn check_decision(history: &History, task: &TaskRecord, broken: &mut Vec<String>) {
    let Some(dependencies) = dependencies(history, task) else { return };
    let has_started = task.executions.iter().any(|one| one.instance_id.is_some());
    let dependencies_of = task.dependencies.iter().filter_map(|one| history.tasks.get(&one.on));
    let is_repaired = dependencies_of.chain([task]).any(|task| final_ends(task).count() > 1);
    match decide_dependent(&dependencies) {
        DependentNext::Start if !has_started => {
            broken.push(format!("I20: task {} never started: {dependencies:?}", task.id));
        }
        DependentNext::Cancel(_) if has_started && !is_repaired => {
            broken.push(format!("I20: task {} started: {dependencies:?}", task.id));
        }
        DependentNext::Cancel(expected) if !has_started => {
            // It names one that had ended then, maybe another one.
            let exception = task.executions.last().map(exception_of);
            if exception.as_ref() != Some(&expected.exception) {
                broken.push(format!(
                    "I20: task {} ended with {exception:?} instead of {expected:?}",
                    task.id
                ));
            }
        }
        DependentNext::Wait(on) => {
            broken.push(format!("I8: task {} waits for task {on}", task.id));
        }
        DependentNext::Start | DependentNext::Cancel(_) => {}
    }
}

/// `None` if one of them is open, which is reported elsewhere.
fn dependencies(history: &History, task: &TaskRecord) -> Option<Vec<Dependency>> {
    let state = |on: Option<&TaskRecord>| match on.map(|on| on.status) {
        Some(TaskStatus::Waiting | TaskStatus::Running) => None,
        Some(status) => Some(DependencyState::Ended(status)),
        None => Some(DependencyState::Removed),
    };
    let dependency = |(id, condition): (i64, DependencyCondition)| {
        let on = history.tasks.get(&id);
        let context: serde_json::Value =
            on.and_then(|on| on.context.decode().ok()).unwrap_or_default();
        let name = context[FLOW_TASK].as_str().map(str::to_owned);
        Some(Dependency { id: TaskId(id), name, condition, state: state(on)? })
    };
    task.dependencies.iter().map(|one| dependency((one.on, one.condition))).collect()
}

/// I20: no attempt began before the end that it had to wait for.
fn check_starts(evidence: &Evidence, task: &TaskRecord, broken: &mut Vec<String>) {
    let attempts = evidence.witness.attempts.range((task.id, i32::MIN)..=(task.id, i32::MAX));
    for ((_, attempt), seen) in attempts {
        for dependency in &task.dependencies {
            let Some(on) = evidence.history.tasks.get(&dependency.on) else { continue };
            let needed = final_ends(on).find(|end| match dependency.condition {
                DependencyCondition::Success => end.ends_task == Some(TaskStatus::Stopped),
                _ => true,
            });
            // Without such an end it should not have started, which is reported above.
            let Some(needed) = needed else { continue };
            let Some(ended) = ended_us(evidence, on, needed) else { continue };
            if ended > seen.began {
                broken.push(format!(
                    "I20: attempt {attempt} of task {} began {} µs before the end of task {}",
                    task.id,
                    ended - seen.began,
                    on.id
                ));
            }
        }
    }
}

/// When an attempt had ended, by its own line. `None` if it never ran, or if its engine was lost,
/// because its process may have been suspended.
fn ended_us(evidence: &Evidence, task: &TaskRecord, end: &ExecutionRecord) -> Option<i64> {
    let is_lost = exception_of(end) == TaskError::INSTANCE_LOST;
    let seen = evidence.witness.attempts.get(&(task.id, end.attempt)).filter(|_| !is_lost);
    seen.and_then(|seen| seen.ended)
}

/// I21: a task runs again only after a recorded end of its attempt by which it waits again, or
/// after an operator's retry.
fn check_repetitions(task: &TaskRecord, broken: &mut Vec<String>) {
    let interrupted =
        [TaskError::INSTANCE_LOST, TaskError::ENGINE_STOPPED, TaskError::NEVER_STARTED];
    let Some((_, before)) = task.executions.split_last() else { return };
    for execution in before {
        let exception = exception_of(execution);
        let is_retried = execution.ends_task.is_some_and(|status| status != TaskStatus::Stopped);
        if !is_retried && !interrupted.contains(&exception.as_str()) {
            broken.push(format!(
                "I21: task {} ran again after attempt {} ended with {exception:?}",
                task.id, execution.attempt
            ));
        }
    }
}

fn final_ends(task: &TaskRecord) -> impl Iterator<Item = &ExecutionRecord> {
    task.executions.iter().filter(|one| one.ends_task.is_some())
}
