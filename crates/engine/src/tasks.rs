//! The entry of an application: creates tasks, reads them, and makes engines.

use std::sync::Arc;

use task_engine_core::flow;
use task_engine_core::flow::Origin;
use task_engine_core::json::Json;
use task_engine_core::step::{SignalReport, SignalTarget};
use task_engine_core::task::{NewTask, Task, TaskDetails, TaskId, TaskListQuery, TaskRow};
use task_engine_core::traceparent::Traceparent;
use task_engine_core::unique::Creation;
use task_engine_store::contract::{CancelReport, Store};
use task_engine_store::error::StoreError;
use task_engine_store::schedules::Schedules;

use crate::create::{Create, CreateError};
use crate::creation_hook::{CreationHook, CreationHooks};
use crate::database_url::DatabaseUrl;
#[cfg(feature = "engine")]
use crate::engine::Engine;
#[cfg(feature = "postgres")]
use crate::pool::CreationPool;
use crate::transaction::Transaction;

/// The entry point of an application: it creates, reads and cancels the tasks of one database, and
/// makes [engines](Self::engine) that run them.
///
/// It is cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use task_engine::{NewTask, Task, TaskEngine};
///
/// #[derive(serde::Serialize, serde::Deserialize, Task)]
/// struct SendMail { to: String }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tasks = TaskEngine::connect("sqlite::memory:").await?;   // or postgres://…
/// tasks.migrate().await?;
/// tasks.create(SendMail { to: "ada".into() }).await?;
/// let later = Duration::from_secs(3600);
/// let id = tasks.create(SendMail { to: "bob".into() }).after(later).queue("mail").await?;
/// tasks.cancel(id).await?;
/// // Many at once, all or none.
/// let all = ["eve", "joe"].map(|to| NewTask::of(&SendMail { to: to.into() }));
/// tasks.create_many(&all.into_iter().collect::<Result<Vec<_>, _>>()?).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct TaskEngine {
    store: Arc<dyn Store>,
    /// The application's pool: tasks are created on its connections.
    #[cfg(feature = "postgres")]
    pool: Option<Arc<dyn CreationPool>>,
    hooks: CreationHooks,
    /// The parent of every task that is created here.
    parent: Option<Arc<Origin>>,
}

impl TaskEngine {
    /// Connects to the database of a URL.
    ///
    /// URLs are `postgres://user:password@host:5432/database`, `sqlite:tasks.db`, and
    /// `sqlite::memory:` for tests.
    ///
    /// The tables are created by [`migrate`](Self::migrate), and by the first engine
    /// that runs. For another schema of PostgreSQL, see [`new`](Self::new).
    ///
    /// ```
    /// # use task_engine::TaskEngine;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tasks = TaskEngine::connect("sqlite::memory:").await?;
    /// tasks.migrate().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Fails with [`StoreError::Refused`] if the URL is wrong or the database refuses the user,
    /// and with [`StoreError::Unavailable`] if the database cannot be reached.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Ok(Self::new(DatabaseUrl::parse(url)?.connect().await?))
    }

    /// Connects to PostgreSQL, and creates tasks on connections of the application's pool.
    ///
    /// The pool is one of deadpool-postgres, or `PgPool` of sqlx (feature `sqlx`).
    ///
    /// The URL is for connections that only this crate uses: an engine listens for
    /// notifications and sends heartbeats, which must not wait for a pool. They are
    /// opened when they are first needed, so a program that only creates tasks opens
    /// none.
    ///
    /// ```no_run
    /// # #[cfg(feature = "sqlx")]
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # use task_engine::{TaskEngine, postgres::sqlx};
    /// let url = "postgres://app@localhost/shop";
    /// let pool = sqlx::PgPool::connect(url).await?;
    /// let tasks = TaskEngine::from_pool(url, pool.clone())?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Fails with [`StoreError::Refused`] if the URL is wrong. It opens no connection.
    #[cfg(feature = "postgres")]
    pub fn from_pool(url: &str, pool: impl CreationPool) -> Result<Self, StoreError> {
        let store = task_engine_postgres::PgStore::connect_lazily(url)?;
        Ok(Self { pool: Some(Arc::new(pool)), ..Self::new(store) })
    }

    /// Uses a store that was opened before.
    ///
    /// The store is a `PgStore`, an `SqliteStore`, or another implementation of [`Store`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use task_engine::TaskEngine;
    /// use task_engine::postgres::{PgStore, Schema};
    ///
    /// let url = "postgres://app@localhost/shop";
    /// let store = PgStore::connect_schema(url, Schema::named("shop_tasks")?).await?;
    /// let tasks = TaskEngine::new(store);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(store: impl Into<Arc<dyn Store>>) -> Self {
        Self {
            store: store.into(),
            #[cfg(feature = "postgres")]
            pool: None,
            hooks: CreationHooks::default(),
            parent: None,
        }
    }

    /// Adds a hook on creation, which runs after the hooks that were added before: see
    /// [`CreationHook`].
    ///
    /// Tasks that are created by tasks of its [engines](Self::engine) pass the hook, too.
    #[must_use]
    pub fn creation_hook(mut self, hook: impl CreationHook) -> Self {
        self.hooks.add(hook);
        self
    }

    /// Creates the tables, or migrates them to the version that this program needs.
    ///
    /// Returns the applied migrations. Call it when the application is deployed; an engine does it
    /// at its start, too.
    ///
    /// # Errors
    /// Fails with [`StoreError::Version`] if the tables were made by a newer version, and with
    /// [`StoreError::Refused`] if the user of the database may not create tables.
    pub async fn migrate(&self) -> Result<Vec<String>, StoreError> {
        self.store.migrate().await
    }

    /// Returns an engine for these tasks, with the application's state: see [`Engine`].
    #[cfg(feature = "engine")]
    pub fn engine<S: Send + Sync + 'static>(&self, state: S) -> Engine<S> {
        Engine::new(self.clone(), state)
    }

    /// Returns the store, which has the methods that are not here: statistics, searches, repair.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns one task with everything that is recorded about it; `None` if it does not exist.
    ///
    /// ```
    /// # use task_engine::{Task, TaskEngine};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct SendMail { to: String }
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tasks = TaskEngine::connect("sqlite::memory:").await?;
    /// # tasks.migrate().await?;
    /// use task_engine::TaskStatus;
    ///
    /// let id = tasks.create(SendMail { to: "ada".into() }).await?;
    /// let task = tasks.get(id).await?.expect("the task exists");
    /// assert_eq!(task.row.status, TaskStatus::Waiting);
    /// # Ok(()) }
    /// ```
    pub async fn get(&self, id: TaskId) -> Result<Option<TaskDetails>, StoreError> {
        self.store.task(id).await
    }

    /// Returns a page of tasks, newest first.
    ///
    /// ```
    /// # use task_engine::{Task, TaskEngine};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct SendMail { to: String }
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tasks = TaskEngine::connect("sqlite::memory:").await?;
    /// # tasks.migrate().await?;
    /// # tasks.create(SendMail { to: "ada".into() }).await?;
    /// use task_engine::{TaskStatus, core::task::TaskListQuery};
    ///
    /// let status = Some(TaskStatus::Waiting);
    /// let page = tasks.list(&TaskListQuery { status, limit: 50, ..Default::default() }).await?;
    /// assert_eq!(page[0].class, "send_mail");
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, filter: &TaskListQuery) -> Result<Vec<TaskRow>, StoreError> {
        self.store.tasks(filter).await
    }

    /// Creates one task.
    ///
    /// Returns a builder; await it to create the task.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use task_engine::{Task, TaskEngine};
    /// # async fn example<T: Task + Clone>(tasks: TaskEngine, mail: T) -> Result<(), Box<dyn std::error::Error>> {
    /// tasks.create(mail.clone()).await?;
    /// tasks.create(mail).after(Duration::from_secs(600)).priority(5).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Awaiting the builder fails with a [`CreateError`] if the task is invalid or refused, or if the
    /// store fails. The task was not created then, unless the connection was lost during the call.
    #[allow(clippy::needless_pass_by_value)] // A created task is not used again.
    pub fn create<T: Task>(&self, task: T) -> Create<'_> {
        Create::new(self, NewTask::of(&task))
    }

    /// Returns the schedules of the store.
    ///
    /// ```
    /// # use task_engine::TaskEngine;
    /// # async fn example(tasks: TaskEngine) -> Result<(), Box<dyn std::error::Error>> {
    /// tasks.schedules().resume("nightly").await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn schedules(&self) -> Schedules<'_> {
        Schedules::of(&*self.store)
    }

    /// Creates many tasks in one call, all or none.
    ///
    /// Returns the ids in the order of the tasks.
    ///
    /// ```
    /// # use task_engine::{NewTask, Task, TaskEngine};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct SendMail { to: String }
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tasks = TaskEngine::connect("sqlite::memory:").await?;
    /// # tasks.migrate().await?;
    /// let mut mails = Vec::new();
    /// for to in ["ada", "bob"] {
    ///     mails.push(NewTask::of(&SendMail { to: to.into() })?);
    /// }
    /// let ids = tasks.create_many(&mails).await?;
    /// assert_eq!(ids.len(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Fails with a [`CreateError`] if one of the tasks is invalid or refused, or if the store fails.
    /// None of them is created then.
    pub async fn create_many(&self, tasks: &[NewTask]) -> Result<Vec<TaskId>, CreateError> {
        let creations = self.create_each(tasks).await?;
        Ok(creations.into_iter().map(Creation::id).collect())
    }

    /// Creates many tasks like [`create_many`](Self::create_many), and returns for each whether it
    /// was created: a unique task may exist already.
    pub async fn create_each(&self, tasks: &[NewTask]) -> Result<Vec<Creation>, CreateError> {
        let span = Traceparent::current();
        if self.hooks.is_empty() && self.parent.is_none() && span.is_none() {
            return Ok(self.insert(tasks).await?);
        }
        let tasks = self.prepare_under(span, tasks.to_vec())?;
        Ok(self.insert(&tasks).await?)
    }

    /// Creates many tasks in a transaction of the application: see [`Create::in_tx`].
    ///
    /// ```no_run
    /// # use task_engine::{NewTask, TaskEngine, sqlite::rusqlite};
    /// # fn example(tasks: TaskEngine, mails: Vec<NewTask>) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut connection = rusqlite::Connection::open("app.db")?;
    /// let transaction = connection.transaction()?;
    /// transaction.execute("INSERT INTO orders (customer) VALUES ('ada')", [])?;
    /// tasks.create_many_in(&transaction, mails)?;
    /// transaction.commit()?;
    /// # Ok(()) }
    /// ```
    pub fn create_many_in<X: Transaction>(
        &self,
        transaction: X,
        tasks: Vec<NewTask>,
    ) -> X::Answer<Result<Vec<TaskId>, CreateError>> {
        let created = transaction.create(self.store.schema_name(), self.prepare(tasks));
        X::map(created, |created| Ok(created?.into_iter().map(Creation::id).collect()))
    }

    /// Stores tasks that are prepared.
    pub(crate) async fn insert(&self, tasks: &[NewTask]) -> Result<Vec<Creation>, StoreError> {
        #[cfg(feature = "postgres")]
        if let Some(pool) = &self.pool {
            return pool.create(self.store.schema_name(), tasks).await;
        }
        self.store.create_each(tasks).await
    }

    /// A task with its parent, correlation id and span, and the changes of the hooks.
    pub(crate) fn prepared(&self, task: NewTask) -> Result<NewTask, CreateError> {
        let mut task = self.stamped(task);
        self.hooks.apply(&mut task)?;
        Ok(task)
    }

    /// Returns tasks as they would be created here, for a driver that [`Transaction`] does not
    /// support.
    ///
    /// They have their parent, correlation id and span, and the changes of the hooks.
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

    /// A task of a flow, whose correlation id is set before, or by the store.
    pub(crate) fn prepare_in_flow(
        &self,
        span: Option<Traceparent>,
        task: &mut NewTask,
    ) -> Result<(), CreateError> {
        if let Some(span) = span {
            flow::fill_traceparent(task, span);
        }
        if let Some(parent) = &self.parent {
            *task = parent.stamp(task.clone());
        }
        self.hooks.apply(task)
    }

    /// The parent of every task that is created here.
    pub(crate) fn parent(&self) -> Option<&Origin> {
        self.parent.as_deref()
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn pool(&self) -> Option<&Arc<dyn CreationPool>> {
        self.pool.as_ref()
    }

    /// The same, whose tasks have this parent: for [`Context::tasks`](crate::Context::tasks).
    #[cfg(feature = "engine")]
    pub(crate) fn within(&self, parent: Origin) -> Self {
        Self { parent: Some(Arc::new(parent)), ..self.clone() }
    }

    /// A task with its parent, correlation id and span, without the hooks.
    pub(crate) fn stamped(&self, task: NewTask) -> NewTask {
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

    /// Sends a signal to a durable task, by its id or by its class and unique key: see
    /// [`Context::wait_for`](crate::Context::wait_for).
    ///
    /// The first signal of a name counts. A signal that arrives before the task waits for it is
    /// kept.
    ///
    /// ```no_run
    /// # use task_engine::{TaskEngine, TaskId, SignalStatus};
    /// # async fn example(tasks: TaskEngine) -> Result<(), Box<dyn std::error::Error>> {
    /// let sent = tasks.signal(TaskId(7), "approved", &"ada").await?;
    /// assert!(sent.status.is_accepted());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Fails with [`StoreError::InvalidData`] if the payload cannot be stored, and with
    /// [`StoreError::Refused`] if the name is invalid. A signal that the task does not accept is
    /// no error: see [`SignalReport::status`].
    pub async fn signal(
        &self,
        target: impl Into<SignalTarget>,
        name: &str,
        payload: &impl serde::Serialize,
    ) -> Result<SignalReport, StoreError> {
        let payload = signal_payload(payload)?;
        self.store.signal(&target.into(), name, &payload).await
    }

    /// Sends a signal in a transaction of the application: the task receives it when the
    /// transaction commits.
    ///
    /// The task stays locked until then.
    ///
    /// With the PostgreSQL drivers it returns a future; with rusqlite, the result itself.
    pub fn signal_in<X: Transaction>(
        &self,
        transaction: X,
        target: impl Into<SignalTarget>,
        name: &str,
        payload: &impl serde::Serialize,
    ) -> X::Answer<Result<SignalReport, StoreError>> {
        let schema = self.store.schema_name();
        transaction.signal(schema, target.into(), name.to_owned(), signal_payload(payload))
    }

    /// Cancels a task: at once if it waits, by a request if it runs.
    ///
    /// The execution of a running task shows later how its code reacted.
    ///
    /// ```
    /// # use task_engine::{Task, TaskEngine};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct SendMail { to: String }
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tasks = TaskEngine::connect("sqlite::memory:").await?;
    /// # tasks.migrate().await?;
    /// use task_engine::CancelReport;
    ///
    /// let id = tasks.create(SendMail { to: "ada".into() }).await?;
    /// assert_eq!(tasks.cancel(id).await?, CancelReport::Cancelled);
    /// # Ok(()) }
    /// ```
    pub async fn cancel(&self, id: TaskId) -> Result<CancelReport, StoreError> {
        let reports = self.store.cancel(&[id]).await?;
        Ok(reports.first().copied().unwrap_or(CancelReport::NotFound))
    }
}

fn signal_payload(payload: &impl serde::Serialize) -> Result<Json, StoreError> {
    Json::encode(payload)
        .map_err(|error| StoreError::InvalidData(format!("the payload of the signal: {error}")))
}
