//! A running task adds tasks beside itself.

use task_engine_core::dependency::{AddMembersOutcome, IntoTask, NewMembers};
use task_engine_core::task::{InvalidTask, TaskId};

use crate::context::Context;
use crate::create::CreateError;

impl<S> Context<S> {
    /// Creates more tasks beside this one, for which the tasks that depend on this one wait, too.
    ///
    /// Use it to add members to a batch, for example.
    ///
    /// They are children of this task, and each dependent task depends on them under the same
    /// condition as on this one. They start at once; this task need not end.
    ///
    /// They are created in one transaction, all or none. An attempt that fails afterwards and
    /// is retried adds them again, unless this is called in a [step](Self::step).
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// use task_engine::{Context, Failure, Task};
    ///
    /// #[derive(Serialize, Deserialize, Task)]
    /// struct Crawl { url: String }
    ///
    /// # fn links(_: &str) -> Vec<String> { Vec::new() }
    /// async fn crawl(task: Crawl, cx: Context<()>) -> Result<(), Failure> {
    ///     let found = links(&task.url).into_iter().map(|url| Crawl { url });
    ///     cx.step("add the links", || cx.add_members(found)).await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn add_members<T: IntoTask>(
        &self,
        tasks: impl IntoIterator<Item = T>,
    ) -> Result<Vec<TaskId>, AddMembersError> {
        let tasks: Result<Vec<_>, InvalidTask> = tasks.into_iter().map(T::into_task).collect();
        let tasks = self.tasks().prepare(tasks.map_err(CreateError::from)?)?;
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let members =
            NewMembers::new(self.id, self.handle.claim, tasks).map_err(CreateError::from)?;
        let added = self.handle.session.store.add_members(&members).await;
        match added.map_err(CreateError::from)? {
            AddMembersOutcome::Added(ids) => Ok(ids),
            AddMembersOutcome::NoDependents => {
                Err(AddMembersError::NoDependents { task_id: self.id.task_id })
            }
            AddMembersOutcome::AttemptOver => {
                Err(AddMembersError::AttemptOver { task_id: self.id.task_id })
            }
        }
    }
}

/// The error of [`Context::add_members`]: no task was created.
///
/// Return it from the handler, so that the attempt fails and is retried by the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddMembersError {
    /// The tasks could not be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// No task waits for the running one: create the tasks with [`Context::create`].
    #[error(
        "task {task_id} cannot add members: no task that has not started depends on it; create tasks with `cx.create`"
    )]
    NoDependents {
        /// The running task.
        task_id: TaskId,
    },
    /// Recovery has ended this attempt, and another one may run: return from the handler.
    #[error("task {task_id} cannot add members: its attempt has been ended by recovery")]
    AttemptOver {
        /// The running task.
        task_id: TaskId,
    },
}
