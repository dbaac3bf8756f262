//! The life of an engine: it registers, works, and stops; if it was declared
//! lost in between (a suspended machine, a long outage), it begins a new one.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use task_engine_core::claim::ClaimIds;
use task_engine_core::display::span;
use task_engine_core::instance::{InstanceId, NewInstance, Recovery};
use task_engine_core::process;
use task_engine_core::queue::{Lanes, Pool};
use task_engine_core::recovery::Reclaim;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admission::{self, Name};
use crate::dispatch::{Dispatcher, End};
use crate::engine::{EngineError, Settings};
use crate::execute::GRACE;
use crate::handler::Classes;
use crate::heartbeat::Heartbeat;
use crate::pools::{self, Freed};
use crate::record::{Record, STOP_TIMEOUT};
use crate::retention;
use crate::running::{Cause, Claims, Running};
use crate::schedule::{self, Scheduler};
use crate::stop::{Phase, StopHandle, StopWatch, Stopped};
use crate::wake_up::{self, Backoff, Hints};
use crate::workplace::Workplace;

/// How long an engine tries to say good-bye.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a stop waits for a registration that is under way.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) struct Life<S> {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Client,
    pub(crate) state: Arc<S>,
    pub(crate) classes: Arc<Classes<S>>,
    pub(crate) settings: Settings,
    pub(crate) pools: Vec<Pool>,
    pub(crate) stop: StopHandle,
    pub(crate) handlers: Handle,
}

impl<S: Send + Sync + 'static> Life<S> {
    pub(crate) async fn run(self) -> Result<Stopped, EngineError> {
        let mut stop = self.stop.watch();
        tokio::select! {
            prepared = self.prepare_tables() => prepared?,
            // A store that does not answer must not keep it from ending.
            () = stop.reached(Phase::Draining) => return Ok(Stopped::default()),
        }
        let hints = Arc::new(Hints::new(self.pools.len()));
        let mut beside = Beside::default();
        beside.spawn(wake_up::listen(self.store.clone(), hints.clone()));
        beside.spawn(retention::keep(
            self.store.clone(),
            self.settings.retention,
            self.settings.audit_retention,
        ));
        if let Some(time) = self.settings.stop_timeout {
            let (stop, mut watch) = (self.stop.clone(), self.stop.watch());
            beside.spawn(async move {
                watch.reached(Phase::Draining).await;
                tokio::time::sleep(time).await;
                stop.stop_now();
            });
        }
        let mut last_name: Option<String> = None;
        let mut backoff = Backoff::new();
        loop {
            let mut new = self.introduction();
            let mut watch = self.stop.watch();
            let reborn = last_name.is_some();
            let name = match &self.settings.instance {
                Some(name) => Name::Given(name),
                None => Name::OfMachine(last_name.as_deref()),
            };
            // What this engine itself left no longer runs.
            let recovery = if reborn { Recovery::Auto } else { self.settings.recovery };
            let admitting = admission::admit(&*self.store, &mut new, name, recovery, &mut watch);
            let admitted = tokio::select! {
                admitted = admitting => admitted,
                () = stopped_long_ago(stop.clone()) => Ok(None),
            };
            let admitted = match admitted {
                Err(EngineError::Store(error)) if error.is_temporary() && reborn => {
                    let wait = backoff.next();
                    tracing::warn!(
                        "the engine cannot register anew, next try in {}: {error}",
                        span(wait)
                    );
                    tokio::time::sleep(wait).await;
                    if watch.phase() == Phase::Running {
                        continue;
                    }
                    None
                }
                admitted => admitted?,
            };
            let Some(id) = admitted else {
                return Ok(Stopped::default());
            };
            if !reborn {
                let rules = self.classes.rules();
                let queues = rules.iter().map(|(name, rules)| (&**name, &*rules.queue));
                if let Some(warning) = pools::unserved(&self.pools, queues) {
                    tracing::warn!("{warning}");
                }
                if let Err(error) = schedule::declare(&*self.store, &self.settings.schedules).await
                {
                    let _ = self.store.unregister(id).await;
                    return Err(error);
                }
                let (store, stop) = (self.store.clone(), self.stop.watch());
                beside.spawn(Scheduler::new(store, hints.clone(), stop).run());
            }
            tracing::info!(
                "Engine {} started with {} workers ({}) on {}",
                new.name,
                new.workers,
                pools::describe(&self.pools),
                self.store.location()
            );
            match self.live(id, &hints).await {
                (End::Stopping, record) => {
                    let forced = watch.phase() == Phase::Forced;
                    tracing::info!("Engine {} stopped", new.name);
                    return Ok(Stopped {
                        forced,
                        released: record.released,
                        unrecorded: record.unrecorded,
                    });
                }
                (End::StoreUnusable, _) => {
                    let why = self.store.heartbeat(id).await.err();
                    return Err(EngineError::Store(why.unwrap_or(StoreError::InstanceOver)));
                }
                (End::Broken, _) => {
                    return Err(EngineError::Broken(
                        "its log has the panic; what it held is left to recovery".to_owned(),
                    ));
                }
                (End::InstanceOver, _) => {
                    tracing::warn!(
                        "engine {} was declared lost; its running tasks were cancelled, and it registers anew",
                        new.name
                    );
                    last_name = Some(new.name);
                    backoff = Backoff::new();
                }
            }
        }
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

    /// One life, from registration on.
    async fn live(&self, instance: InstanceId, hints: &Arc<Hints>) -> (End, Record) {
        let running = Arc::new(Running::default());
        let numbers = pools::numbers(&self.pools);
        let (freed, freed_workers) = Freed::new(&numbers);
        let forced = self.cancel_when_forced(&running);
        let (place, recording) = self.equip(instance, freed, &running, forced);
        let Workplace { bench, claims, unwritten, reports, figures } = place;
        let mut beside = Beside::default();
        beside.spawn(reports.run());
        beside.spawn(figures.clone().run());
        let claim_ids = Arc::new(ClaimIds::new(instance));
        let dispatcher = |(pool, (workers, freed))| Dispatcher {
            bench: bench.clone(),
            classes: self.classes.clone(),
            claimer: self
                .store
                .claimer(instance, Lanes::of(&self.pools[pool], &self.pools, self.classes.names())),
            claim_ids: claim_ids.clone(),
            claims: claims.clone(),
            unwritten: unwritten.clone(),
            hints: hints.clone(),
            stop: self.stop.watch(),
            handlers: self.handlers.clone(),
            pool,
            workers,
            freed,
            all_workers: pools::workers(&self.pools),
            poll: self.settings.poll,
        };
        let dispatchers: Vec<_> =
            numbers.into_iter().zip(freed_workers).enumerate().map(dispatcher).collect();
        // The recorder ends when the last of them has let go of the bench.
        drop(bench);
        let heartbeat = Heartbeat {
            store: self.store.clone(),
            instance,
            every: self.settings.heartbeat,
            recovery: self.settings.recovery,
            classes: self.classes.names().into_iter().collect(),
            claims: claims.clone(),
            running: running.clone(),
            hints: hints.clone(),
            figures: figures.clone(),
        };
        let mut work = Work {
            dispatching: tokio::spawn(pools::run(dispatchers)),
            beating: tokio::spawn(heartbeat.run()),
            recording: tokio::spawn(recording),
        };
        let (end, record) = tokio::select! {
            ended = work.run_out(&running) => ended,
            // Whatever hangs, a forced stop ends.
            () = forced_and_over(self.stop.watch()) => {
                let unrecorded = unwritten.count();
                tracing::error!("{unrecorded} tasks did not end in time; they are left to recovery");
                (End::Stopping, Record { released: 0, unrecorded })
            }
        };
        work.beating.abort();
        work.dispatching.abort();
        // An engine that was lost does not wait for it.
        let counting = tokio::spawn(async move { figures.last().await });
        if end == End::Stopping {
            let leaving = self.leave(instance, &claims);
            if tokio::time::timeout(LEAVE_TIMEOUT, leaving).await.is_err() {
                tracing::warn!("the engine could not say good-bye in time and will count as lost");
            }
            let _ = counting.await;
        }
        (end, record)
    }

    /// A forced stop tells every attempt, whatever else the engine waits for.
    fn cancel_when_forced(&self, running: &Arc<Running>) -> CancellationToken {
        let token = CancellationToken::new();
        let (mut stop, forced, running) = (self.stop.watch(), token.clone(), running.clone());
        tokio::spawn(async move {
            stop.reached(Phase::Forced).await;
            running.close(Cause::EngineStopped);
            tokio::time::sleep(GRACE).await;
            forced.cancel();
        });
        token
    }

    /// Says good-bye. What the store holds for this life and the engine does
    /// not know is from claims whose answer was lost: it never started.
    async fn leave(&self, instance: InstanceId, claims: &Claims) {
        if let Ok(pulse) = self.store.heartbeat(instance).await
            && pulse.alive
        {
            let known = claims.known();
            let unknown: Vec<_> =
                pulse.claims.into_iter().filter(|id| !known.contains(id)).collect();
            if !unknown.is_empty() {
                let _ = self.store.reclaim(Reclaim::Unknown(instance, unknown)).await;
            }
        }
        if let Err(error) = self.store.unregister(instance).await {
            tracing::warn!("the engine could not say good-bye and will count as lost: {error}");
        }
    }

    /// What it says about itself, but for the name that it gets.
    pub(crate) fn introduction(&self) -> NewInstance {
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
            classes: self.classes.rules(),
        }
    }
}

/// The three parts of an engine at work.
struct Work {
    dispatching: JoinHandle<End>,
    beating: JoinHandle<End>,
    recording: JoinHandle<Record>,
}

impl Work {
    async fn run_out(&mut self, running: &Running) -> (End, Record) {
        let end = tokio::select! {
            // In this order: the recorder ends after the dispatcher, by itself.
            biased;
            end = &mut self.dispatching => end.unwrap_or(End::Broken),
            end = &mut self.beating => end.unwrap_or(End::Broken),
            _ = &mut self.recording => return (End::Broken, Record::default()),
        };
        // Nothing new starts; the claim that may be under way is nobody's, and
        // is found by a heartbeat or by recovery.
        self.dispatching.abort();
        if end != End::Stopping {
            return self.after_declared_lost(end, running).await;
        }
        // The recorder ends when the last attempt has handed in its ending.
        tokio::select! {
            record = &mut self.recording => (End::Stopping, record.unwrap_or_default()),
            // Declared lost while it was about to stop: nobody waits for what
            // no longer counts.
            _ = &mut self.beating => {
                let (_, record) = self.after_declared_lost(End::InstanceOver, running).await;
                (End::Stopping, record)
            }
        }
    }

    /// What runs no longer counts. It is told so, and given a moment; a task
    /// that blocks its thread beyond that must not keep the engine out of
    /// service. The recorder goes on by itself, and keeps what comes as evidence.
    async fn after_declared_lost(&mut self, end: End, running: &Running) -> (End, Record) {
        running.close(Cause::InstanceLost);
        let record = tokio::time::timeout(GRACE * 3, &mut self.recording).await;
        (end, record.ok().and_then(Result::ok).unwrap_or_default())
    }
}

/// Ends when a stop was asked for and a registration that was under way has had
/// time to succeed, so that it can be taken back.
async fn stopped_long_ago(mut stop: StopWatch) {
    stop.reached(Phase::Draining).await;
    tokio::time::sleep(REGISTER_TIMEOUT).await;
}

/// Ends when a forced stop has had all the time it may take.
async fn forced_and_over(mut stop: StopWatch) {
    stop.reached(Phase::Forced).await;
    tokio::time::sleep(GRACE * 2 + STOP_TIMEOUT).await;
}

/// What goes on beside the work, for as long as the engine does.
#[derive(Default)]
struct Beside(Vec<JoinHandle<()>>);

impl Beside {
    fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.push(tokio::spawn(work));
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        for work in &self.0 {
            work.abort();
        }
    }
}
