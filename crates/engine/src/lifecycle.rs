//! Starting an engine, and its end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use task_engine_core::queue::Pool;
use task_engine_core::secret;
use tokio::sync::oneshot;

use crate::durable::InjectedFailures;
use crate::engine::{Engine, Settings};
use crate::engine_error::EngineError;
use crate::limits;
use crate::pools;
use crate::session::PreparedEngine;
use crate::stop::{StopHandle, Stopped, on_signals};

/// An engine that runs in the background.
///
/// Dropping it stops the engine as [`stop`](Self::stop) does, but then nothing waits for the
/// running tasks. See [`Engine::start`] for an example.
#[derive(Debug)]
#[must_use = "dropping it stops the engine"]
pub struct RunningEngine {
    stop: StopHandle,
    instance: String,
    /// `None` after its end.
    end: Option<oneshot::Receiver<Result<Stopped, EngineError>>>,
}

impl RunningEngine {
    /// Returns the name with which the engine registered.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Stops the engine after its running tasks have finished.
    ///
    /// No new task starts.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Stops the engine at once: running tasks are cancelled and released.
    pub fn stop_now(&self) {
        self.stop.stop_now();
    }

    /// Returns a handle that stops the engine from another part of the program.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Waits until the engine has ended, and returns how it ended.
    pub async fn join(mut self) -> Result<Stopped, EngineError> {
        self.ended().await
    }

    async fn ended(&mut self) -> Result<Stopped, EngineError> {
        let Some(end) = &mut self.end else { return Ok(Stopped::default()) };
        let ended = end.await;
        self.end = None;
        ended.unwrap_or_else(|_| Err(EngineError::Broken("its thread ended".to_owned())))
    }
}

impl Drop for RunningEngine {
    fn drop(&mut self) {
        // Its handle may stop other engines, too.
        if self.end.is_some() {
            self.stop.stop();
        }
    }
}

impl<S: Send + Sync + 'static> Engine<S> {
    /// Runs the engine until SIGTERM or SIGINT: the first signal lets running tasks finish, the
    /// second cancels and releases them.
    ///
    /// See [`StopHandle::stop_on_signals`].
    ///
    /// # Errors
    /// Fails with an [`EngineError`] if the engine cannot start, and if it cannot go on:
    /// each variant says why.
    pub async fn run(self) -> Result<Stopped, EngineError> {
        let signals = on_signals(self.stop.clone())?;
        let stopped = self.run_until(std::future::pending()).await;
        signals.abort();
        stopped
    }

    /// Runs the engine until `shutdown` completes, or until its [`StopHandle`] is used.
    ///
    /// Then running tasks finish. It installs no handlers of signals. Errors are those of
    /// [`run`](Self::run).
    ///
    /// ```no_run
    /// # async fn example(engine: task_engine::Engine<()>) -> Result<(), Box<dyn std::error::Error>> {
    /// engine.run_until(async { let _ = tokio::signal::ctrl_c().await; }).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run_until(
        self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Stopped, EngineError> {
        let (mut engine, _) = self.spawn()?;
        let stop = engine.stop_handle();
        tokio::select! {
            ended = engine.ended() => return ended,
            () = shutdown => stop.stop(),
        }
        engine.ended().await
    }

    /// Starts the engine in the background.
    ///
    /// Returns as soon as the engine has registered and takes tasks. Errors of the start are those
    /// of [`run`](Self::run); later ones are returned by [`RunningEngine::join`].
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = task_engine::TaskEngine::connect("sqlite::memory:").await?.engine(());
    /// let engine = engine.start().await?;
    /// // … serve requests …
    /// engine.stop();                          // running tasks may finish
    /// let stopped = engine.join().await?;
    /// assert!(!stopped.forced);
    /// # Ok(()) }
    /// ```
    pub async fn start(self) -> Result<RunningEngine, EngineError> {
        let (mut engine, started) = self.spawn()?;
        match started.await {
            Ok(instance) => engine.instance = instance,
            // It has ended: by an error, or because it was stopped before.
            Err(_) => drop(engine.ended().await?),
        }
        Ok(engine)
    }

    /// Tasks run on the runtime that this is called from. Claims, records and
    /// heartbeats run on a separate thread, so that a task that blocks cannot make
    /// the engine look dead.
    fn spawn(self) -> Result<(RunningEngine, oneshot::Receiver<String>), EngineError> {
        let (stop, instance) = (self.stop.clone(), self.settings.instance.as_str().to_owned());
        let engine = self.prepare()?;
        let control = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("task-engine-control")
            .enable_all()
            .build()?;
        let (started, registered) = oneshot::channel();
        let (send, ended) = oneshot::channel();
        std::thread::Builder::new().name("task-engine".to_owned()).spawn(move || {
            let end = control.block_on(control.spawn(engine.run(started)));
            // Not waited for: a part of the engine may hang after a forced stop.
            control.shutdown_background();
            // The receiver is gone if the application no longer waits.
            let _ = send.send(end.unwrap_or_else(|e| Err(EngineError::Broken(e.to_string()))));
        })?;
        Ok((RunningEngine { stop, instance, end: Some(ended) }, registered))
    }

    /// Checks the settings. Tasks run on the runtime that this is called from.
    pub(crate) fn prepare(mut self) -> Result<PreparedEngine<S>, EngineError> {
        let pools = self.check()?;
        self.classes.publish(&self.schemas);
        for (class, why) in self.classes.remove_invalid_schemas() {
            tracing::warn!("the schema of class {class} is not published: {why}");
        }
        self.classes.hook(&self.hooks);
        self.classes.retry(&self.retries);
        Ok(PreparedEngine {
            store: self.tasks.store().clone(),
            tasks: self.tasks,
            state: self.state,
            classes: Arc::new(self.classes),
            settings: self.settings,
            pools,
            stop: self.stop,
            handlers: tokio::runtime::Handle::current(),
            injected_failures: InjectedFailures::default(),
        })
    }

    /// Checks the settings, and returns the pools of workers.
    fn check(&self) -> Result<Vec<Pool>, EngineError> {
        if let Some((class, first, second)) = self.classes.duplicate.clone() {
            return Err(EngineError::TwoHandlers { class, first, second });
        }
        let Settings { instance, worker_pools, heartbeat, lease, poll, .. } = &self.settings;
        let wrong = |why: String| Err(EngineError::Setting(why));
        let name = instance.as_str();
        if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
            return wrong(format!(
                "{name:?} cannot be the name of an engine: use 1 to 200 bytes without control characters"
            ));
        }
        for (class, options) in self.classes.options() {
            if let Err(why) = secret::check(&options.secret) {
                return wrong(format!("class {class}: {why}"));
            }
        }
        limits::check(&self.classes, &self.settings.limits).map_err(EngineError::Setting)?;
        for (class, _) in &self.retries {
            if self.classes.get(class).is_none() {
                return wrong(format!(
                    "a retry function is for class {class}, which has no handler here; add one with Engine::handle"
                ));
            }
        }
        for (class, _) in &self.schemas {
            if self.classes.get(class).is_none() {
                return wrong(format!(
                    "a schema is for class {class}, which has no handler here; add one with Engine::handle"
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
