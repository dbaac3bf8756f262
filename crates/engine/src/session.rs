//! The sessions of an engine. A session is one registration: the engine registers,
//! works, and unregisters. If it was declared lost meanwhile (a suspended machine,
//! a long outage), it begins another session.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use task_engine_core::attempt::InterruptCause;
use task_engine_core::claim::ClaimIds;
use task_engine_core::display::span;
use task_engine_core::instance::{InstanceId, NewInstance};
use task_engine_core::process;
use task_engine_core::queue::{Lanes, Pool};
use task_engine_core::recovery::Reclaim;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admission::{self, EarlierSessions};
use crate::backoff::Backoff;
use crate::claims::Claims;
use crate::classes::Classes;
use crate::dispatch::Dispatcher;
use crate::durable::{EndedTasks, InjectedFailures, SessionHandle, write_steps};
use crate::engine::Settings;
use crate::engine_error::EngineError;
use crate::execute::{AttemptContext, GRACE};
use crate::heartbeat::Heartbeat;
use crate::limits::{self, FreedKeys};
use crate::pools::{self, FreeWorkers};
use crate::progress::ReportWriter;
use crate::record::{OpenCount, RecordContext, RecordTotals, ResultRecorder, STOP_TIMEOUT};
use crate::retention;
use crate::rollup::Rollups;
use crate::running::RunningAttempts;
use crate::schedule::{self, Scheduler};
use crate::settle::Settler;
use crate::stop::{Phase, StopHandle, StopSignal, Stopped};
use crate::tasks::TaskEngine;
use crate::wake_up::{self, WakeUps};

/// How long a stopping engine tries to unregister.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a stop waits for a registration that is under way.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(3);

/// An engine whose settings have been checked.
pub(crate) struct PreparedEngine<S> {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) tasks: TaskEngine,
    pub(crate) state: Arc<S>,
    pub(crate) classes: Arc<Classes<S>>,
    pub(crate) settings: Settings,
    pub(crate) pools: Vec<Pool>,
    pub(crate) stop: StopHandle,
    pub(crate) handlers: Handle,
    /// Failures that a test injects into steps.
    pub(crate) injected_failures: InjectedFailures,
}

impl<S: Send + Sync + 'static> PreparedEngine<S> {
    /// Runs sessions until the engine stops; reports the first registration.
    pub(crate) async fn run(
        self,
        started: oneshot::Sender<String>,
    ) -> Result<Stopped, EngineError> {
        let mut started = Some(started);
        let mut stop = self.stop.watch();
        tokio::select! {
            prepared = self.prepare_tables() => prepared?,
            // A store that does not answer must not prevent the stop.
            () = stop.reached(Phase::Draining) => return Ok(Stopped::default()),
        }
        let wake_ups = Arc::new(WakeUps::new(self.pools.len()));
        let mut background = self.start_background(&wake_ups);
        let mut earlier = EarlierSessions::default();
        loop {
            let Some((id, name)) = self.register(&earlier).await? else {
                return Ok(Stopped::default());
            };
            if earlier.is_empty() {
                self.declare_limits(id).await?;
                self.start_scheduler(id, &wake_ups, &mut background).await?;
            }
            tracing::info!(
                "Engine {name} started with {} workers ({}) on {}",
                pools::workers(&self.pools),
                pools::describe(&self.pools),
                self.store.location()
            );
            if let Some(started) = started.take() {
                // The receiver is gone if the application does not wait for the start.
                let _ = started.send(name.clone());
            }
            match self.run_session(id, &wake_ups).await {
                (SessionEnd::Stopping, totals) => {
                    let forced = stop.phase() == Phase::Forced;
                    tracing::info!("Engine {name} stopped");
                    return Ok(Stopped {
                        forced,
                        released: totals.released,
                        unrecorded: totals.unrecorded,
                    });
                }
                (SessionEnd::StoreUnusable, _) => {
                    let why = self.store.heartbeat(id).await.err();
                    return Err(EngineError::Store(why.unwrap_or(StoreError::InstanceOver)));
                }
                (SessionEnd::Broken, _) => {
                    return Err(EngineError::Broken(
                        "the panic is in the log; its tasks are left to recovery".to_owned(),
                    ));
                }
                (SessionEnd::InstanceOver, _) => {
                    tracing::warn!(
                        "engine {name} was declared lost; its running tasks were cancelled, and it registers again"
                    );
                    earlier.add(id, name);
                }
            }
        }
    }

    /// Starts what runs as long as the engine, whatever its session.
    fn start_background(&self, wake_ups: &Arc<WakeUps>) -> BackgroundTasks {
        let mut background = BackgroundTasks::default();
        background.spawn(wake_up::listen(self.store.clone(), wake_ups.clone()));
        background.spawn(retention::prune_regularly(
            self.store.clone(),
            self.settings.retention,
            self.settings.audit_retention,
        ));
        if let Some(time) = self.settings.stop_timeout {
            let (stop, mut watch) = (self.stop.clone(), self.stop.watch());
            background.spawn(async move {
                watch.reached(Phase::Draining).await;
                tokio::time::sleep(time).await;
                stop.stop_now();
            });
        }
        background
    }

    /// Registers, and returns the id and the name of the session. An engine that was
    /// registered before tries until its store can be reached. `None` if it is to stop.
    async fn register(
        &self,
        earlier: &EarlierSessions,
    ) -> Result<Option<(InstanceId, String)>, EngineError> {
        let (name, recovery) = (&self.settings.instance, self.settings.recovery);
        let mut stop = self.stop.watch();
        let mut backoff = Backoff::new();
        loop {
            let mut new = self.new_instance();
            let admitting =
                admission::admit(&*self.store, &mut new, name, earlier, recovery, &mut stop);
            let admitted = tokio::select! {
                admitted = admitting => admitted,
                () = register_timeout(self.stop.watch()) => Ok(None),
            };
            match admitted {
                Err(EngineError::Store(error)) if error.is_temporary() && !earlier.is_empty() => {
                    let wait = backoff.next();
                    tracing::warn!(
                        "the engine cannot register again, next try in {}: {error}",
                        span(wait)
                    );
                    tokio::time::sleep(wait).await;
                    if stop.phase() != Phase::Running {
                        return Ok(None);
                    }
                }
                admitted => return Ok(admitted?.map(|id| (id, new.name))),
            }
        }
    }

    /// Declares the limits of the engine. An engine that registers again does not: another
    /// engine may have declared others meanwhile.
    async fn declare_limits(&self, id: InstanceId) -> Result<(), EngineError> {
        let declared = limits::declared(&self.classes, &self.settings.limits);
        let stored = limits::declare(&*self.store, &declared).await;
        if stored.is_err() {
            let _ = self.store.unregister(id).await;
        }
        stored
    }

    /// Declares the schedules of the engine, and starts to fire slots.
    async fn start_scheduler(
        &self,
        id: InstanceId,
        wake_ups: &Arc<WakeUps>,
        background: &mut BackgroundTasks,
    ) -> Result<(), EngineError> {
        let options = self.classes.options();
        let queues = options.iter().map(|(name, options)| (&**name, &*options.queue));
        if let Some(warning) = pools::unserved(&self.pools, queues) {
            tracing::warn!("{warning}");
        }
        if let Err(error) = schedule::declare(&*self.store, &self.settings.schedules).await {
            let _ = self.store.unregister(id).await;
            return Err(error);
        }
        let (store, stop) = (self.store.clone(), self.stop.watch());
        background.spawn(Scheduler::new(store, wake_ups.clone(), stop).run());
        Ok(())
    }

    async fn prepare_tables(&self) -> Result<(), EngineError> {
        if self.settings.migrate {
            for applied in self.store.migrate().await? {
                tracing::info!("applied migration {applied}");
            }
            return Ok(());
        }
        let schema = self.store.schema_version().await?;
        schema.check()?;
        if schema.applied > Some(schema.known) {
            tracing::warn!("the schema is newer than this program; upgrade this program");
        }
        Ok(())
    }

    /// One session, after its registration.
    async fn run_session(
        &self,
        instance: InstanceId,
        wake_ups: &Arc<WakeUps>,
    ) -> (SessionEnd, RecordTotals) {
        let running = Arc::new(RunningAttempts::default());
        let numbers = pools::numbers(&self.pools);
        let (free_workers, receivers) = FreeWorkers::new(&numbers);
        let forced = self.cancel_when_forced(&running);
        let (session, recording) =
            self.open_session(instance, free_workers, &running, forced, wake_ups);
        let mut background = BackgroundTasks::default();
        background.spawn(session.reports.clone().run());
        background.spawn(session.rollups.clone().run());
        let dispatchers = self.dispatchers(&session, wake_ups, numbers, receivers);
        let EngineSession { context, claims, unrecorded, rollups, .. } = session;
        // The recorder ends when the last user of the context is gone.
        drop(context);
        let heartbeat = Heartbeat {
            store: self.store.clone(),
            instance,
            every: self.settings.heartbeat,
            recovery: self.settings.recovery,
            classes: self.classes.names().into_iter().collect(),
            claims: claims.clone(),
            running: running.clone(),
            wake_ups: wake_ups.clone(),
            rollups: rollups.clone(),
        };
        let mut tasks = SessionTasks {
            dispatching: tokio::spawn(pools::run(dispatchers)),
            heartbeat: tokio::spawn(heartbeat.run()),
            recording: tokio::spawn(recording),
        };
        let (end, totals) = tokio::select! {
            ended = tasks.run_to_end(&running) => ended,
            // A forced stop ends even if a part of the engine hangs.
            () = forced_stop_timeout(self.stop.watch()) => {
                let unrecorded = unrecorded.count();
                tracing::error!("{unrecorded} tasks did not end in time; they are left to recovery");
                (SessionEnd::Stopping, RecordTotals { released: 0, unrecorded })
            }
        };
        tasks.heartbeat.abort();
        tasks.dispatching.abort();
        // A lost engine does not wait for it.
        let last_rollups = tokio::spawn(async move { rollups.flush_at_end().await });
        if end == SessionEnd::Stopping {
            let unregistering = self.unregister(instance, &claims);
            if tokio::time::timeout(UNREGISTER_TIMEOUT, unregistering).await.is_err() {
                tracing::warn!(
                    "could not unregister within {}; other engines will treat this one as lost",
                    span(UNREGISTER_TIMEOUT)
                );
            }
            let _ = last_rollups.await;
        }
        (end, totals)
    }

    /// One dispatcher for each pool of workers.
    fn dispatchers(
        &self,
        session: &EngineSession<S>,
        wake_ups: &Arc<WakeUps>,
        numbers: Vec<Range<i32>>,
        receivers: Vec<UnboundedReceiver<i32>>,
    ) -> Vec<Dispatcher<S>> {
        let instance = session.context.instance;
        let claim_ids = Arc::new(ClaimIds::new(instance));
        let dispatcher = |(pool, (workers, freed))| Dispatcher {
            context: session.context.clone(),
            classes: self.classes.clone(),
            claimer: self
                .store
                .claimer(instance, Lanes::of(&self.pools[pool], &self.pools, self.classes.names())),
            claim_ids: claim_ids.clone(),
            claims: session.claims.clone(),
            unrecorded: session.unrecorded.clone(),
            wake_ups: wake_ups.clone(),
            stop: self.stop.watch(),
            handlers: self.handlers.clone(),
            pool,
            workers,
            freed,
            all_workers: pools::workers(&self.pools),
            poll: self.settings.poll,
        };
        numbers.into_iter().zip(receivers).enumerate().map(dispatcher).collect()
    }

    /// A forced stop interrupts every attempt, whatever else the engine waits for.
    fn cancel_when_forced(&self, running: &Arc<RunningAttempts>) -> CancellationToken {
        let token = CancellationToken::new();
        let (mut stop, forced, running) = (self.stop.watch(), token.clone(), running.clone());
        tokio::spawn(async move {
            stop.reached(Phase::Forced).await;
            running.interrupt_all(InterruptCause::EngineStopped);
            tokio::time::sleep(GRACE).await;
            forced.cancel();
        });
        token
    }

    /// Unregisters. Claims that only the store knows are from lost replies: their
    /// tasks never started, and are reclaimed.
    async fn unregister(&self, instance: InstanceId, claims: &Claims) {
        if let Ok(reply) = self.store.heartbeat(instance).await
            && reply.alive
        {
            let known = claims.known();
            let unknown: Vec<_> =
                reply.claims.into_iter().filter(|id| !known.contains(id)).collect();
            if !unknown.is_empty() {
                let _ = self.store.reclaim(Reclaim::Unknown(instance, unknown)).await;
            }
        }
        if let Err(error) = self.store.unregister(instance).await {
            tracing::warn!(
                "could not unregister; other engines will treat this one as lost: {error}"
            );
        }
    }

    /// What it registers with, except for the name that it gets.
    pub(crate) fn new_instance(&self) -> NewInstance {
        NewInstance {
            name: String::new(),
            host: process::host_name(),
            pid: process::pid(),
            process: process::mark(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            workers: pools::workers(&self.pools),
            lease: self.settings.lease,
            queues: pools::queues(&self.pools),
            pools: self.pools.clone(),
            classes: self.classes.options(),
        }
    }
}

/// Why a part of an engine's session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// The engine is to stop.
    Stopping,
    /// The engine was declared lost.
    InstanceOver,
    /// This process must not use the store any longer.
    StoreUnusable,
    /// A part of the engine panicked, which is a bug.
    Broken,
}

/// What the parts of one session share.
pub(crate) struct EngineSession<S> {
    /// The recorder ends when the last clone of this is dropped.
    pub(crate) context: Arc<AttemptContext<S>>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) unrecorded: Arc<OpenCount>,
    /// Ended tasks whose parents and dependents have not been looked for.
    #[cfg_attr(not(feature = "testing"), allow(dead_code))]
    pub(crate) unresolved: Arc<OpenCount>,
    pub(crate) reports: Arc<ReportWriter>,
    pub(crate) rollups: Arc<Rollups>,
}

impl<S: Send + Sync + 'static> PreparedEngine<S> {
    /// Connects the parts of a session: attempts send their endings to the
    /// recorder and the settler, which are the returned future.
    pub(crate) fn open_session(
        &self,
        instance: InstanceId,
        free_workers: FreeWorkers,
        running: &Arc<RunningAttempts>,
        forced: CancellationToken,
        wake_ups: &Arc<WakeUps>,
    ) -> (EngineSession<S>, impl Future<Output = RecordTotals> + Send + use<S>) {
        let claims = Arc::<Claims>::default();
        let unrecorded = Arc::<OpenCount>::default();
        let reports = ReportWriter::new(self.store.clone());
        let rollups = Rollups::new(self.store.clone(), instance, self.classes.by_number());
        let (endings, to_record) = mpsc::unbounded_channel();
        let (pending, to_settle) = mpsc::unbounded_channel();
        let (ended_tasks, ended) = EndedTasks::new();
        let unresolved = ended_tasks.open();
        let (wake_others, freed) = mpsc::unbounded_channel();
        let freed_keys = FreedKeys::new(wake_ups.clone(), wake_others);
        let (handle, step_requests) = SessionHandle::new(
            self.store.clone(),
            self.handlers.clone(),
            self.injected_failures.clone(),
        );
        let shared = RecordContext {
            store: self.store.clone(),
            claims: claims.clone(),
            stop: self.stop.watch(),
            unrecorded: unrecorded.clone(),
            reports: reports.clone(),
            rollups: rollups.clone(),
            ended_tasks,
            freed_keys,
        };
        let settler = Settler { shared: shared.clone(), last_error: None };
        let recorder = ResultRecorder { shared, uncounted: Vec::new(), stopping_since: None };
        let context = Arc::new(AttemptContext {
            state: self.state.clone(),
            tasks: self.tasks.clone(),
            instance,
            running: running.clone(),
            endings,
            pending,
            session: Arc::new(handle),
            free_workers,
            reports: reports.clone(),
            forced,
        });
        let (steps_store, parents_store) = (self.store.clone(), self.store.clone());
        let limits_store = self.store.clone();
        let recording = async move {
            // Code of an attempt that is over may keep its context, so this has no end.
            let mut background = BackgroundTasks::default();
            background.spawn(write_steps(steps_store, step_requests));
            let (recorded, settled, (), ()) = tokio::join!(
                recorder.run(to_record),
                settler.run(to_settle),
                ended.resume_waiting(parents_store),
                limits::wake_others(limits_store, freed)
            );
            recorded.and(&settled)
        };
        (EngineSession { context, claims, unrecorded, unresolved, reports, rollups }, recording)
    }
}

/// The three background tasks of a session.
struct SessionTasks {
    dispatching: JoinHandle<SessionEnd>,
    heartbeat: JoinHandle<SessionEnd>,
    recording: JoinHandle<RecordTotals>,
}

impl SessionTasks {
    async fn run_to_end(&mut self, running: &RunningAttempts) -> (SessionEnd, RecordTotals) {
        let end = tokio::select! {
            // In this order: the recorder ends after the dispatcher, by itself.
            biased;
            end = &mut self.dispatching => end.unwrap_or(SessionEnd::Broken),
            end = &mut self.heartbeat => end.unwrap_or(SessionEnd::Broken),
            _ = &mut self.recording => return (SessionEnd::Broken, RecordTotals::default()),
        };
        // No new task starts. A claim that is under way becomes unknown; a
        // heartbeat or recovery reclaims it.
        self.dispatching.abort();
        if end != SessionEnd::Stopping {
            return self.interrupt_lost(end, running).await;
        }
        // The recorder ends when the last attempt has handed over its ending.
        tokio::select! {
            totals = &mut self.recording => (SessionEnd::Stopping, totals.unwrap_or_default()),
            // Declared lost while it stops: the results no longer count.
            _ = &mut self.heartbeat => {
                let (_, totals) = self.interrupt_lost(SessionEnd::InstanceOver, running).await;
                (SessionEnd::Stopping, totals)
            }
        }
    }

    /// Interrupts the attempts of a lost instance, whose results no longer count, and waits for
    /// them.
    ///
    /// It does not wait for long: a task that blocks its thread must not keep the engine out of
    /// service. The recorder goes on by itself, and keeps late results as evidence.
    async fn interrupt_lost(
        &mut self,
        end: SessionEnd,
        running: &RunningAttempts,
    ) -> (SessionEnd, RecordTotals) {
        running.interrupt_all(InterruptCause::InstanceLost);
        let totals = tokio::time::timeout(GRACE * 3, &mut self.recording).await;
        (end, totals.ok().and_then(Result::ok).unwrap_or_default())
    }
}

/// Ends when the engine is to stop and a registration that is under way has had
/// time to succeed, so that it can be undone.
async fn register_timeout(mut stop: StopSignal) {
    stop.reached(Phase::Draining).await;
    tokio::time::sleep(REGISTER_TIMEOUT).await;
}

/// Ends when a forced stop has used all its time.
async fn forced_stop_timeout(mut stop: StopSignal) {
    stop.reached(Phase::Forced).await;
    tokio::time::sleep(GRACE * 2 + STOP_TIMEOUT).await;
}

/// Tasks that are aborted when this is dropped.
#[derive(Default)]
pub(crate) struct BackgroundTasks(Vec<JoinHandle<()>>);

impl BackgroundTasks {
    pub(crate) fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.push(tokio::spawn(work));
    }
}

impl Drop for BackgroundTasks {
    fn drop(&mut self) {
        for work in &self.0 {
            work.abort();
        }
    }
}
