//! Reads for pages and the HTTP API: tasks and schedules without their secrets.

use task_engine_core::change::Edit;
use task_engine_core::filter::Filter;
use task_engine_core::progress::{LogFilter, LogRow};
use task_engine_core::schedule::history::ScheduleDetails;
use task_engine_core::schedule::row::ScheduleRow;
use task_engine_core::secret::Secrets;
use task_engine_core::step::TaskSteps;
use task_engine_core::task::{NewTask, TaskDetails, TaskId};
use task_engine_operations::redaction::{self, RedactedTask};
use task_engine_operations::schemas::Schemas;
use task_engine_operations::why::Explanation;
use task_engine_operations::{Actor, OperationError};
use task_engine_store::error::StoreError;
use task_engine_store::schedules::Schedules;

use crate::app::AppState;
use crate::error::ApiError;

impl AppState {
    /// A task without its secrets.
    pub(crate) async fn task(&self, id: TaskId) -> Result<RedactedTask, ApiError> {
        Ok(RedactedTask::read(&*self.store, id, &self.secrets().await?).await?)
    }

    /// A task with all its parameters. The caller writes an audit entry.
    pub(crate) async fn task_revealed(&self, id: TaskId) -> Result<TaskDetails, ApiError> {
        Ok(redaction::task(&*self.store, id).await?)
    }

    /// A task, and why it is in its state.
    pub(crate) async fn why(&self, id: TaskId) -> Result<(Explanation, RedactedTask), ApiError> {
        Ok(RedactedTask::explained(&*self.store, id, &self.secrets().await?).await?)
    }

    /// Lines of a task's log.
    pub(crate) async fn logs(
        &self,
        task: &RedactedTask,
        filter: &LogFilter,
    ) -> Result<Vec<LogRow>, ApiError> {
        Ok(task.logs(&*self.store, filter).await?)
    }

    /// The steps and signals of a task.
    pub(crate) async fn steps(&self, task: &RedactedTask) -> Result<TaskSteps, ApiError> {
        Ok(task.steps(&*self.store).await?)
    }

    /// A page of schedules, by name.
    pub(crate) async fn schedules(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<ScheduleRow>, ApiError> {
        let mut rows = self.store.schedules(after, limit).await?;
        let secrets = self.secrets().await?;
        rows.iter_mut().for_each(|row| secrets.schedule(row));
        Ok(rows)
    }

    /// A schedule with the history of its last slots.
    pub(crate) async fn schedule(
        &self,
        name: &str,
        limit: u32,
    ) -> Result<ScheduleDetails, ApiError> {
        let mut details = Schedules::of(&*self.store).show(name, limit).await?;
        self.secrets().await?.schedule(&mut details.row);
        Ok(details)
    }

    /// The filter as this actor may use it.
    pub(crate) async fn allowed(&self, actor: &Actor, filter: Filter) -> Result<Filter, ApiError> {
        Ok(redaction::allowed_filter(filter, actor.role, &self.secrets().await?)?)
    }

    /// New tasks that record which of their parameters are secret.
    pub(crate) async fn with_secrets_named(
        &self,
        tasks: &[NewTask],
    ) -> Result<Vec<NewTask>, OperationError> {
        redaction::name_secrets(tasks, &self.secrets().await?)
    }

    /// An edit with the stored secrets in place of placeholders.
    pub(crate) async fn with_secrets_restored(
        &self,
        id: TaskId,
        edit: Edit,
    ) -> Result<Edit, ApiError> {
        let task = redaction::task(&*self.store, id).await?;
        Ok(redaction::restore_secrets(edit, &task, &self.secrets().await?)?)
    }

    /// Refuses placeholders in the parameters of new tasks, each with its place in the body.
    pub(crate) async fn check_placeholders<'a>(
        &self,
        tasks: impl IntoIterator<Item = (&'a NewTask, String)>,
    ) -> Result<(), ApiError> {
        let secrets = self.secrets().await?;
        for (task, pointer) in tasks {
            redaction::check_placeholders(task, &pointer, &secrets)?;
        }
        Ok(())
    }

    /// Refuses parameters of new tasks that do not fit the schemas of live engines.
    pub(crate) async fn check_parameters<'a>(
        &self,
        tasks: impl IntoIterator<Item = (&'a NewTask, &'a str)>,
    ) -> Result<(), OperationError> {
        let now = self.cache.now().await?;
        let (schemas, secrets) = (Schemas::of(&now.engines), Secrets::of(&now.engines));
        for (task, pointer) in tasks {
            schemas.check_task(task, &secrets).map_err(|invalid| invalid.at(pointer))?;
        }
        Ok(())
    }

    /// The parameters that engines have declared secret.
    pub(crate) async fn secrets(&self) -> Result<Secrets, StoreError> {
        Ok(Secrets::of(&self.cache.now().await?.engines))
    }
}
