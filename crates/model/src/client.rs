//! Creation for applications.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::retry::RetryOverride;
use crate::schedule::operate::Schedules;
use crate::store::{Answer, Store, StoreError};
use crate::task::{BadTask, NewTask, Task, TaskId};

/// Creates tasks. Cheap to clone; needs no engine.
///
/// Creation inside a transaction of the application's own is in the stores'
/// crates, because it speaks to the application's driver.
#[derive(Debug, Clone)]
pub struct Client {
    store: Arc<dyn Store>,
}

/// Why a task was not created. Nothing was.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The task itself is wrong.
    #[error(transparent)]
    Task(#[from] BadTask),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Client {
    /// A client of this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Creates one task: await it, or say more first.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use task_engine_model::{Client, Task};
    /// # async fn example<T: Task + Clone>(client: Client, mail: T) -> Result<(), Box<dyn std::error::Error>> {
    /// client.create(mail.clone()).await?;
    /// client.create(mail).after(Duration::from_secs(600)).priority(5).await?;
    /// # Ok(()) }
    /// ```
    #[allow(clippy::needless_pass_by_value)] // For the reader: it is gone to the store.
    pub fn create<T: Task>(&self, task: T) -> Create<'_> {
        Create { client: self, task: NewTask::of(&task) }
    }

    /// Regular tasks.
    #[must_use]
    pub fn schedules(&self) -> Schedules<'_> {
        Schedules::of(&*self.store)
    }

    /// Creates many tasks, all or none, in one call. The ids are in order.
    pub async fn create_many(&self, tasks: &[NewTask]) -> Result<Vec<TaskId>, StoreError> {
        self.store.create(tasks).await
    }
}

/// A task that is about to be created.
#[derive(Debug)]
#[must_use = "nothing is created until this is awaited"]
pub struct Create<'a> {
    client: &'a Client,
    task: Result<NewTask, BadTask>,
}

impl<'a> Create<'a> {
    /// Runs it at a time.
    pub fn at(self, time: Timestamp) -> Self {
        self.with(|task| Ok(task.at(time)))
    }

    /// Runs it after a wait.
    pub fn after(self, wait: Duration) -> Self {
        self.with(|task| Ok(task.after(wait)))
    }

    /// Sets its priority: higher runs first.
    pub fn priority(self, priority: i32) -> Self {
        self.with(|task| Ok(task.priority(priority)))
    }

    /// Puts it into a queue.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.with(|task| task.queue(queue))
    }

    /// Gives it a retry rule of its own.
    pub fn retry(self, rule: &RetryOverride) -> Self {
        self.with(|task| Ok(task.retry(rule)))
    }

    fn with(mut self, change: impl FnOnce(NewTask) -> Result<NewTask, BadTask>) -> Self {
        self.task = self.task.and_then(change);
        self
    }
}

impl<'a> IntoFuture for Create<'a> {
    type Output = Result<TaskId, CreateError>;
    type IntoFuture =
        std::pin::Pin<Box<dyn Future<Output = Result<TaskId, CreateError>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let task = self.task?;
            let created: Answer<'_, _> = self.client.store.create(std::slice::from_ref(&task));
            Ok(created.await?[0])
        })
    }
}
