//! Tasks and schedules without the parameters that their classes have declared secret.

use std::ops::Deref;

use task_engine_core::change::Edit;
use task_engine_core::filter::Filter;
use task_engine_core::progress::{LogFilter, LogRow};
use task_engine_core::secret::{Redactor, Secrets, refuse_placeholders, restore};
use task_engine_core::step::TaskSteps;
use task_engine_core::task::{NewTask, TaskDetails, TaskId};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_store::token::Role;

use crate::operator::OperationError;
use crate::why::{Explanation, why};

/// Reads what engines, live and dead, have declared secret.
pub async fn secrets(store: &dyn Store) -> Result<Secrets, StoreError> {
    Ok(Secrets::of(&store.instances(None).await?))
}

/// Reads a task with its secrets.
pub async fn task(store: &dyn Store, id: TaskId) -> Result<TaskDetails, OperationError> {
    store.task(id).await?.ok_or_else(|| OperationError::no_task(id))
}

/// A task without its secrets.
#[derive(Debug)]
pub struct RedactedTask {
    /// The task, without its secrets.
    pub task: TaskDetails,
    redactor: Redactor,
}

impl Deref for RedactedTask {
    type Target = TaskDetails;

    fn deref(&self) -> &TaskDetails {
        &self.task
    }
}

impl RedactedTask {
    /// Returns the task without its secrets.
    #[must_use]
    pub fn new(mut task: TaskDetails, secrets: &Secrets) -> Self {
        let redactor = secrets.redactor_of(&task);
        redactor.task(&mut task);
        Self { task, redactor }
    }

    /// Reads a task.
    pub async fn read(
        store: &dyn Store,
        id: TaskId,
        secrets: &Secrets,
    ) -> Result<Self, OperationError> {
        Ok(Self::new(task(store, id).await?, secrets))
    }

    /// Reads a task, and why it is in its state.
    pub async fn explained(
        store: &dyn Store,
        id: TaskId,
        secrets: &Secrets,
    ) -> Result<(Explanation, Self), OperationError> {
        let mut why = why(store, id).await?.ok_or_else(|| OperationError::no_task(id))?;
        let task = Self::new(why.task.clone(), secrets);
        why.task = task.task.clone();
        Ok((why, task))
    }

    /// Returns whether something was left out.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        !self.redactor.is_empty()
    }

    /// Reads lines of its log, without its secrets.
    pub async fn logs(
        &self,
        store: &dyn Store,
        filter: &LogFilter,
    ) -> Result<Vec<LogRow>, StoreError> {
        let mut lines = store.logs(self.task.row.id, filter).await?;
        self.redactor.log(&mut lines);
        Ok(lines)
    }

    /// Reads its recorded steps and signals, without its secrets.
    pub async fn steps(&self, store: &dyn Store) -> Result<TaskSteps, StoreError> {
        let mut steps = store.steps(self.task.row.id).await?;
        self.redactor.steps(&mut steps);
        Ok(steps)
    }
}

/// Returns the filter as this role may use it.
///
/// The answers to `params.password~a` would reveal a secret letter by letter.
pub fn allowed_filter(
    filter: Filter,
    role: Role,
    secrets: &Secrets,
) -> Result<Filter, OperationError> {
    if role >= Role::Admin {
        return Ok(filter);
    }
    if filter.asks_about_request() {
        return Err(OperationError::Forbidden(
            "only an admin may filter by the request that created a task (context.http_request)"
                .to_owned(),
        ));
    }
    let filter = if filter.asks_about_unique_key() {
        filter.and(Filter::without_idempotency_keys())
    } else {
        filter
    };
    if !filter.asks_about_parameters() {
        return Ok(filter);
    }
    if secrets.any() {
        return Err(OperationError::Forbidden(
            "some classes have secret parameters, so only an admin may filter by parameters (params.…)"
                .to_owned(),
        ));
    }
    // No known engine has declared a secret. The tasks themselves may have.
    Ok(filter.and(Filter::without_secrets()))
}

/// Returns new tasks that record which of their parameters are secret.
///
/// So they stay secret when no known engine declares it.
pub fn name_secrets(tasks: &[NewTask], secrets: &Secrets) -> Result<Vec<NewTask>, OperationError> {
    let named = tasks.iter().map(|task| task.clone().secret(&secrets.of_class(&task.class)));
    named.collect::<Result<_, _>>().map_err(|invalid| OperationError::invalid(invalid.to_string()))
}

/// Refuses placeholders in the parameters of a new task; `pointer` is their place in the request.
pub fn check_placeholders(
    task: &NewTask,
    pointer: &str,
    secrets: &Secrets,
) -> Result<(), OperationError> {
    let inside = !secrets.of_class(&task.class).is_empty();
    refuse_placeholders(&task.parameters, inside)
        .map_err(|found| OperationError::placeholder(pointer, &found))
}

/// Returns the edit of a task that was shown without its secrets: placeholders in new parameters
/// become what is stored.
pub fn restore_secrets(
    edit: Edit,
    task: &TaskDetails,
    secrets: &Secrets,
) -> Result<Edit, OperationError> {
    let Some(parameters) = &edit.parameters else { return Ok(edit) };
    let redactor = secrets.redactor_of(task);
    let restored = restore(parameters, &task.parameters, redactor.parameters())
        .map_err(|found| OperationError::placeholder("/parameters", &found))?;
    Ok(Edit { parameters: Some(restored), ..edit })
}
