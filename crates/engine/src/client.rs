//! Creates tasks.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::creation_hook::{CreationHook, CreationHooks};
use task_engine_core::flow;
use task_engine_core::flow::Origin;
use task_engine_core::retry::RetryOverride;
use task_engine_core::task::{InvalidTask, NewTask, Task, TaskId};
use task_engine_core::traceparent::Traceparent;
use task_engine_core::unique::{Creation, OnConflict, Scope, Unique};
use task_engine_store::contract::{CancelReport, Store};
use task_engine_store::error::StoreError;
use task_engine_store::schedules::Schedules;

/// Creates tasks, and cancels them. Cheap to clone; needs no engine.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use task_engine::{Client, NewTask, Store, Task};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct SendMail { to: String }
/// impl Task for SendMail { const CLASS: &'static str = "send_mail"; }
///
/// async fn greet(store: Arc<dyn Store>) -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::new(store);
///     client.create(SendMail { to: "ada".into() }).await?;
///     let later = Duration::from_secs(3600);
///     let id = client.create(SendMail { to: "bob".into() }).after(later).queue("mail").await?;
///     client.cancel(id).await?;
///     // Many at once, all or none.
///     let all = ["eve", "joe"].map(|to| NewTask::of(&SendMail { to: to.into() }));
///     client.create_many(&all.into_iter().collect::<Result<Vec<_>, _>>()?).await?;
///     Ok(())
/// }
/// ```
///
/// Creation inside a transaction of the application is in the stores' crates, because
/// it uses the application's driver: `Schema::create_in` on PostgreSQL, `create_in` on
/// SQLite. [`Client::prepare`] applies this client's hooks and context to such tasks.
#[derive(Debug, Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    hooks: CreationHooks,
    /// The parent of every task that is created here.
    parent: Option<Arc<Origin>>,
}

/// Why tasks were not created. None of the call was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The task is invalid.
    #[error(transparent)]
    Task(#[from] InvalidTask),
    /// The store failed or refused it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A creation hook refused it.
    #[error("a task of class {class} was refused by the creation hook {hook}: {why}")]
    Refused {
        /// The class of the task.
        class: String,
        /// The hook.
        hook: String,
        /// Its reason.
        why: String,
    },
    /// A creation hook made it invalid.
    #[error("the creation hook {hook} made a task that cannot be stored: {why}")]
    InvalidAfterHook {
        /// The hook.
        hook: String,
        /// What is wrong.
        why: InvalidTask,
    },
    /// A creation hook panicked.
    #[error("the creation hook {hook} panicked: {why}")]
    HookPanicked {
        /// The hook.
        hook: String,
        /// The message of the panic.
        why: String,
    },
}

impl Client {
    /// A client of this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, hooks: CreationHooks::default(), parent: None }
    }

    /// The same with one more hook, which runs after the others: see
    /// [`CreationHook`].
    #[must_use]
    pub fn hook(mut self, hook: impl CreationHook) -> Self {
        self.hooks.add(hook);
        self
    }

    /// Creates one task. Returns a builder; await it to create the task.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use task_engine::{Client, Task};
    /// # async fn example<T: Task + Clone>(client: Client, mail: T) -> Result<(), Box<dyn std::error::Error>> {
    /// client.create(mail.clone()).await?;
    /// client.create(mail).after(Duration::from_secs(600)).priority(5).await?;
    /// # Ok(()) }
    /// ```
    #[allow(clippy::needless_pass_by_value)] // A created task is not used again.
    pub fn create<T: Task>(&self, task: T) -> Create<'_> {
        Create { client: self, task: NewTask::of(&task), answer: PhantomData }
    }

    /// The schedules of the store.
    #[must_use]
    pub fn schedules(&self) -> Schedules<'_> {
        Schedules::of(&*self.store)
    }

    /// Creates many tasks, all or none, in one call. The ids are in order.
    pub async fn create_many(&self, tasks: &[NewTask]) -> Result<Vec<TaskId>, CreateError> {
        let creations = self.create_each(tasks).await?;
        Ok(creations.into_iter().map(Creation::id).collect())
    }

    /// The same, and returns for each whether it was created: a unique task may exist
    /// already.
    pub async fn create_each(&self, tasks: &[NewTask]) -> Result<Vec<Creation>, CreateError> {
        let span = Traceparent::current();
        if self.hooks.is_empty() && self.parent.is_none() && span.is_none() {
            return Ok(self.store.create_each(tasks).await?);
        }
        let tasks = self.prepare_under(span, tasks.to_vec())?;
        Ok(self.store.create_each(&tasks).await?)
    }

    /// Tasks as this client would create them, for a transaction of the application:
    /// with parent, correlation id and span, and with the changes of the hooks.
    pub fn prepare(&self, tasks: Vec<NewTask>) -> Result<Vec<NewTask>, CreateError> {
        self.prepare_under(Traceparent::current(), tasks)
    }

    fn prepare_under(
        &self,
        span: Option<Traceparent>,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<NewTask>, CreateError> {
        let prepare = |task| {
            let mut task = self.stamped_under(span, task);
            self.hooks.apply(&mut task)?;
            Ok(task)
        };
        tasks.into_iter().map(prepare).collect()
    }

    /// A client whose tasks have this parent. The client of a `Context` is one.
    // For engines: an application has it from its `Context`.
    #[doc(hidden)]
    #[must_use]
    pub fn within(&self, parent: Origin) -> Self {
        Self { parent: Some(Arc::new(parent)), ..self.clone() }
    }

    /// A task with its parent, correlation id and span, without the hooks.
    // For engines: an application calls `Context::child`, or `prepare`.
    #[doc(hidden)]
    #[must_use]
    pub fn stamped(&self, task: NewTask) -> NewTask {
        self.stamped_under(Traceparent::current(), task)
    }

    fn stamped_under(&self, span: Option<Traceparent>, mut task: NewTask) -> NewTask {
        if let Some(span) = span {
            flow::fill_traceparent(&mut task, span);
        }
        match (&self.parent, span) {
            (Some(parent), _) => return parent.stamp(task),
            (None, Some(span)) => flow::fill_correlation(&mut task, span),
            (None, None) => {}
        }
        task
    }

    /// Cancels a task: at once if it waits, by request if it runs. The execution of a
    /// running task shows later how its code reacted.
    pub async fn cancel(&self, id: TaskId) -> Result<CancelReport, StoreError> {
        let reports = self.store.cancel(&[id]).await?;
        Ok(reports.first().copied().unwrap_or(CancelReport::NotFound))
    }
}

/// Builder of a task. Awaiting it creates the task and returns an `A`: the id, or for
/// a unique task a [`Creation`].
#[derive(Debug)]
#[must_use = "nothing is created until this is awaited"]
pub struct Create<'a, A = TaskId> {
    client: &'a Client,
    task: Result<NewTask, InvalidTask>,
    answer: PhantomData<fn() -> A>,
}

impl<'a, A> Create<'a, A> {
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

    /// Gives it a retry rule of its own: see [`NewTask::retry`].
    pub fn retry(self, rule: impl Into<RetryOverride>) -> Self {
        self.with(|task| Ok(task.retry(rule)))
    }

    /// Makes it unique by this key within its class: if another task with the key
    /// waits or runs, that one is kept and returned.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use task_engine::{Client, Creation, OnConflict, Scope, Task};
    /// # async fn example<T: Task + Clone>(client: Client, index: T) -> Result<(), Box<dyn std::error::Error>> {
    /// match client.create(index.clone()).unique("customer 7").await? {
    ///     Creation::Created(id) => println!("task {id} is new"),
    ///     Creation::Kept(id) | Creation::Replaced(id) => println!("task {id} existed"),
    /// }
    /// // Debounce: runs five seconds after the last of many creations.
    /// let wait = Duration::from_secs(5);
    /// let index = client.create(index).after(wait).unique("customer 7");
    /// index.scope(Scope::Waiting).on_conflict(OnConflict::Replace).await?;
    /// # Ok(()) }
    /// ```
    pub fn unique(self, key: impl Into<String>) -> Create<'a, Creation> {
        let task = self.task.and_then(|task| task.unique(Unique::by(key)));
        Create { client: self.client, task, answer: PhantomData }
    }

    /// Sets the flow that it belongs to: see [`NewTask::correlation`].
    pub fn correlation(self, id: impl AsRef<str>) -> Self {
        self.with(|task| task.correlation(id))
    }

    /// Sets the span that it was created under: see [`NewTask::traceparent`].
    pub fn traceparent(self, text: impl AsRef<str>) -> Self {
        self.with(|task| task.traceparent(text))
    }

    fn with(mut self, change: impl FnOnce(NewTask) -> Result<NewTask, InvalidTask>) -> Self {
        self.task = self.task.and_then(change);
        self
    }
}

impl Create<'_, Creation> {
    /// Which tasks with the same key conflict. Default: [`Scope::Active`].
    pub fn scope(self, scope: Scope) -> Self {
        self.with_unique(|unique| unique.scope(scope))
    }

    /// What happens on a conflict. Default: [`OnConflict::Keep`].
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

impl<'a, A: From<Creation>> IntoFuture for Create<'a, A> {
    type Output = Result<A, CreateError>;
    type IntoFuture = std::pin::Pin<Box<dyn Future<Output = Result<A, CreateError>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let (client, task) = (self.client, self.task);
        Box::pin(async move {
            let mut task = client.stamped(task?);
            client.hooks.apply(&mut task)?;
            let creations = client.store.create_each(std::slice::from_ref(&task)).await?;
            Ok(creations[0].into())
        })
    }
}
