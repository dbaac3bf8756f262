//! The life of an engine: it registers, works, and stops; if it was declared
//! lost in between (a suspended machine, a long outage), it begins a new one.

use std::sync::Arc;
use std::time::Duration;

use task_engine_model::instance::{InstanceId, NewInstance, Recovery};
use task_engine_model::store::{ClaimIds, TakeBack};
use task_engine_model::{Client, Store};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::admission;
use crate::dispatch::{Dispatcher, End};
use crate::engine::{EngineError, Settings};
use crate::execute::Bench;
use crate::handler::Classes;
use crate::heartbeat::Heartbeat;
use crate::process;
use crate::record::{Record, Recorder, Unwritten};
use crate::retention;
use crate::running::{Cause, Claims, Running};
use crate::stop::{Phase, StopHandle, Stopped};
use crate::wake_up::{self, Hints};

pub(crate) struct Life<S> {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) state: Arc<S>,
    pub(crate) classes: Arc<Classes<S>>,
    pub(crate) settings: Settings,
    pub(crate) stop: StopHandle,
    pub(crate) handlers: Handle,
}

impl<S: Send + Sync + 'static> Life<S> {
    pub(crate) async fn run(self) -> Result<Stopped, EngineError> {
        if self.settings.migrate {
            for applied in self.store.migrate().await? {
                tracing::info!("applied migration {applied}");
            }
        }
        let hints = Arc::new(Hints::default());
        let mut beside = Beside::default();
        beside.spawn(wake_up::listen(self.store.clone(), hints.clone()));
        if let Some(age) = self.settings.retention {
            beside.spawn(retention::prune(self.store.clone(), age));
        }
        if let Some(time) = self.settings.stop_timeout {
            let (stop, mut watch) = (self.stop.clone(), self.stop.watch());
            beside.spawn(async move {
                watch.reached(Phase::Draining).await;
                tokio::time::sleep(time).await;
                stop.stop_now();
            });
        }
        let mut recovery = self.settings.recovery;
        loop {
            let new = self.introduction();
            let mut watch = self.stop.watch();
            let admitted = admission::admit(&*self.store, &new, recovery, &mut watch).await?;
            let Some(id) = admitted else {
                return Ok(Stopped::default());
            };
            let workers = self.settings.workers;
            tracing::info!(
                "Engine {} started with {workers} workers on {}",
                new.name,
                self.store.place()
            );
            match self.live(id, &hints).await {
                (End::Stopping, record) => {
                    let forced = watch.phase() == Phase::Forced;
                    tracing::info!("Engine {} stopped", new.name);
                    return Ok(Stopped {
                        forced,
                        given_back: record.given_back,
                        unrecorded: record.unrecorded,
                    });
                }
                (End::InstanceOver, _) => {
                    tracing::warn!(
                        "engine {} was declared lost; its running tasks were cancelled, and it registers anew",
                        new.name
                    );
                    // What it left is its own, and no longer runs.
                    recovery = Recovery::Auto;
                }
            }
        }
    }

    /// One life, from registration on.
    async fn live(&self, instance: InstanceId, hints: &Arc<Hints>) -> (End, Record) {
        let (running, claims) = (Arc::new(Running::default()), Arc::new(Claims::default()));
        let unwritten = Arc::new(Unwritten::default());
        let (endings, to_record) = mpsc::unbounded_channel();
        let (freed, freed_workers) = mpsc::unbounded_channel();
        let recorder = Recorder {
            store: self.store.clone(),
            claims: claims.clone(),
            stop: self.stop.watch(),
            unwritten: unwritten.clone(),
            forced_since: None,
        };
        let recording = tokio::spawn(recorder.run(to_record));
        let bench = Arc::new(Bench {
            state: self.state.clone(),
            client: Client::new(self.store.clone()),
            instance,
            running: running.clone(),
            endings,
            freed,
        });
        let dispatcher = Dispatcher {
            bench,
            classes: self.classes.clone(),
            claimer: self.store.claimer(
                instance,
                self.settings.queues.clone(),
                self.classes.names(),
            ),
            claim_ids: ClaimIds::new(instance),
            claims: claims.clone(),
            unwritten,
            hints: hints.clone(),
            stop: self.stop.watch(),
            handlers: self.handlers.clone(),
            workers: self.settings.workers,
            freed: freed_workers,
            poll: self.settings.poll,
        };
        let heartbeat = Heartbeat {
            store: self.store.clone(),
            instance,
            every: self.settings.heartbeat,
            recovery: self.settings.recovery,
            classes: self.classes.names().into_iter().collect(),
            claims: claims.clone(),
            running: running.clone(),
            hints: hints.clone(),
        };
        let mut beating = tokio::spawn(heartbeat.run());
        let mut dispatching = tokio::spawn(dispatcher.run());
        let end = tokio::select! {
            end = &mut dispatching => end.unwrap_or(End::Stopping),
            _ = &mut beating => {
                dispatching.abort();
                let _ = dispatching.await;
                End::InstanceOver
            }
        };
        let record = self.finish(end, &mut beating, recording, &running).await;
        beating.abort();
        if end == End::Stopping {
            self.leave(instance, &claims).await;
        }
        (end, record)
    }

    /// Waits for what runs. The recorder ends when the last attempt has handed
    /// in its ending.
    async fn finish(
        &self,
        end: End,
        beating: &mut JoinHandle<()>,
        mut recording: JoinHandle<Record>,
        running: &Running,
    ) -> Record {
        let mut stop = self.stop.watch();
        let mut lost = end == End::InstanceOver;
        let mut forced = false;
        loop {
            if lost {
                running.cancel_all(Cause::InstanceLost);
            }
            if forced {
                running.cancel_all(Cause::EngineStopped);
            }
            tokio::select! {
                record = &mut recording => return record.unwrap_or_default(),
                () = stop.reached(Phase::Forced), if !forced => forced = true,
                _ = &mut *beating, if !lost => lost = true,
                // An attempt may have been in the middle of its start.
                () = tokio::time::sleep(Duration::from_millis(50)), if lost || forced => {}
            }
        }
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
                let _ = self.store.take_back(TakeBack::Unknown(instance, unknown)).await;
            }
        }
        if let Err(error) = self.store.unregister(instance).await {
            tracing::warn!("the engine could not say good-bye and will count as lost: {error}");
        }
    }

    fn introduction(&self) -> NewInstance {
        NewInstance {
            name: self.settings.instance.clone(),
            host: process::host(),
            pid: process::pid(),
            process: process::mark(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            workers: self.settings.workers,
            lease: self.settings.lease,
            queues: self.settings.queues.clone(),
            classes: self.classes.rules(),
        }
    }
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
