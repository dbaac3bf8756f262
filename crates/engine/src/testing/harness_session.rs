//! One session of the harness's engine: it registers, runs tasks one after the
//! other, and unregisters.

use std::sync::Arc;
use std::time::Duration;

use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimIds;
use task_engine_core::instance::{InstanceId, Recovery};
use task_engine_core::progress::LogFilter;
use task_engine_core::queue::Lanes;
use task_engine_core::task::TaskId;
use task_engine_store::claim::{ClaimRest, Claimer};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::execute;
use crate::pools::{self, FreeWorkers};
use crate::record::RecordTotals;
use crate::recover;
use crate::running::RunningAttempts;
use crate::schedule;
use crate::session::{BackgroundTasks, EngineSession, PreparedEngine};
use crate::testing::executed::Executed;
use crate::wake_up::{self, WakeUps};

/// Other engines never take it for dead, however far a test moves the clock.
const LEASE: Duration = Duration::from_secs(1000 * 365 * 86_400);
/// How long to wait for tasks that another transaction has locked.
const CONTENDED: Duration = Duration::from_millis(5);
const WORKER: i32 = 0;
/// How many suspended tasks are looked at with one call.
const SUSPENDED_PAGE: u32 = 1000;

pub(super) struct HarnessSession<'h, S> {
    engine: &'h PreparedEngine<S>,
    instance: InstanceId,
    session: EngineSession<S>,
    claim_ids: ClaimIds,
    running: Arc<RunningAttempts>,
    wake_ups: Arc<WakeUps>,
    recording: JoinHandle<RecordTotals>,
    background: BackgroundTasks,
}

impl<'h, S: Send + Sync + 'static> HarnessSession<'h, S> {
    pub(super) async fn begin(engine: &'h PreparedEngine<S>) -> Result<Self, StoreError> {
        let store = &engine.store;
        let name = format!("testing {:016x}", fastrand::u64(..));
        let new =
            task_engine_core::instance::NewInstance { name, lease: LEASE, ..engine.new_instance() };
        let instance = store.register(&new).await?;
        let running = Arc::<RunningAttempts>::default();
        let forced = CancellationToken::new();
        let wake_ups = Arc::new(WakeUps::new(engine.pools.len()));
        let free_workers = FreeWorkers::new(&[]).0;
        let (session, recording) =
            engine.open_session(instance, free_workers, &running, forced, &wake_ups);
        let mut background = BackgroundTasks::default();
        background.spawn(session.reports.clone().run());
        background.spawn(wake_up::listen(store.clone(), wake_ups.clone()));
        let claim_ids = ClaimIds::new(instance);
        let recording = tokio::spawn(recording);
        Ok(Self { engine, instance, session, claim_ids, running, wake_ups, recording, background })
    }

    /// Claims all tasks that the engine's workers would.
    pub(super) fn claimer(&self) -> Box<dyn Claimer> {
        let queues = pools::queues(&self.engine.pools);
        self.store().claimer(self.instance, Lanes::new(queues, self.engine.classes.names()))
    }

    /// Claims only the tasks of one queue and class.
    pub(super) fn claimer_of(&self, queue: &str, class: &str) -> Box<dyn Claimer> {
        let lanes = Lanes::new(vec![queue.to_owned()], vec![class.to_owned()]);
        self.store().claimer(self.instance, lanes)
    }

    /// What an engine does besides its tasks: fires schedules, and recovers the tasks
    /// of dead engines.
    pub(super) async fn run_background_work(&self) -> Result<(), StoreError> {
        schedule::fire_due(&self.engine.store).await?;
        if self.engine.settings.recovery == Recovery::Auto {
            let reply = self.store().heartbeat(self.instance).await?;
            let dead: Vec<_> = reply.expired.into_iter().chain(reply.orphaned).collect();
            if dead.is_empty() {
                return Ok(());
            }
            let instances = self.store().instances(None).await?;
            for instance in instances.iter().filter(|instance| dead.contains(&instance.id)) {
                recover::recover(self.store(), instance).await?;
            }
        }
        Ok(())
    }

    /// What heartbeats do: starts tasks that wait for others, whose ends no engine has
    /// noticed.
    pub(super) async fn resume_missed(&self) -> Result<(), StoreError> {
        let mut after = Some(TaskId(0));
        while let Some(last) = after {
            after = self.store().resume_missed(last, SUSPENDED_PAGE).await?;
        }
        Ok(())
    }

    /// Runs the next task that is due, until its end is recorded. `Err` if none is
    /// due: how long until the next one is, if there is any.
    pub(super) async fn run_next(
        &self,
        claimer: &mut dyn Claimer,
    ) -> Result<Result<Executed, Option<Duration>>, StoreError> {
        loop {
            let id = self.claim_ids.take();
            self.session.claims.requested(id);
            claimer.invalidate();
            let claim = claimer.claim(id, 1).await?;
            self.session.claims.received(id, claim.tasks.len());
            self.session.unrecorded.add(claim.tasks.len());
            if let Some(mut task) = claim.tasks.into_iter().next() {
                let attempt = task.id;
                // A slow test must not change which tasks start.
                if let Some(limited) = &mut task.limited {
                    limited.start_before = None;
                }
                let class = self.engine.classes.get(&task.class).cloned();
                let class = class.expect("only tasks of known classes are claimed");
                // In a Tokio task of its own, as in an engine.
                let running =
                    execute::attempt(self.session.context.clone(), class, id, task, WORKER);
                let running = tokio::spawn(running);
                tokio::select! {
                    _ = running => {}
                    () = self.deliver_cancel_requests() => {}
                }
                self.session.unrecorded.wait_until_at_most(0).await;
                self.session.unresolved.wait_until_at_most(0).await;
                return Ok(Ok(self.executed(attempt).await?));
            }
            match claim.rest {
                ClaimRest::Nothing { next_in } => return Ok(Err(next_in)),
                ClaimRest::More => tokio::task::yield_now().await,
                ClaimRest::Contended => tokio::time::sleep(CONTENDED).await,
            }
        }
    }

    /// Delivers cancel requests to the running task. Never ends.
    async fn deliver_cancel_requests(&self) {
        loop {
            self.wake_ups.cancel().wait().await;
            self.wake_ups.cancel().take();
            if let Ok(reply) = self.store().heartbeat(self.instance).await {
                self.running.request_cancel(&reply.cancel);
            }
        }
    }

    async fn executed(&self, id: AttemptId) -> Result<Executed, StoreError> {
        let details = self.store().task(id.task_id).await?;
        let details = details.ok_or_else(|| {
            StoreError::Refused(format!("{id} has run, and its task is no longer there"))
        })?;
        let filter = LogFilter {
            attempt: Some(id.attempt),
            after: None,
            before: None,
            newest: false,
            limit: 1000,
        };
        let lines = self.store().logs(id.task_id, &filter).await?;
        Ok(Executed::of(id, details, lines))
    }

    pub(super) async fn end(self) -> Result<(), StoreError> {
        let Self { engine, instance, session, recording, background, .. } = self;
        // The recorder ends when the attempt context is dropped.
        drop(session);
        let _ = recording.await;
        drop(background);
        engine.store.unregister(instance).await
    }

    fn store(&self) -> &dyn Store {
        &*self.engine.store
    }
}
