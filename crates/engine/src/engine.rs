//! The engine and its settings.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use task_engine_core::attempt::TaskError;
use task_engine_core::instance::Recovery;
use task_engine_core::limit::Limit;
use task_engine_core::process;
use task_engine_core::schedule::Schedule;
use task_engine_core::schema::Schema;
use task_engine_core::task::{Task, TaskOptions};

use crate::classes::{Classes, NewClass, RetryFunction};
#[cfg(doc)]
use crate::context::Context;
#[cfg(doc)]
use crate::failure::Failure;
use crate::handler::{BlockingHandler, Handler};
use crate::hook::{Hook, RegisteredHook};
use crate::pools::WorkerPools;
use crate::stop::StopHandle;
use crate::tasks::TaskEngine;

/// An engine claims the tasks that are due, runs their code, and records how each attempt ended.
///
/// `S` is the application's state, which every handler sees through its [`Context`].
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
/// use task_engine::{Context, Failure, StopHandle, Task, TaskEngine};
///
/// #[derive(Serialize, Deserialize, Task)]
/// struct Resize { width: u32 }
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
/// let tasks = TaskEngine::connect("sqlite::memory:").await?;
/// let stop = StopHandle::new();
/// let engine = tasks.engine(App { stop: stop.clone() })
///     .instance("images-1")                       // no two live engines share a name
///     .workers(10)                                // tasks at a time
///     .stop_timeout(Duration::from_secs(25))      // before the orchestrator kills
///     .stopped_by(stop)
///     .handle(resize);
/// tasks.migrate().await?;
/// tasks.create(Resize { width: 640 }).await?;
/// let stopped = engine.run().await?;
/// assert_eq!(stopped.released, 0);
/// # Ok(()) }
/// ```
#[must_use = "an engine does nothing until it is run"]
pub struct Engine<S> {
    pub(crate) tasks: TaskEngine,
    pub(crate) state: Arc<S>,
    pub(crate) classes: Classes<S>,
    pub(crate) hooks: Vec<RegisteredHook<S>>,
    pub(crate) retries: Vec<(String, RetryFunction)>,
    /// The schemas of classes that have a handler here.
    pub(crate) schemas: Vec<(String, Schema)>,
    pub(crate) settings: Settings,
    pub(crate) stop: StopHandle,
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("tasks", &self.tasks)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// `None`: a free one is chosen.
    pub(crate) instance: InstanceName,
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
    pub(crate) limits: Vec<Limit>,
}

/// How an engine gets its name.
#[derive(Debug, Clone)]
pub(crate) enum InstanceName {
    /// This one, or it does not start.
    Exact(String),
    /// This one, with a number if a live engine has it.
    Numbered(String),
}

impl InstanceName {
    pub(crate) fn as_str(&self) -> &str {
        let (Self::Exact(name) | Self::Numbered(name)) = self;
        name
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            instance: InstanceName::Numbered(process::host_name()),
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
            limits: Vec::new(),
        }
    }
}

impl<S: Send + Sync + 'static> Engine<S> {
    pub(crate) fn new(tasks: TaskEngine, state: S) -> Self {
        #[cfg(feature = "otlp")]
        crate::otlp::propagate();
        Self {
            tasks,
            state: Arc::new(state),
            classes: Classes::new(),
            hooks: Vec::new(),
            retries: Vec::new(),
            schemas: Vec::new(),
            settings: Settings::default(),
            stop: StopHandle::new(),
        }
    }

    /// Sets the name of this engine.
    ///
    /// No two live engines share a name, so an engine whose name is taken does not start
    /// ([`EngineError::NameTaken`](crate::EngineError::NameTaken)).
    ///
    /// Default: the name of the machine, or the first of `machine-2`, `machine-3`, … that is free.
    /// So several engines start on one machine, and a restarted one gets its name back.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.settings.instance = InstanceName::Exact(name.into());
        self
    }

    /// Sets the name of this engine to this one, or to the first of `name-2`, `name-3`, … that is
    /// free.
    ///
    /// Use it for several engines of one kind.
    /// [`RunningEngine::instance`](crate::RunningEngine::instance) returns the name that the engine
    /// got.
    pub fn numbered_instance(mut self, name: impl Into<String>) -> Self {
        self.settings.instance = InstanceName::Numbered(name.into());
        self
    }

    /// Sets how many tasks the engine runs at a time, besides those of queues with dedicated
    /// workers.
    ///
    /// Default: 5. With 0, only queues with dedicated workers are served ([`Engine::queue`]).
    ///
    /// ```
    /// # fn example<S: Send + Sync + 'static>(engine: task_engine::Engine<S>) -> task_engine::Engine<S> {
    /// // Twenty tasks at a time, of two queues; and two at a time of a third queue.
    /// engine.workers(20).queues(["default", "mail"]).queue("reports", 2)
    /// # }
    /// ```
    pub fn workers(mut self, workers: u16) -> Self {
        self.settings.worker_pools.workers = Some(workers);
        self
    }

    /// Sets the queues that the [workers](Self::workers) serve.
    ///
    /// Default: `default`, and the queues of the classes that have a handler here
    /// ([`TaskOptions::queue`]). The queues named here replace them. The engine warns when it
    /// starts if it does not serve the queue of a class.
    pub fn queues(mut self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.settings.worker_pools.queues = Some(queues.into_iter().map(Into::into).collect());
        self
    }

    /// Gives a queue dedicated workers, so that tasks of other queues never delay its tasks, nor
    /// the other way round.
    ///
    /// The engine serves its other queues as before.
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

    /// Adds workers that take only tasks of this priority or a higher one, from all queues of this
    /// engine.
    ///
    /// So tasks of lower priority that run for long never delay urgent ones.
    pub fn reserve(mut self, priority: i32, workers: u16) -> Self {
        self.settings.worker_pools.reserved.push((priority, workers));
        self
    }

    /// Gives classes dedicated workers, which take no other tasks.
    ///
    /// At most this many tasks of these classes run at a time in this engine; other engines may run
    /// more. Use it for code with a limited resource: a pool of processes, a licence, a graphics
    /// card. The workers serve all queues of this engine.
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

    /// Sets what happens to the tasks of dead engines.
    ///
    /// Default: engines recover them ([`Recovery::Auto`]). Each attempt ends as a failure, the
    /// retry rule of its class decides what follows, and the log reports it.
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.settings.recovery = recovery;
        self
    }

    /// Sets how long running tasks may go on after a stop, before they are cancelled and released.
    ///
    /// Default: without limit. Set it shorter than the time after which the orchestrator kills the
    /// process.
    pub fn stop_timeout(mut self, time: Duration) -> Self {
        self.settings.stop_timeout = Some(time);
        self
    }

    /// Sets how often the engine sends a heartbeat, and how long after the last one it counts as
    /// dead.
    ///
    /// Default: 5 s and 30 s.
    pub fn heartbeat(mut self, every: Duration, dead_after: Duration) -> Self {
        self.settings.heartbeat = every;
        self.settings.lease = dead_after;
        self
    }

    /// Sets how often the engine looks for tasks without a wake-up.
    ///
    /// Default and maximum: 10 s.
    pub fn poll(mut self, every: Duration) -> Self {
        self.settings.poll = every;
        self
    }

    /// Sets how long successful tasks are kept; `None` for ever.
    ///
    /// Default: 30 days. Failed and cancelled tasks stay until an operator removes them.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn example<S: Send + Sync + 'static>(engine: task_engine::Engine<S>) -> task_engine::Engine<S> {
    /// engine.retention(Some(Duration::from_secs(7 * 86_400)))
    /// # }
    /// ```
    pub fn retention(mut self, age: Option<Duration>) -> Self {
        self.settings.retention = age;
        self
    }

    /// Sets how long entries of the audit log are kept, at least 90 days; `None` for ever.
    ///
    /// Default: `None`.
    pub fn audit_retention(mut self, age: Option<Duration>) -> Self {
        self.settings.audit_retention = age;
        self
    }

    /// Sets whether the start of the engine creates the tables, or brings them to this version.
    ///
    /// Default: yes.
    pub fn migrate_at_start(mut self, migrate: bool) -> Self {
        self.settings.migrate = migrate;
        self
    }

    /// Declares a schedule.
    ///
    /// It is stored when the engine starts. If the declaration has changed since the last start, it
    /// replaces what is stored; if not, an operator's changes are kept. A schedule that is no
    /// longer declared stays until an operator removes it.
    ///
    /// ```
    /// # use task_engine::{Engine, Schedule, Task};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Tidy;
    /// # fn example(engine: Engine<()>) -> Engine<()> {
    /// engine.schedule(Schedule::cron("tidy", "30 4 * * *").time_zone("Europe/Paris").task(&Tidy))
    /// # }
    /// ```
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.settings.schedules.push(schedule);
        self
    }

    /// Declares a limit for a queue, or a limit that tasks name when they are created.
    ///
    /// See [`Create::limit`](crate::Create::limit) for tasks that name a limit.
    ///
    /// It is stored when the engine starts, and holds for all engines of the database. If engines
    /// declare different options, those of the engine that started last apply. What an operator has
    /// set stays.
    ///
    /// Limits of a class belong to its options: [`TaskOptions::limit`]. A limit of a class is
    /// removed when an engine with the class starts without it; any other stays until an
    /// operator clears it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use task_engine::Engine;
    /// use task_engine::limit::{InvalidLimit, Limit, LimitOptions, Rate};
    ///
    /// # fn example(engine: Engine<()>) -> Result<Engine<()>, InvalidLimit> {
    /// let a_second = Duration::from_secs(1);
    /// let api = LimitOptions::max(10).and_rate(Rate::new(100, a_second));
    /// let engine = engine
    ///     .limit(Limit::of_queue("mail", "mail", LimitOptions::max(5))?)
    ///     .limit(Limit::named("api", api)?);
    /// # Ok(engine)
    /// # }
    /// ```
    pub fn limit(mut self, limit: Limit) -> Self {
        self.settings.limits.push(limit);
        self
    }

    /// Adds the handler of a class: an asynchronous function of the task and its [`Context`].
    ///
    /// It returns a result, which is stored, or any error ([`Failure`]).
    ///
    /// A function that needs no context leaves it out. One that needs no task does the same, and
    /// names the class here.
    ///
    /// ```
    /// # use task_engine::{Context, Engine, Failure, Task};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct SendMail { to: String }
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Add { a: i64, b: i64 }
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Tidy;
    /// # struct App;
    /// async fn send_mail(task: SendMail, cx: Context<App>) -> Result<(), std::io::Error> {
    ///     cx.log(format!("to {}", task.to));
    ///     Ok(())
    /// }
    /// async fn add(task: Add) -> Result<i64, Failure> { Ok(task.a + task.b) }
    /// async fn tidy() -> Result<(), Failure> { Ok(()) }
    ///
    /// # fn example(engine: Engine<App>) -> Engine<App> {
    /// engine.handle(send_mail).handle(add).handle::<Tidy, _>(tidy)
    /// # }
    /// ```
    #[track_caller]
    pub fn handle<T: Task, A: 'static>(mut self, handler: impl Handler<T, S, A>) -> Self {
        self.classes.add_async(NewClass::of::<T>(Location::caller()), handler);
        self
    }

    /// Sets a function that decides about the retries of a class that has a handler here.
    ///
    /// It gets the number of retries so far and the error, and returns the wait until the next
    /// attempt, or `None` for no retry. It replaces the rules of class and task, unless the error
    /// has its own advice ([`Failure::no_retry`], [`Failure::retry_after`]).
    ///
    /// The rules apply after a crash, when recovery cannot call the function, and if
    /// the function panics.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use task_engine::{Engine, Failure, Context, Task};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Call;
    /// # async fn call(_: Call, _: Context<()>) -> Result<(), Failure> { Ok(()) }
    /// # fn example(engine: Engine<()>) -> Engine<()> {
    /// // Network errors are retried without limit, others never.
    /// engine.handle(call).retry_with::<Call>(|number, error| {
    ///     error.exception.contains("io::error").then(|| Duration::from_secs(10) * (number + 1))
    /// })
    /// # }
    /// ```
    pub fn retry_with<T: Task>(
        mut self,
        rule: impl Fn(u32, &TaskError) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.retries.push((T::CLASS.to_owned(), Arc::new(rule)));
        self
    }

    /// Publishes the [JSON Schema](TaskOptions::schema) of a class that has a handler here.
    ///
    /// The command line, the HTTP API and the dashboard then refuse parameters that do not fit it.
    ///
    /// Needs the feature `schemars`.
    ///
    /// ```
    /// # use task_engine::{Engine, Failure, Task};
    /// use schemars::JsonSchema;
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, JsonSchema, Task)]
    /// struct Resize {
    ///     /// In pixels.
    ///     width: u32,
    /// }
    /// # async fn resize(_: Resize) -> Result<(), Failure> { Ok(()) }
    /// # fn example(engine: Engine<()>) -> Engine<()> {
    /// engine.handle(resize).publish_schema::<Resize>()
    /// # }
    /// ```
    #[cfg(feature = "schemars")]
    pub fn publish_schema<T: Task + schemars::JsonSchema>(mut self) -> Self {
        self.schemas.push((T::CLASS.to_owned(), Schema::of::<T>()));
        self
    }

    /// Adds the handler of a class: a function that blocks its thread.
    ///
    /// Each call gets its own thread. It cannot be dropped, so long handlers check
    /// [`Context::is_cancelled`] regularly.
    ///
    /// ```
    /// # use task_engine::{Engine, Failure, Context, Task};
    /// # #[derive(serde::Serialize, serde::Deserialize, Task)]
    /// # struct Checksum { file: String }
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
    pub fn handle_blocking<T: Task, A: 'static>(
        mut self,
        handler: impl BlockingHandler<T, S, A>,
    ) -> Self {
        self.classes.add_blocking(NewClass::of::<T>(Location::caller()), handler);
        self
    }

    /// Adds the handler of a class by the name of the class.
    ///
    /// Use it for tasks that other programs create, or for classes that are known only when the
    /// program runs.
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
    pub fn handle_class<P: DeserializeOwned + Send + 'static, A: 'static>(
        mut self,
        class: impl Into<String>,
        options: TaskOptions,
        handler: impl Handler<P, S, A>,
    ) -> Self {
        let class = NewClass { name: class.into(), options, place: Location::caller() };
        self.classes.add_async(class, handler);
        self
    }

    /// Adds code that runs around the executions of all classes; the first hook is outermost.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use task_engine::{Engine, hooks::Budget};
    /// # fn example(engine: Engine<()>) -> Engine<()> {
    /// engine
    ///     .hook(Budget::warn(Duration::from_secs(60)))
    ///     .hook_for(["send_mail"], Budget::fail(Duration::from_secs(10)))
    /// # }
    /// ```
    pub fn hook(mut self, hook: impl Hook<S>) -> Self {
        self.hooks.push(RegisteredHook::new(hook, None));
        self
    }

    /// Adds code that runs around the executions of these classes.
    pub fn hook_for(
        mut self,
        classes: impl IntoIterator<Item = impl Into<String>>,
        hook: impl Hook<S>,
    ) -> Self {
        let classes = classes.into_iter().map(Into::into).collect();
        self.hooks.push(RegisteredHook::new(hook, Some(classes)));
        self
    }

    /// Stops this engine with a handle that was made before: see [`StopHandle`].
    pub fn stopped_by(mut self, handle: StopHandle) -> Self {
        self.stop = handle;
        self
    }

    /// Returns a handle that stops the engine from another part of the program.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }
}
