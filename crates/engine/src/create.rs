//! The creation of one task.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;
use task_engine_core::dependency::{DependencyCondition, IntoDependencies, InvalidFlow};
use task_engine_core::retry::RetryOverride;
use task_engine_core::task::{InvalidTask, NewTask, TaskId};
use task_engine_core::unique::{Creation, OnConflict, Scope, Unique};
use task_engine_store::error::StoreError;

use crate::flow::existing_tasks;
use crate::tasks::TaskEngine;
use crate::transaction::Transaction;

/// A builder of one task, which [`TaskEngine::create`] returns.
///
/// Await it to create the task; it returns the id, or for a unique task a [`Creation`]. Or pass a
/// transaction to [`in_tx`](Self::in_tx).
#[derive(Debug)]
#[must_use = "nothing is created until this is awaited"]
pub struct Create<'a, A = TaskId> {
    tasks: &'a TaskEngine,
    task: Result<NewTask, CreateError>,
    /// Tasks that it depends on.
    after: Vec<(TaskId, DependencyCondition)>,
    correlation: Option<String>,
    answer: PhantomData<fn() -> A>,
}

impl<'a, A> Create<'a, A> {
    /// Sets the time at which the task may run.
    pub fn at(self, time: Timestamp) -> Self {
        self.with(|task| Ok(task.at(time)))
    }

    /// Sets how long the task waits before it may run.
    pub fn after(self, wait: Duration) -> Self {
        self.with(|task| Ok(task.after(wait)))
    }

    /// Sets the priority of the task: higher runs first.
    pub fn priority(self, priority: i32) -> Self {
        self.with(|task| Ok(task.priority(priority)))
    }

    /// Sets the queue of the task.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.with(|task| task.queue(queue))
    }

    /// Sets retry rules of this task, instead of those of its class: see [`NewTask::retry`].
    pub fn retry(self, rule: impl Into<RetryOverride>) -> Self {
        self.with(|task| Ok(task.retry(rule)))
    }

    /// Applies a named limit to the task, with this key: see [`NewTask::limit`].
    ///
    /// ```no_run
    /// # use task_engine::{Task, TaskEngine};
    /// # async fn example<T: Task>(tasks: TaskEngine, sync: T) -> Result<(), Box<dyn std::error::Error>> {
    /// tasks.create(sync).limit("api", "acme").await?;
    /// # Ok(()) }
    /// ```
    pub fn limit(self, name: impl Into<String>, key: impl Into<String>) -> Self {
        self.with(|task| task.limit(name, key))
    }

    /// Applies a named limit to the task without naming a key: see [`NewTask::limit_named`].
    pub fn limit_named(self, name: impl Into<String>) -> Self {
        self.with(|task| task.limit_named(name))
    }

    /// Makes the task unique by this key within its class.
    ///
    /// If another task with the key waits or runs, no task is created, and the other one is
    /// returned. Change this with [`scope`](Create::scope) and
    /// [`on_conflict`](Create::on_conflict).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use task_engine::{Creation, OnConflict, Scope, Task, TaskEngine};
    /// # async fn example<T: Task + Clone>(tasks: TaskEngine, index: T) -> Result<(), Box<dyn std::error::Error>> {
    /// match tasks.create(index.clone()).unique("customer 7").await? {
    ///     Creation::Created(id) => println!("task {id} is new"),
    ///     Creation::Kept(id) | Creation::Replaced(id) => println!("task {id} existed"),
    /// }
    /// // Debounce: runs five seconds after the last of many creations.
    /// let wait = Duration::from_secs(5);
    /// let index = tasks.create(index).after(wait).unique("customer 7");
    /// index.scope(Scope::Waiting).on_conflict(OnConflict::Replace).await?;
    /// # Ok(()) }
    /// ```
    pub fn unique(self, key: impl Into<String>) -> Create<'a, Creation> {
        let Self { tasks, after, correlation, .. } = self;
        let task = self.task.and_then(|task| Ok(task.unique(Unique::by(key))?));
        Create { tasks, task, after, correlation, answer: PhantomData }
    }

    /// Starts the task after these existing tasks have succeeded: an id, or a list of ids.
    ///
    /// If one of them fails or is cancelled, the new task is cancelled. A task that is unique
    /// cannot depend on others.
    ///
    /// ```no_run
    /// # use task_engine::{Task, TaskEngine};
    /// # async fn example<T: Task + Clone>(tasks: TaskEngine, extract: T, load: T) -> Result<(), Box<dyn std::error::Error>> {
    /// let extract = tasks.create(extract).await?;
    /// tasks.create(load).after_task(extract).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// To create tasks together that depend on each other, see
    /// [`TaskEngine::create_flow`].
    pub fn after_task(self, tasks: impl IntoDependencies) -> Self {
        self.depend(tasks, DependencyCondition::Success)
    }

    /// Starts the task after these existing tasks have ended, whatever their status.
    pub fn after_task_end(self, tasks: impl IntoDependencies) -> Self {
        self.depend(tasks, DependencyCondition::End)
    }

    /// Starts the task after all of these existing tasks have ended, if at least one of them has
    /// failed or was cancelled.
    ///
    /// If all of them succeed, the new task is cancelled.
    pub fn after_task_failure(self, tasks: impl IntoDependencies) -> Self {
        self.depend(tasks, DependencyCondition::Failure)
    }

    fn depend(mut self, on: impl IntoDependencies, condition: DependencyCondition) -> Self {
        if let Ok(task) = &self.task {
            match existing_tasks(&task.class, on) {
                Ok(ids) => self.after.extend(ids.into_iter().map(|id| (id, condition))),
                Err(error) => self.task = Err(error.into()),
            }
        }
        self
    }

    /// Sets the flow that the task belongs to: see [`NewTask::correlation`].
    pub fn correlation(mut self, id: impl AsRef<str>) -> Self {
        self.correlation = Some(id.as_ref().to_owned());
        self.with(|task| task.correlation(id))
    }

    /// Sets the span under which the task was created: see [`NewTask::traceparent`].
    pub fn traceparent(self, text: impl AsRef<str>) -> Self {
        self.with(|task| task.traceparent(text))
    }

    fn with(mut self, change: impl FnOnce(NewTask) -> Result<NewTask, InvalidTask>) -> Self {
        self.task = self.task.and_then(|task| Ok(change(task)?));
        self
    }
}

impl Create<'_, Creation> {
    /// Sets which tasks with the same key conflict.
    ///
    /// Default: [`Scope::Active`].
    pub fn scope(self, scope: Scope) -> Self {
        self.with_unique(|unique| unique.scope(scope))
    }

    /// Sets what happens on a conflict.
    ///
    /// Default: [`OnConflict::Keep`].
    pub fn on_conflict(self, answer: OnConflict) -> Self {
        self.with_unique(|unique| unique.on_conflict(answer))
    }

    fn with_unique(self, change: impl FnOnce(Unique) -> Unique) -> Self {
        self.with(|mut task| match task.unique.take() {
            Some(unique) => task.unique(change(unique)),
            None => Ok(task),
        })
    }
}

impl<'a, A: From<Creation> + Send + 'static> Create<'a, A> {
    pub(crate) fn new(tasks: &'a TaskEngine, task: Result<NewTask, InvalidTask>) -> Self {
        let task = task.map_err(CreateError::from);
        Create { tasks, task, after: Vec::new(), correlation: None, answer: PhantomData }
    }

    /// Creates the task in a transaction of the application: the task exists if the transaction
    /// commits.
    ///
    /// The transaction is in the database of the tasks. It is one of tokio-postgres, of sqlx
    /// (feature `sqlx`) or of rusqlite. With the first two, this returns a future; with rusqlite,
    /// the result itself.
    ///
    /// ```no_run
    /// # use task_engine::{Task, TaskEngine, postgres::tokio_postgres};
    /// # async fn example<T: Task>(tasks: TaskEngine, mut client: tokio_postgres::Client, mail: T) -> Result<(), Box<dyn std::error::Error>> {
    /// let tx = client.transaction().await?;
    /// tx.execute("INSERT INTO orders (customer) VALUES ('ada')", &[]).await?;
    /// tasks.create(mail).in_tx(&tx).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// A unique task does not start before the transaction ends, and no other
    /// transaction creates a task with its key meanwhile. Two transactions that use the
    /// same keys in a different order may deadlock; one of them fails with an error
    /// that [is temporary](task_engine_store::error::StoreError::is_temporary).
    pub fn in_tx<X: Transaction>(self, transaction: X) -> X::Answer<Result<A, CreateError>> {
        let Self { tasks, task, after, correlation, .. } = self;
        let schema = tasks.store().schema_name();
        if after.is_empty() {
            let task = task.and_then(|task| tasks.prepare(vec![task]));
            let created = transaction.create(schema, task);
            return X::map(created, |created| Ok(created?[0].into()));
        }
        let flow = task.and_then(|task| tasks.dependent(task, correlation, &after));
        let created = transaction.create_flow(schema, flow);
        X::map(created, |created| Ok(Creation::Created(created?.ids[0]).into()))
    }
}

impl<'a, A: From<Creation>> IntoFuture for Create<'a, A> {
    type Output = Result<A, CreateError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<A, CreateError>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { tasks, task, after, correlation, .. } = self;
        Box::pin(async move {
            if !after.is_empty() {
                let flow = tasks.dependent(task?, correlation, &after)?;
                return Ok(Creation::Created(tasks.insert_flow(&flow).await?.ids[0]).into());
            }
            let task = tasks.prepared(task?)?;
            Ok(tasks.insert(std::slice::from_ref(&task)).await?[0].into())
        })
    }
}

/// The error of a creation: none of the tasks of the call was created.
///
/// Every variant says what to change. Only [`Store`](Self::Store) may be temporary: see
/// [`StoreError::is_temporary`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// A task is invalid: change what the message names.
    #[error(transparent)]
    Task(#[from] InvalidTask),
    /// The flow is invalid, or the list of tasks that the task depends on: change what the message
    /// names.
    #[error(transparent)]
    Flow(#[from] InvalidFlow),
    /// The store failed or refused the tasks.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A creation hook refused a task, for a reason of the application.
    #[error("a task of class {class} was refused by the creation hook {hook}: {why}")]
    Refused {
        /// The class of the task.
        class: String,
        /// The hook.
        hook: String,
        /// Its reason.
        why: String,
    },
    /// A creation hook changed a task so that it is invalid: correct the hook.
    #[error("the creation hook {hook} made a task that cannot be stored: {why}")]
    InvalidAfterHook {
        /// The hook.
        hook: String,
        /// What is wrong.
        why: InvalidTask,
    },
    /// A creation hook panicked: correct the hook.
    #[error("the creation hook {hook} panicked: {why}")]
    HookPanicked {
        /// The hook.
        hook: String,
        /// The message of the panic.
        why: String,
    },
}
