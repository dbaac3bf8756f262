//! One life of the harness's engine: it registers, runs tasks one after the
//! other, and ends.

use std::sync::Arc;
use std::time::Duration;

use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimIds;
use task_engine_core::instance::{InstanceId, Recovery};
use task_engine_core::queue::Lanes;
use task_engine_core::report::LogFilter;
use task_engine_store::claim::{Claimer, Rest};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admission;
use crate::execute;
use crate::life::Life;
use crate::pools::{self, Freed};
use crate::record::Record;
use crate::running::Running;
use crate::schedule;
use crate::testing::executed::Executed;
use crate::wake_up::{self, Hints};
use crate::workplace::Workplace;

/// Nobody takes it for dead, however far a test moves the clock.
const LEASE: Duration = Duration::from_secs(1000 * 365 * 86_400);
/// How long to leave alone what somebody else has locked.
const CONTENDED: Duration = Duration::from_millis(5);
const WORKER: i32 = 0;

pub(super) struct Session<'h, S> {
    life: &'h Life<S>,
    instance: InstanceId,
    place: Workplace<S>,
    claim_ids: ClaimIds,
    running: Arc<Running>,
    hints: Arc<Hints>,
    recording: JoinHandle<Record>,
    beside: [Aborted; 2],
}

impl<'h, S: Send + Sync + 'static> Session<'h, S> {
    pub(super) async fn begin(life: &'h Life<S>) -> Result<Self, StoreError> {
        let store = &life.store;
        let name = format!("testing {:016x}", fastrand::u64(..));
        let new =
            task_engine_core::instance::NewInstance { name, lease: LEASE, ..life.introduction() };
        let instance = store.register(&new).await?;
        let running = Arc::<Running>::default();
        let forced = CancellationToken::new();
        let (place, recording) = life.equip(instance, Freed::new(&[]).0, &running, forced);
        let hints = Arc::new(Hints::new(life.pools.len()));
        let beside = [
            Aborted(tokio::spawn(place.reports.clone().run())),
            Aborted(tokio::spawn(wake_up::listen(store.clone(), hints.clone()))),
        ];
        let claim_ids = ClaimIds::new(instance);
        let recording = tokio::spawn(recording);
        Ok(Self { life, instance, place, claim_ids, running, hints, recording, beside })
    }

    /// What takes all that the engine's workers would.
    pub(super) fn claimer(&self) -> Box<dyn Claimer> {
        let queues = pools::queues(&self.life.pools);
        self.store().claimer(self.instance, Lanes::new(queues, self.life.classes.names()))
    }

    /// What takes only the tasks of one queue and class.
    pub(super) fn claimer_of(&self, queue: &str, class: &str) -> Box<dyn Claimer> {
        let lanes = Lanes::new(vec![queue.to_owned()], vec![class.to_owned()]);
        self.store().claimer(self.instance, lanes)
    }

    /// What engines do beside their work: they fire schedules, and recover what
    /// the dead have left if they were told to.
    pub(super) async fn see_to_the_rest(&self) -> Result<(), StoreError> {
        schedule::fire_due(&self.life.store).await?;
        if self.life.settings.recovery == Recovery::Auto {
            let pulse = self.store().heartbeat(self.instance).await?;
            let dead: Vec<_> = pulse.expired.into_iter().chain(pulse.orphaned).collect();
            if dead.is_empty() {
                return Ok(());
            }
            let lives = self.store().instances(None).await?;
            for life in lives.iter().filter(|life| dead.contains(&life.id)) {
                admission::recover(self.store(), life).await?;
            }
        }
        Ok(())
    }

    /// Runs the next task that is due, to the end of its record; or tells how
    /// long it is until one is, if there is any.
    pub(super) async fn run_next(
        &self,
        claimer: &mut dyn Claimer,
    ) -> Result<Result<Executed, Option<Duration>>, StoreError> {
        loop {
            let id = self.claim_ids.take();
            self.place.claims.ask(id);
            claimer.wake();
            let claim = claimer.claim(id, 1).await?;
            self.place.claims.got(id, claim.tasks.len());
            self.place.unwritten.add(claim.tasks.len());
            if let Some(task) = claim.tasks.into_iter().next() {
                let attempt = task.id;
                let class = self.life.classes.get(&task.class).cloned();
                let class = class.expect("only tasks of known classes are claimed");
                // A task of its own, as in an engine: what the code does to the
                // task that it runs in, it does to that one.
                let running = execute::attempt(self.place.bench.clone(), class, id, task, WORKER);
                let running = tokio::spawn(running);
                tokio::select! {
                    _ = running => {}
                    () = self.hear_wishes() => {}
                }
                self.place.unwritten.at_most(0).await;
                return Ok(Ok(self.executed(attempt).await?));
            }
            match claim.rest {
                Rest::Nothing { next_in } => return Ok(Err(next_in)),
                Rest::More => tokio::task::yield_now().await,
                Rest::Contended => tokio::time::sleep(CONTENDED).await,
            }
        }
    }

    /// Tells what runs that somebody wants it cancelled. Never ends.
    async fn hear_wishes(&self) {
        loop {
            self.hints.cancel().wait().await;
            self.hints.cancel().take();
            if let Ok(pulse) = self.store().heartbeat(self.instance).await {
                self.running.want_cancelled(&pulse.cancel);
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
        let Self { life, instance, place, recording, beside, .. } = self;
        // The recorder ends when the bench is gone.
        drop(place);
        let _ = recording.await;
        drop(beside);
        life.store.unregister(instance).await
    }

    fn store(&self) -> &dyn Store {
        &*self.life.store
    }
}

/// Ends with whoever has it.
struct Aborted(JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}
