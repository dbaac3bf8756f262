//! Operations on durable tasks: send a signal, and run a task again from one of its steps.

use serde::Serialize;
use serde_json::json;
use task_engine_core::display::{StepState, brief, count, step_timeline};
use task_engine_core::json::Json;
use task_engine_core::step::{
    SignalReport, SignalStatus, SignalTarget, TaskSteps, call_of_ended, check_signal_name,
};
use task_engine_core::suggest::did_you_mean;
use task_engine_core::task::{NewTask, TaskId, TaskStatus};

use crate::operator::{AuditedOperation, OperationError, Operator};
use crate::redaction::{self, RedactedTask};
use crate::report::{OperationOutcome, OperationReport, TaskOutcome};

/// The outcome of a signal.
#[derive(Debug, Clone, Serialize)]
pub struct SignalOutcome {
    /// The task.
    pub task_id: TaskId,
    /// The signal.
    pub name: String,
    /// What happened to it.
    ///
    /// Never [`SignalStatus::NotFound`]: that is an error.
    pub status: SignalStatus,
    /// The report, with a sentence.
    #[serde(flatten)]
    pub report: OperationReport,
}

impl Operator {
    /// Sends a signal to a task.
    ///
    /// A refused one is an outcome, not an error: see [`SignalStatus::is_accepted`].
    pub async fn signal(
        &self,
        target: &SignalTarget,
        name: &str,
        payload: &Json,
    ) -> Result<SignalOutcome, OperationError> {
        check_signal_name(name).map_err(|invalid| OperationError::Invalid {
            pointer: "/name".to_owned(),
            message: invalid.to_string(),
        })?;
        if let SignalTarget::Id(id) = target {
            redaction::task(&*self.store, *id).await?;
        }
        let mut sent = None;
        let work = async {
            let SignalReport { task_id, status } = self.store.signal(target, name, payload).await?;
            let (Some(id), Some(outcome)) = (task_id, outcome_of(status)) else {
                return Err(no_target(target));
            };
            sent = Some((id, status));
            let message = self.signal_sentence(id, name, status).await;
            Ok(OperationReport { message, ..OperationReport::of(outcome) })
        };
        let audited = AuditedOperation::new("tasks.signal", target.to_string())
            .detail(json!({ "signal": name }));
        let report = self.audited(audited, work).await?;
        let (task_id, status) = sent.ok_or_else(|| no_target(target))?;
        Ok(SignalOutcome { task_id, name: name.to_owned(), status, report })
    }

    async fn signal_sentence(&self, id: TaskId, name: &str, status: SignalStatus) -> String {
        match status {
            SignalStatus::Delivered => format!("Task {id} got signal {name} and continues."),
            SignalStatus::Kept => {
                // Helps to notice a mistyped name. The signal is stored: without it if this fails.
                let awaited = self.awaited_signals(id).await.unwrap_or_default();
                let other = match &awaited[..] {
                    [] => String::new(),
                    awaited => format!("; now it waits for signal {}", awaited.join(", ")),
                };
                format!("Task {id} keeps signal {name} until it waits for it{other}.")
            }
            SignalStatus::Duplicate => {
                format!("Task {id} got signal {name} before; the first one counts.")
            }
            SignalStatus::TimedOut => {
                format!("The wait of task {id} for signal {name} has timed out.")
            }
            SignalStatus::TaskEnded | SignalStatus::NotFound => {
                let task = self.store.task(id).await.ok().flatten();
                let status =
                    task.map_or_else(String::new, |task| format!(" ({})", task.row.status));
                format!("Task {id} has ended{status}: signals are refused.")
            }
        }
    }

    /// The signals that a task waits for.
    async fn awaited_signals(&self, id: TaskId) -> Result<Vec<String>, OperationError> {
        let steps = self.redacted_steps(id).await?;
        let entries = step_timeline(&steps, TaskStatus::Waiting).into_iter();
        let waits = entries.filter(|entry| entry.state == StepState::Waiting);
        Ok(waits.map(|entry| brief(&entry.name, NAME_CHARS_MAX)).collect())
    }

    async fn redacted_steps(&self, id: TaskId) -> Result<TaskSteps, OperationError> {
        let secrets = redaction::secrets(&*self.store).await?;
        let task = RedactedTask::read(&*self.store, id, &secrets).await?;
        Ok(task.steps(&*self.store).await?)
    }

    /// Creates a task again, with the steps that it recorded before this one.
    ///
    /// They are not executed again.
    pub async fn rerun_from(
        &self,
        id: TaskId,
        step: &str,
    ) -> Result<OperationReport, OperationError> {
        let old = redaction::task(&*self.store, id).await?;
        let steps = self.store.steps(id).await?;
        let shown = |name: &str| call_of_ended(name).is_none();
        let from = steps.steps.iter().find(|one| one.name == step && shown(step));
        let Some(from) = from else {
            return Err(no_step(id, step, &self.redacted_steps(id).await?));
        };
        let kept = steps.steps.iter().filter(|one| one.number < from.number && shown(&one.name));
        let kept = count(kept.count(), "step");
        let new = NewTask::rerun_with_steps_of(&old)
            .map_err(|invalid| OperationError::invalid(invalid.to_string()))?;
        let work = async {
            let created = self.store.create_with_steps(&new, id, from.number).await?;
            let outcome = OperationOutcome::Rerun;
            let mut report = OperationReport::default();
            report.add_task(TaskOutcome { id, outcome, created: Some(created) });
            report.message = format!(
                "Task {id} was created again as task {created}: it keeps {kept} and continues from step {step}."
            );
            Ok(report)
        };
        let audited = AuditedOperation::new("tasks.rerun", format!("task {id}"))
            .detail(json!({ "from_step": step }));
        self.audited(audited, work).await
    }
}

/// A message shows no more of a name.
const NAME_CHARS_MAX: usize = 40;
/// A message lists no more steps.
const STEPS_SHOWN_MAX: usize = 20;

fn outcome_of(status: SignalStatus) -> Option<OperationOutcome> {
    match status {
        SignalStatus::Delivered => Some(OperationOutcome::SignalDelivered),
        SignalStatus::Kept => Some(OperationOutcome::SignalKept),
        SignalStatus::Duplicate => Some(OperationOutcome::SignalDuplicate),
        SignalStatus::TimedOut => Some(OperationOutcome::SignalTimedOut),
        SignalStatus::TaskEnded => Some(OperationOutcome::SignalTaskEnded),
        SignalStatus::NotFound => None,
    }
}

fn no_target(target: &SignalTarget) -> OperationError {
    match target {
        SignalTarget::Id(id) => OperationError::no_task(*id),
        SignalTarget::UniqueKey { class, key } => OperationError::NotFound(format!(
            "there is no task of class {class} with the key {key:?}"
        )),
    }
}

fn no_step(id: TaskId, typed: &str, steps: &TaskSteps) -> OperationError {
    let names = steps.steps.iter().map(|step| step.name.as_str());
    let names: Vec<_> = names.filter(|name| call_of_ended(name).is_none()).collect();
    if names.is_empty() {
        return OperationError::Conflict(format!(
            "task {id} has no recorded steps; `rerun` without a step creates it again"
        ));
    }
    let near = match did_you_mean(typed, names.iter().copied()) {
        near if near.is_empty() => "; its".to_owned(),
        near => near + " Its",
    };
    let shown = names.iter().take(STEPS_SHOWN_MAX).map(|name| brief(name, NAME_CHARS_MAX));
    let mut list = shown.collect::<Vec<_>>().join(", ");
    if names.len() > STEPS_SHOWN_MAX {
        list += &format!(" and {} more", names.len() - STEPS_SHOWN_MAX);
    }
    let message = format!("task {id} has no step {typed:?}{near} steps are: {list}");
    OperationError::Invalid { pointer: "/from".to_owned(), message }
}
