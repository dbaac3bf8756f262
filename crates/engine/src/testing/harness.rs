//! The harness: an engine that a test controls.

use std::collections::HashSet;
use std::fmt;
use std::panic::Location;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use task_engine_core::step::TaskSteps;
use task_engine_core::task::{Due, TaskRow};
use task_engine_core::task::{NewTask, Task, TaskId, TaskListQuery, TaskStatus};
use task_engine_sqlite::SqliteStore;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::durable::InjectedFailures;
use crate::engine::Engine;
use crate::limits;
use crate::pools;
use crate::running::lock;
use crate::schedule;
use crate::session::PreparedEngine;
use crate::tasks::TaskEngine;
use crate::testing::created::{self, Created, CreatedTasks};
use crate::testing::executed::{Drained, Executed, PassedOver};
use crate::testing::harness_session::HarnessSession;

/// An engine that runs tasks only when the test asks for it.
///
/// ```
/// # use task_engine::{Failure, Task};
/// # #[derive(serde::Serialize, serde::Deserialize, Task)]
/// # struct Add { a: i64, b: i64 }
/// use task_engine::testing::Harness;
///
/// async fn add(task: Add) -> Result<i64, Failure> { Ok(task.a + task.b) }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let harness = Harness::new(|tasks| tasks.engine(()).handle(add)).await;
/// let done = harness.perform(Add { a: 1, b: 2 }).await;
/// assert_eq!(done.result::<i64>(), Ok(3));
/// # }
/// ```
///
/// See [`testing`](crate::testing) for more.
pub struct Harness<S> {
    engine: PreparedEngine<S>,
    /// For the clock; `None` on other stores.
    sqlite: Option<SqliteStore>,
    /// Tasks that were performed directly: they do not count as created.
    performed: Mutex<HashSet<TaskId>>,
    one_at_a_time: tokio::sync::Mutex<()>,
    executed_max: usize,
}

/// Performed tasks wait where no engine takes them from.
const PERFORMED: &str = "performed by a test";
/// So many tasks in a row are a loop.
const EXECUTED_MAX: usize = 10_000;
const PAGE: u32 = 500;
/// How often the clock moves for one task.
const CLOCK_MOVES_MAX: usize = 1000;

impl<S: Send + Sync + 'static> Harness<S> {
    /// Creates a harness with its own in-memory database.
    ///
    /// `engine` is the function with which the application makes its engine. Its state, handlers,
    /// hooks, queues and schedules count; settings that only matter to a running engine do not.
    ///
    /// # Panics
    /// Panics if the engine could not start either, for example because a class has two handlers.
    pub async fn new(engine: impl FnOnce(&TaskEngine) -> Engine<S>) -> Self {
        let store = SqliteStore::open_in_memory();
        let store = store.unwrap_or_else(|error| panic!("no database in memory: {error}"));
        Self::begin(Arc::new(store.clone()), Some(store), engine).await
    }

    /// Creates a harness with a database in a file, in which the application may have tables of its
    /// own.
    ///
    /// # Panics
    /// Panics as [`Harness::new`], and if the file cannot be opened.
    pub async fn open(
        path: impl AsRef<Path>,
        engine: impl FnOnce(&TaskEngine) -> Engine<S>,
    ) -> Self {
        let store = SqliteStore::open(path).unwrap_or_else(|error| panic!("{error}"));
        Self::begin(Arc::new(store.clone()), Some(store), engine).await
    }

    /// Creates a harness on any store, for example on a PostgreSQL server for tests.
    ///
    /// The clock of other stores than SQLite cannot be moved by [`Harness::advance`].
    ///
    /// # Panics
    /// Panics as [`Harness::new`], and if the store cannot be reached.
    pub async fn on(
        store: impl Into<Arc<dyn Store>>,
        engine: impl FnOnce(&TaskEngine) -> Engine<S>,
    ) -> Self {
        Self::begin(store.into(), None, engine).await
    }

    async fn begin(
        store: Arc<dyn Store>,
        sqlite: Option<SqliteStore>,
        engine: impl FnOnce(&TaskEngine) -> Engine<S>,
    ) -> Self {
        let prepared = engine(&TaskEngine::new(store.clone())).prepare();
        let mut engine =
            prepared.unwrap_or_else(|error| panic!("this engine would not start: {error}"));
        engine.injected_failures = InjectedFailures::for_tests();
        assert!(
            Arc::ptr_eq(&store, &engine.store),
            "the engine uses another store; use the tasks that the harness passes"
        );
        expected(store.migrate().await);
        let limits = limits::declared(&engine.classes, &engine.settings.limits);
        let declared = limits::declare(&*store, &limits).await;
        declared.unwrap_or_else(|error| panic!("this engine would not start: {error}"));
        let declared = schedule::declare(&*store, &engine.settings.schedules).await;
        declared.unwrap_or_else(|error| panic!("this engine would not start: {error}"));
        Self {
            engine,
            sqlite,
            performed: Mutex::default(),
            one_at_a_time: tokio::sync::Mutex::default(),
            executed_max: EXECUTED_MAX,
        }
    }

    /// Sets how many tasks may run in one drain before the drain counts as endless and panics.
    ///
    /// Default: 10,000.
    #[must_use]
    pub fn limit(mut self, tasks: usize) -> Self {
        self.executed_max = tasks;
        self
    }

    /// Returns the store, which has the methods that are not here.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        self.engine.store.clone()
    }

    /// Returns the tasks of the database, without hooks on creation.
    #[must_use]
    pub fn tasks(&self) -> TaskEngine {
        TaskEngine::new(self.store())
    }

    /// Returns the application's state, as handlers see it.
    #[must_use]
    pub fn state(&self) -> &S {
        &self.engine.state
    }

    /// Runs one task now, and no other.
    ///
    /// If it fails, it is not retried.
    ///
    /// # Panics
    /// Panics if its class has no handler, or its parameters cannot be stored.
    pub async fn perform<T: Task>(&self, task: T) -> Executed {
        match NewTask::of(&task) {
            Ok(task) => self.perform_new(task).await,
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs one [`NewTask`] now, for example of a class without a type.
    ///
    /// Its time, queue and key do not matter.
    ///
    /// Its [limits](crate::limit) apply. If a rate delays it, or its key is closed, the clock
    /// moves to the next possible start.
    ///
    /// # Panics
    /// Panics as [`Harness::perform`], and if another task holds its key, or a rate delays it on a
    /// store whose clock cannot be moved.
    pub async fn perform_new(&self, mut task: NewTask) -> Executed {
        let _alone = self.one_at_a_time.lock().await;
        let known = self.engine.classes.names();
        assert!(
            known.contains(&task.class),
            "class {:?} has no handler in this engine; there are {}",
            task.class,
            known.join(", ")
        );
        (task.due, task.unique) = (Due::Now, None);
        task.queue = PERFORMED.to_owned();
        let ids = expected(self.store().create(std::slice::from_ref(&task)).await);
        lock(&self.performed).extend(&ids);
        let session = expected(HarnessSession::begin(&self.engine).await);
        let mut claimer = session.claimer_of(PERFORMED, &task.class);
        let mut moved = 0;
        let executed = loop {
            match expected(session.run_next(&mut *claimer).await) {
                Ok(executed) => break executed,
                // A rate, or a closed key.
                Err(Some(wait)) if self.sqlite.is_some() && moved < CLOCK_MOVES_MAX => {
                    moved += 1;
                    self.advance(wait).await;
                }
                Err(_) => panic!("{}", self.why_not_started(ids[0]).await),
            }
        };
        expected(session.end().await);
        if executed.will_be_retried() {
            expected(self.store().cancel(&ids).await);
        }
        executed
    }

    async fn why_not_started(&self, id: TaskId) -> String {
        match self.limits_of(id).await {
            None => "the task is not due: a bug of Task Engine".to_owned(),
            Some(limits) => format!("task {id} cannot start now, because of its {limits}"),
        }
    }

    /// The limits of a task, as text; `None` if it has none.
    async fn limits_of(&self, id: TaskId) -> Option<String> {
        let limits = expected(self.store().task_limits(id).await);
        let texts = limits.iter().map(|one| {
            let key = Some(one.usage.key.as_str()).filter(|key| !key.is_empty());
            let key = key.map(|key| format!(" for key {key:?}")).unwrap_or_default();
            format!("limit {:?}{key} ({})", one.limit.limit.name, one.limit.limit.options)
        });
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| texts.join(" or "))
    }

    /// Runs all tasks that are due, one after the other, until no task is due.
    ///
    /// Tasks that are created meanwhile run, too.
    ///
    /// Schedules that are due fire first.
    ///
    /// # Panics
    /// Panics if it does not end: see [`Harness::limit`].
    pub async fn drain(&self) -> Drained {
        let _alone = self.one_at_a_time.lock().await;
        let mut executed = Vec::new();
        let session = expected(HarnessSession::begin(&self.engine).await);
        expected(self.run_due(&session, &mut executed).await);
        expected(session.end().await);
        self.drained(executed).await
    }

    /// Runs all tasks like [`drain`](Self::drain), and moves the clock to the next due task until
    /// no task waits.
    ///
    /// The next due task may be a retry.
    ///
    /// Schedules fire when the clock passes their slots, but it does not move because of them.
    ///
    /// # Panics
    /// Panics as [`Harness::drain`], and on a store whose clock cannot be moved.
    pub async fn drain_until_quiet(&self) -> Drained {
        let _alone = self.one_at_a_time.lock().await;
        let mut executed = Vec::new();
        let session = expected(HarnessSession::begin(&self.engine).await);
        while let Some(wait) = expected(self.run_due(&session, &mut executed).await) {
            self.advance(wait).await;
        }
        expected(session.end().await);
        self.drained(executed).await
    }

    /// Runs all due tasks. Returns the time until the next task is due.
    async fn run_due(
        &self,
        session: &HarnessSession<'_, S>,
        executed: &mut Vec<Executed>,
    ) -> Result<Option<Duration>, StoreError> {
        let mut claimer = session.claimer();
        let mut looked_for_missed = false;
        loop {
            session.run_background_work().await?;
            match session.run_next(&mut *claimer).await? {
                Ok(one) => {
                    executed.push(one);
                    looked_for_missed = false;
                }
                Err(next_in) if looked_for_missed => return Ok(next_in),
                Err(_) => {
                    session.resume_missed().await?;
                    looked_for_missed = true;
                }
            }
            let (count, last) = (executed.len(), executed.iter().rev().take(5).rev());
            assert!(
                count <= self.executed_max,
                "{count} tasks have run, and there is no end to it; the last were\n{}",
                last.map(Executed::to_string).collect::<Vec<_>>().join("\n")
            );
        }
    }

    async fn drained(&self, executed: Vec<Executed>) -> Drained {
        Drained { executed, passed_over: expected(self.passed_over().await) }
    }

    /// Lets the next run of a step fail, once for each call.
    ///
    /// The attempt ends with the error `InjectedFailure`, and the code of the step does not run.
    pub fn fail_step(&self, name: &str, message: impl Into<String>) {
        self.engine.injected_failures.add(name, message.into());
    }

    /// Sends a signal to a task.
    ///
    /// # Panics
    /// Panics if it is refused: the task has ended, or got this signal before.
    pub async fn signal(&self, id: TaskId, name: &str, payload: &impl serde::Serialize) {
        let sent = expected(self.tasks().signal(id, name, payload).await);
        let status = sent.status.as_str();
        assert!(sent.status.is_accepted(), "signal {name:?} to task {id} was refused: {status}");
    }

    /// Returns the recorded steps and signals of a task.
    pub async fn steps(&self, id: TaskId) -> TaskSteps {
        expected(self.store().steps(id).await)
    }

    /// Moves the clock of the database forward.
    ///
    /// Nothing runs before the next drain, unless another engine uses the store.
    ///
    /// # Panics
    /// Panics on a store that is not SQLite.
    pub async fn advance(&self, by: Duration) {
        let Some(sqlite) = &self.sqlite else {
            panic!(
                "the clock of {} cannot be moved; use Harness::new or Harness::open",
                self.engine.store.location()
            );
        };
        expected(sqlite.advance_clock(by).await);
    }

    /// Returns the time of the database's clock.
    pub async fn now(&self) -> Timestamp {
        expected(self.store().schedule("").await).1
    }

    /// Returns all tasks of a class that were created, oldest first, in any status, without
    /// [performed](Self::perform) ones.
    ///
    /// # Panics
    /// Panics if the parameters of one do not fit the type.
    pub async fn created<T: Task>(&self) -> CreatedTasks<T> {
        let mut created = Vec::new();
        for row in expected(self.rows(Some(T::CLASS), None).await) {
            if lock(&self.performed).contains(&row.id) {
                continue;
            }
            if let Some(details) = expected(self.store().task(row.id).await) {
                created.push(Created::of_details(details));
            }
        }
        created.reverse();
        CreatedTasks::new(created)
    }

    /// Checks that such a task was created, and returns the first.
    ///
    /// # Panics
    /// Panics if none was. The message shows how those differ that were.
    #[track_caller]
    pub fn assert_created<T: Task>(&self, task: &T) -> impl Future<Output = Created<T>> {
        let place = Location::caller();
        async move {
            let created = self.created::<T>().await;
            match created.find(task) {
                Ok(found) => found,
                Err(why) => panic!("at {place}: {why}{}", self.others::<T>().await),
            }
        }
    }

    /// Checks that no such task was created.
    ///
    /// # Panics
    /// Panics if one was.
    #[track_caller]
    pub fn assert_not_created<T: Task>(&self, task: &T) -> impl Future<Output = ()> {
        let place = Location::caller();
        async move {
            if let Ok(found) = self.created::<T>().await.find(task) {
                panic!("at {place}: a task was created that should not be: {found:?}");
            }
        }
    }

    /// The classes of which there are tasks besides this one.
    async fn others<T: Task>(&self) -> String {
        let rows = expected(self.rows(None, None).await);
        let mut classes: Vec<String> = rows.into_iter().map(|row| row.class).collect();
        classes.retain(|class| class != T::CLASS);
        created::others(classes)
    }

    /// Newest first.
    async fn rows(
        &self,
        class: Option<&str>,
        status: Option<TaskStatus>,
    ) -> Result<Vec<TaskRow>, StoreError> {
        let class = class.map(str::to_owned);
        let mut filter = TaskListQuery { status, class, before: None, limit: PAGE };
        let mut rows = Vec::new();
        loop {
            let page = self.engine.store.tasks(&filter).await?;
            let Some(last) = page.last() else {
                return Ok(rows);
            };
            filter.before = Some(last.id);
            rows.extend(page);
        }
    }

    async fn passed_over(&self) -> Result<Vec<PassedOver>, StoreError> {
        let now = self.now().await;
        let (classes, queues) = (self.engine.classes.names(), pools::queues(&self.engine.pools));
        let mut waiting = self.rows(None, Some(TaskStatus::Waiting)).await?;
        // Blocked tasks are not due.
        waiting.retain(|row| row.scheduled_at <= now && !row.is_blocked);
        waiting.retain(|row| !lock(&self.performed).contains(&row.id));
        waiting.reverse();
        let paused = self.engine.store.paused_queues().await?;
        let mut passed = Vec::new();
        for row in waiting {
            let why = if !classes.contains(&row.class) {
                format!("class {:?} has no handler in this engine", row.class)
            } else if !queues.contains(&row.queue) {
                format!("no worker of this engine serves queue {:?}", row.queue)
            } else if paused.iter().any(|paused| paused.queue == row.queue) {
                format!("queue {:?} is paused", row.queue)
            } else {
                match self.limits_of(row.id).await {
                    Some(limits) => format!("it waits because of its {limits}"),
                    None => "it has just become due".to_owned(),
                }
            };
            let TaskRow { id: task_id, class, queue, .. } = row;
            passed.push(PassedOver { why, task_id, class, queue });
        }
        Ok(passed)
    }
}

impl<S> fmt::Debug for Harness<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("store", &self.engine.store).finish_non_exhaustive()
    }
}

fn expected<T>(answer: Result<T, StoreError>) -> T {
    answer.unwrap_or_else(|error| panic!("the store of the harness failed: {error}"))
}
