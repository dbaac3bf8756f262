//! Creation for applications.

use std::borrow::Cow;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::flow::{self, Origin};
use crate::retry::RetryOverride;
use crate::store::{Answer, Store, StoreError};
use crate::task::{BadTask, NewTask, Task, TaskId};
use crate::traceparent::Traceparent;

/// Creates tasks. Cheap to clone; needs no engine.
///
/// Creation inside a transaction of the application's own is in the stores'
/// crates, because it speaks to the application's driver.
#[derive(Debug, Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    /// What every task that is created here gets from the task that creates it.
    parent: Option<Arc<Origin>>,
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
        Self { store, parent: None }
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

    /// Creates many tasks, all or none, in one call. The ids are in order.
    pub async fn create_many(&self, tasks: &[NewTask]) -> Result<Vec<TaskId>, StoreError> {
        self.store.create(&self.stamped_all(tasks)).await
    }

    /// A client whose tasks say where they come from. The client of a `Run` is
    /// one.
    #[must_use]
    pub fn within(&self, parent: Origin) -> Self {
        Self { parent: Some(Arc::new(parent)), ..self.clone() }
    }

    /// A task as this client would create it, for creation by other means: with
    /// its parent and correlation id, and the span that it is created under.
    #[must_use]
    pub fn stamped(&self, task: NewTask) -> NewTask {
        self.stamped_under(Traceparent::current(), task)
    }

    fn stamped_under(&self, span: Option<Traceparent>, mut task: NewTask) -> NewTask {
        if let Some(span) = span {
            flow::fill_traceparent(&mut task, span);
        }
        match &self.parent {
            Some(parent) => parent.stamp(task),
            None => task,
        }
    }

    fn stamped_all<'a>(&self, tasks: &'a [NewTask]) -> Cow<'a, [NewTask]> {
        let span = Traceparent::current();
        if self.parent.is_none() && span.is_none() {
            return Cow::Borrowed(tasks);
        }
        tasks.iter().map(|task| self.stamped_under(span, task.clone())).collect()
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

    /// Says which flow it belongs to: see [`NewTask::correlation`].
    pub fn correlation(self, id: impl AsRef<str>) -> Self {
        self.with(|task| task.correlation(id))
    }

    /// Says which span it was created under: see [`NewTask::traceparent`].
    pub fn traceparent(self, text: impl AsRef<str>) -> Self {
        self.with(|task| task.traceparent(text))
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
            let task = self.client.stamped(self.task?);
            let created: Answer<'_, _> = self.client.store.create(std::slice::from_ref(&task));
            Ok(created.await?[0])
        })
    }
}
