//! The engine and its settings.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::creation_hook::CreationHook;
use serde::Serialize;
use serde::de::DeserializeOwned;
use task_engine_core::attempt::TaskError;
use task_engine_core::display::{count, span};
use task_engine_core::instance::{InstanceRow, Recovery};
use task_engine_core::queue::Pool;
use task_engine_core::recovery::HeldTask;
use task_engine_core::schedule::Schedule;
use task_engine_core::secret;
use task_engine_core::task::{Task, TaskOptions};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

use crate::admission;
use crate::context::Context;
use crate::failure::Failure;
use crate::handler::{Classes, NewClass, RetryFunction};
use crate::hook::{Hook, RegisteredHook};
use crate::pools::{self, WorkerPools};
use crate::session::PreparedEngine;
use crate::stop::{StopHandle, Stopped, on_signals};

/// Executes tasks: claims those that are due, runs their code, and records how
/// each attempt ended. `S` is the application's state, which every handler sees
/// through its [`Context`].
///
/// Add a handler for each class ([`handle`](Self::handle) and its variants), change
/// settings where the defaults do not fit, then [`run`](Self::run) it. Any number of
/// engines may share a store, each with its own name ([`instance`](Self::instance)).
/// The other engines recover the tasks of a dead one, and so does the next engine that
/// starts on its machine ([`recovery`](Self::recovery)).
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use serde::{Deserialize, Serialize};
/// use task_engine::{Client, Engine, Failure, Context, StopHandle, Task};
/// use task_engine::sqlite::SqliteStore;
///
/// #[derive(Serialize, Deserialize)]
/// struct Resize { width: u32 }
/// impl Task for Resize { const CLASS: &'static str = "resize"; }
///
/// struct App { stop: StopHandle }
///
/// async fn resize(task: Resize, cx: Context<App>) -> Result<u32, Failure> {
///     cx.state().stop.stop(); // So that this example has an end.
///     Ok(task.width / 2)
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(SqliteStore::open_in_memory()?);
/// let stop = StopHandle::new();
/// let engine = Engine::new(store.clone(), App { stop: stop.clone() })
///     .instance("images-1")                       // no two live engines share a name
///     .workers(10)                                // tasks at a time
///     .stop_timeout(Duration::from_secs(25))      // before the orchestrator kills
///     .stopped_by(stop)
///     .handle(resize);
/// engine.migrate().await?;
/// Client::new(store).create(Resize { width: 640 }).await?;
/// let stopped = engine.run().await?;
/// assert_eq!(stopped.released, 0);
/// # Ok(()) }
/// ```
#[must_use = "an engine does nothing until it is run"]
pub struct Engine<S> {
    store: Arc<dyn Store>,
    /// Creates the child tasks of tasks.
    client: Client,
    state: Arc<S>,
    classes: Classes<S>,
    hooks: Vec<RegisteredHook<S>>,
    retries: Vec<(String, RetryFunction)>,
    settings: Settings,
    stop: StopHandle,
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("store", &self.store)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Why an engine does not run.
///
/// `Debug` prints the same text as `Display`, so that a `main` that returns it prints
/// a readable message.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Two handlers for one class.
    #[error("class {class} has two handlers: the first at {first}, the second at {second}")]
    TwoHandlers {
        /// The class.
        class: String,
        /// Where the first was given.
        first: String,
        /// Where the second was given.
        second: String,
    },
    /// A setting that cannot work.
    #[error("{0}")]
    Setting(String),
    /// A live engine has the name.
    #[error(
        "{}. Give this one another name with Engine::instance, or none: then it gets one that is free",
        name_taken(.0)
    )]
    NameTaken(Box<InstanceRow>),
    /// A dead engine of this name left tasks, and with [`Recovery::Manual`] an
    /// operator recovers them.
    #[error(
        "{}\nRecover them with `task-engine recover {}`, or let engines do it: Engine::recovery(Recovery::Auto), the default",
        left_tasks(.holder, .tasks), .holder.name
    )]
    LeftTasks {
        /// The dead engine.
        holder: Box<InstanceRow>,
        /// Its tasks.
        tasks: Vec<HeldTask>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A part of the engine panicked. Its tasks are left to recovery.
    #[error("the engine broke, which is a bug of Task Engine: {0}")]
    Broken(String),
    /// The operating system refused something that an engine needs.
    #[error("the engine cannot start: {0}")]
    System(#[from] std::io::Error),
}

impl fmt::Debug for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl EngineError {
    /// What happened, without the advice for Rust callers: the command line has its
    /// own.
    #[doc(hidden)]
    #[must_use]
    pub fn without_advice(&self) -> String {
        match self {
            Self::NameTaken(holder) => name_taken(holder),
            Self::LeftTasks { holder, tasks } => left_tasks(holder, tasks),
            other => other.to_string(),
        }
    }
}

fn name_taken(holder: &InstanceRow) -> String {
    format!(
        "an engine named {:?} is alive: process {} on {}, since {}, last heartbeat {} ago",
        holder.name,
        holder.pid,
        holder.host,
        holder.started_at,
        span(holder.heartbeat_age)
    )
}

fn left_tasks(holder: &InstanceRow, tasks: &[HeldTask]) -> String {
    format!(
        "the last engine named {:?} (process {} on {}) died and left {}:\n{}",
        holder.name,
        holder.pid,
        holder.host,
        count(tasks.len(), "running task"),
        admission::list(tasks)
    )
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// `None`: a free one is chosen.
    pub(crate) instance: Option<String>,
    pub(crate) worker_pools: WorkerPools,
    pub(crate) recovery: Recovery,
    pub(crate) stop_timeout: Option<Duration>,
    pub(crate) heartbeat: Duration,
    pub(crate) lease: Duration,
    pub(crate) poll: Duration,
    pub(crate) retention: Option<Duration>,
    pub(crate) audit_retention: Option<Duration>,
    pub(crate) migrate: bool,
    pub(crate) schedules: Vec<Schedule>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            instance: None,
            worker_pools: WorkerPools::default(),
            recovery: Recovery::default(),
            stop_timeout: None,
            heartbeat: Duration::from_secs(5),
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(10),
            retention: Some(Duration::from_secs(30 * 86_400)),
            audit_retention: None,
            migrate: true,
            schedules: Vec::new(),
        }
    }
}

impl<S: Send + Sync + 'static> Engine<S> {
    /// An engine on a store, with the application's state.
    pub fn new(store: Arc<dyn Store>, state: S) -> Self {
        #[cfg(feature = "otlp")]
        crate::otlp::propagate();
        Self {
            client: Client::new(store.clone()),
            store,
            state: Arc::new(state),
            classes: Classes::new(),
            hooks: Vec::new(),
            retries: Vec::new(),
            settings: Settings::default(),
            stop: StopHandle::new(),
        }
    }

    /// Its name: no two live engines share one, so an engine whose name is taken
    /// does not start. Default: the name of the machine, or the first of
    /// `machine-2`, `machine-3`, … that is free; so several engines start on one
    /// machine, and a restarted one gets its name back.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.settings.instance = Some(name.into());
        self
    }

    /// How many tasks it runs at a time, besides those of queues with dedicated
    /// workers. Default: 5. With 0, only queues with dedicated workers are served
    /// ([`Engine::queue`]).
    pub fn workers(mut self, workers: u16) -> Self {
        self.settings.worker_pools.workers = Some(workers);
        self
    }

    /// The queues that these workers serve. Default: `default`, and the queues of the
    /// classes that have a handler here ([`TaskOptions::queue`]). The queues named here
    /// replace them. The engine warns when it starts if it does not serve the queue of
    /// a class.
    pub fn queues(mut self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.settings.worker_pools.queues = Some(queues.into_iter().map(Into::into).collect());
        self
    }

    /// Gives a queue dedicated workers: tasks of other queues never delay its tasks,
    /// nor the other way round. The engine serves its other queues as before.
    ///
    /// ```
    /// # fn example<S: Send + Sync + 'static>(engine: task_engine::Engine<S>) -> task_engine::Engine<S> {
    /// // Ten workers for mail, two for reports, five for all other queues.
    /// engine.queue("mail", 10).queue("reports", 2)
    /// # }
    /// ```
    pub fn queue(mut self, name: impl Into<String>, workers: u16) -> Self {
        self.settings.worker_pools.dedicated.push((name.into(), workers));
        self
    }

    /// Adds workers that take only tasks of this priority or a higher one, from all
    /// queues of this engine. So long tasks of lower priority never delay urgent
    /// ones.
    pub fn reserve(mut self, priority: i32, workers: u16) -> Self {
        self.settings.worker_pools.reserved.push((priority, workers));
        self
    }

    /// Gives classes dedicated workers, which take no other tasks. At most this many
    /// tasks of these classes run at a time in this engine; other engines may run
    /// more. For code with a limited resource: a pool of processes, a licence, a
    /// graphics card. The workers serve all queues of this engine.
    ///
    /// ```
    /// # fn example<S: Send + Sync + 'static>(engine: task_engine::Engine<S>) -> task_engine::Engine<S> {
    /// engine.workers(10).class_workers(["render", "thumbnail"], 2)
    /// # }
    /// ```
    pub fn class_workers(
        mut self,
        classes: impl IntoIterator<Item = impl Into<String>>,
        workers: u16,
    ) -> Self {
        let classes = classes.into_iter().map(Into::into).collect();
        self.settings.worker_pools.by_class.push((classes, workers));
        self
    }

    /// What happens to the tasks of dead engines. Default: engines recover them
    /// ([`Recovery::Auto`]). Each attempt ends as a failure, the retry rule of its
    /// class decides what follows, and the log reports it.
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.settings.recovery = recovery;
        self
    }

    /// How long running tasks may go on after a stop. Default: without limit.
    pub fn stop_timeout(mut self, time: Duration) -> Self {
        self.settings.stop_timeout = Some(time);
        self
    }

    /// How often it sends a heartbeat, and how long after the last one it counts as
    /// dead. Default: 5 s and 30 s.
    pub fn heartbeat(mut self, every: Duration, dead_after: Duration) -> Self {
        self.settings.heartbeat = every;
        self.settings.lease = dead_after;
        self
    }

    /// How often it looks for tasks without a wake-up. Default and maximum: 10 s.
    pub fn poll(mut self, every: Duration) -> Self {
        self.settings.poll = every;
        self
    }

    /// How long successful tasks are kept; `None` for ever. Default: 30 days.
    pub fn retention(mut self, age: Option<Duration>) -> Self {
        self.settings.retention = age;
        self
    }

    /// How long entries of the audit are kept, at least 90 days; `None` for ever,
    /// the default.
    pub fn audit_retention(mut self, age: Option<Duration>) -> Self {
        self.settings.audit_retention = age;
        self
    }

    /// Whether starting brings the tables to this version. Default: yes.
    pub fn migrate_at_start(mut self, migrate: bool) -> Self {
        self.settings.migrate = migrate;
        self
    }

    /// Declares a schedule. It is stored when the engine starts. If the declaration
    /// has changed since the last start, it replaces what is stored; if not, an
    /// operator's changes are kept. A schedule that is no longer declared stays until
    /// an operator removes it.
    ///
    /// ```
    /// # use task_engine::{Engine, Schedule, Task};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Tidy;
    /// # impl Task for Tidy { const CLASS: &'static str = "tidy"; }
    /// # fn example(engine: Engine<()>) -> Engine<()> {
    /// engine.schedule(Schedule::cron("tidy", "30 4 * * *").time_zone("Europe/Paris").task(&Tidy))
    /// # }
    /// ```
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.settings.schedules.push(schedule);
        self
    }

    /// The handler of a class: an asynchronous function of the task and its [`Context`].
    /// Its return value is stored as the result; any error becomes a [`Failure`].
    #[track_caller]
    pub fn handle<T, R, E, F, Fut>(mut self, function: F) -> Self
    where
        T: Task,
        R: Serialize + 'static,
        E: Into<Failure> + 'static,
        F: Fn(T, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        self.classes.add_async(NewClass::of::<T>(Location::caller()), function);
        self
    }

    /// A retry function for a class that has a handler here. It gets the number of
    /// retries so far and the error, and returns the wait until the next attempt, or
    /// `None` for no retry. It replaces the rules of class and task, unless the error
    /// has its own advice ([`Failure::no_retry`], [`Failure::retry_after`]).
    ///
    /// The rules apply after a crash, when recovery cannot call the function, and if
    /// the function panics.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use task_engine::{Engine, Failure, Context, Task};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Call;
    /// # impl Task for Call { const CLASS: &'static str = "call"; }
    /// # async fn call(_: Call, _: Context<()>) -> Result<(), Failure> { Ok(()) }
    /// # fn example(engine: Engine<()>) -> Engine<()> {
    /// // Network errors are retried without limit, others never.
    /// engine.handle(call).retry_with(Call::CLASS, |number, error| {
    ///     error.exception.contains("io::error").then(|| Duration::from_secs(10) * (number + 1))
    /// })
    /// # }
    /// ```
    pub fn retry_with(
        mut self,
        class: impl Into<String>,
        rule: impl Fn(u32, &TaskError) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.retries.push((class.into(), Arc::new(rule)));
        self
    }

    /// The handler of a class: a function that blocks its thread. Each call gets its
    /// own thread. It cannot be dropped, so long handlers check
    /// [`Context::is_cancelled`] regularly.
    ///
    /// ```
    /// # use task_engine::{Engine, Failure, Context, Task};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Checksum { file: String }
    /// # impl Task for Checksum { const CLASS: &'static str = "checksum"; }
    /// fn checksum(task: Checksum, cx: Context<()>) -> Result<u64, Failure> {
    ///     let mut sum = 0_u64;
    ///     for byte in std::fs::read(&task.file)? {
    ///         if cx.is_cancelled() {
    ///             return Err("cancelled".into());
    ///         }
    ///         sum = sum.wrapping_mul(31).wrapping_add(u64::from(byte));
    ///     }
    ///     Ok(sum)
    /// }
    /// # fn example(engine: Engine<()>) -> Engine<()> {
    /// engine.handle_blocking(checksum)
    /// # }
    /// ```
    #[track_caller]
    pub fn handle_blocking<T, R, E, F>(mut self, function: F) -> Self
    where
        T: Task,
        R: Serialize + 'static,
        E: Into<Failure> + 'static,
        F: Fn(T, Context<S>) -> Result<R, E> + Send + Sync + 'static,
    {
        self.classes.add_blocking(NewClass::of::<T>(Location::caller()), function);
        self
    }

    /// The handler of a class by name: for tasks that other programs create, or
    /// classes that are known only when the program runs.
    ///
    /// ```
    /// # use task_engine::{TaskOptions, Engine, Failure, Context};
    /// async fn any(parameters: serde_json::Value, cx: Context<()>) -> Result<usize, Failure> {
    ///     println!("{} with {parameters}", cx.class());
    ///     Ok(parameters.to_string().len())
    /// }
    /// # fn example(engine: Engine<()>) -> Engine<()> {
    /// engine.handle_class("any", TaskOptions::default(), any)
    /// # }
    /// ```
    #[track_caller]
    pub fn handle_class<P, R, E, F, Fut>(
        mut self,
        class: impl Into<String>,
        options: TaskOptions,
        function: F,
    ) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        E: Into<Failure> + 'static,
        F: Fn(P, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        let class = NewClass { name: class.into(), options, place: Location::caller() };
        self.classes.add_async(class, function);
        self
    }

    /// Adds a hook on the creation of tasks by tasks ([`Context::client`]). Tasks that the
    /// application creates elsewhere have the hooks of its own [`Client`].
    pub fn creation_hook(mut self, hook: impl CreationHook) -> Self {
        self.client = self.client.hook(hook);
        self
    }

    /// Code around the executions of all classes; the first one is outermost.
    pub fn hook(mut self, hook: impl Hook<S>) -> Self {
        self.hooks.push(RegisteredHook::new(hook, None));
        self
    }

    /// Code around the executions of these classes.
    pub fn hook_for(
        mut self,
        classes: impl IntoIterator<Item = impl Into<String>>,
        hook: impl Hook<S>,
    ) -> Self {
        let classes = classes.into_iter().map(Into::into).collect();
        self.hooks.push(RegisteredHook::new(hook, Some(classes)));
        self
    }

    /// Uses a stop handle that was made before.
    pub fn stopped_by(mut self, handle: StopHandle) -> Self {
        self.stop = handle;
        self
    }

    /// Stops the engine from elsewhere in the program.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Brings the tables to this version. [`Engine::run`] does it too, unless
    /// [`migrate_at_start`](Self::migrate_at_start) is off.
    pub async fn migrate(&self) -> Result<Vec<String>, StoreError> {
        self.store.migrate().await
    }

    /// Runs until SIGTERM or SIGINT: the first lets running tasks finish, the
    /// second cancels and releases them. See [`StopHandle::stop_on_signals`].
    pub async fn run(self) -> Result<Stopped, EngineError> {
        let signals = on_signals(self.stop.clone())?;
        let stopped = self.run_until_stopped().await;
        signals.abort();
        stopped
    }

    /// Runs until its [`StopHandle`] is used.
    ///
    /// Tasks run on the runtime that this is called from. Claims, records and
    /// heartbeats run on a separate thread, so that a task that blocks cannot make
    /// the engine look dead.
    pub async fn run_until_stopped(self) -> Result<Stopped, EngineError> {
        let engine = self.prepare()?;
        let control = ControlRuntime::new()?;
        match control.handle().spawn(engine.run()).await {
            Ok(end) => end,
            Err(broken) => Err(EngineError::Broken(broken.to_string())),
        }
    }

    /// Checks the settings. Tasks run on the runtime that this is called from.
    pub(crate) fn prepare(mut self) -> Result<PreparedEngine<S>, EngineError> {
        let pools = self.check()?;
        self.classes.hook(&self.hooks);
        self.classes.retry(&self.retries);
        Ok(PreparedEngine {
            store: self.store,
            client: self.client,
            state: self.state,
            classes: Arc::new(self.classes),
            settings: self.settings,
            pools,
            stop: self.stop,
            handlers: tokio::runtime::Handle::current(),
        })
    }

    /// Checks the settings, and returns the pools of workers.
    fn check(&self) -> Result<Vec<Pool>, EngineError> {
        if let Some((class, first, second)) = self.classes.duplicate.clone() {
            return Err(EngineError::TwoHandlers { class, first, second });
        }
        let Settings { instance, worker_pools, heartbeat, lease, poll, .. } = &self.settings;
        let wrong = |why: String| Err(EngineError::Setting(why));
        if let Some(name) = instance
            && (name.is_empty() || name.len() > 200 || name.chars().any(char::is_control))
        {
            return wrong(format!(
                "{name:?} cannot be the name of an engine: use 1 to 200 bytes without control characters"
            ));
        }
        for (class, options) in self.classes.options() {
            if let Err(why) = secret::check(&options.secret) {
                return wrong(format!("class {class}: {why}"));
            }
        }
        for (class, _) in &self.retries {
            if self.classes.get(class).is_none() {
                return wrong(format!(
                    "a retry rule is for class {class}, which has no handler here; check the name"
                ));
            }
        }
        for hook in &self.hooks {
            if let Some(class) = hook.unknown_class(|class| self.classes.get(class).is_some()) {
                return wrong(format!(
                    "hook {} is for class {class}, which has no handler here; check the name",
                    hook.name()
                ));
            }
        }
        for class in worker_pools.by_class.iter().flat_map(|(classes, _)| classes) {
            if self.classes.get(class).is_none() {
                return wrong(format!(
                    "class {class} has dedicated workers and no handler here; check the name"
                ));
            }
        }
        let queues = self.classes.options().into_values().map(|options| options.queue).collect();
        let pools = worker_pools.pools(&queues).map_err(EngineError::Setting)?;
        let pools = pools::with_classes(pools, &self.classes.names());
        if heartbeat.is_zero() || *lease < *heartbeat * 2 {
            return wrong(format!(
                "with a heartbeat every {heartbeat:?}, an engine cannot count as dead after {lease:?}: allow at least two heartbeats"
            ));
        }
        if poll.is_zero() || *poll > Duration::from_secs(10) {
            return wrong(format!("the poll must be between 1 ms and 10 s, not {poll:?}"));
        }
        let mut names = std::collections::HashSet::new();
        for schedule in &self.settings.schedules {
            if !names.insert(schedule.name()) {
                return wrong(format!("schedule {:?} is declared twice", schedule.name()));
            }
            if let Err(error) = schedule.definition() {
                return wrong(error.to_string());
            }
        }
        Ok(pools)
    }
}

/// The runtime of the engine itself; handlers run on the application's.
struct ControlRuntime(Option<tokio::runtime::Runtime>);

impl ControlRuntime {
    fn new() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("task-engine-control")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    fn handle(&self) -> tokio::runtime::Handle {
        let runtime = self.0.as_ref();
        runtime.expect("it is there until it is dropped").handle().clone()
    }
}

impl Drop for ControlRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting for its shutdown would panic inside the application's runtime.
            runtime.shutdown_background();
        }
    }
}
