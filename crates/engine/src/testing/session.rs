//! One life of the harness's engine: it registers, runs tasks one after the
//! other, and ends.

use std::sync::Arc;
use std::time::Duration;

use task_engine_model::instance::{InstanceId, Recovery};
use task_engine_model::report::LogFilter;
use task_engine_model::store::ClaimIds;
use task_engine_model::{AttemptId, Claimer, Lanes, Rest, Store, StoreError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admission;
use crate::execute::{self, Bench};
use crate::life::Life;
use crate::pools::{self, Freed};
use crate::record::{Record, Recorder, Unwritten};
use crate::report::Reports;
use crate::running::{Claims, Running};
use crate::schedule;
use crate::testing::executed::Executed;
use crate::wake_up::{self, Hints};

/// Nobody takes it for dead, however far a test moves the clock.
const LEASE: Duration = Duration::from_secs(1000 * 365 * 86_400);
/// How long to leave alone what somebody else has locked.
const CONTENDED: Duration = Duration::from_millis(5);
const WORKER: i32 = 0;

pub(super) struct Session<'h, S> {
    life: &'h Life<S>,
    instance: InstanceId,
    bench: Arc<Bench<S>>,
    claim_ids: ClaimIds,
    claims: Arc<Claims>,
    running: Arc<Running>,
    unwritten: Arc<Unwritten>,
    hints: Arc<Hints>,
    recording: JoinHandle<Record>,
    beside: [Aborted; 2],
}

impl<'h, S: Send + Sync + 'static> Session<'h, S> {
    pub(super) async fn begin(life: &'h Life<S>) -> Result<Self, StoreError> {
        let store = &life.store;
        let name = format!("testing {:016x}", fastrand::u64(..));
        let new = task_engine_model::NewInstance { name, lease: LEASE, ..life.introduction() };
        let instance = store.register(&new).await?;
        let (claims, running) = (Arc::<Claims>::default(), Arc::<Running>::default());
        let unwritten = Arc::<Unwritten>::default();
        let reports = Reports::new(store.clone());
        let hints = Arc::new(Hints::new(life.pools.len()));
        let (endings, to_record) = mpsc::unbounded_channel();
        let recorder = Recorder {
            store: store.clone(),
            claims: claims.clone(),
            stop: life.stop.watch(),
            unwritten: unwritten.clone(),
            reports: reports.clone(),
            forced_since: None,
        };
        let beside = [
            Aborted(tokio::spawn(reports.clone().run())),
            Aborted(tokio::spawn(wake_up::listen(store.clone(), hints.clone()))),
        ];
        let bench = Arc::new(Bench {
            state: life.state.clone(),
            client: life.client.clone(),
            instance,
            running: running.clone(),
            endings,
            freed: Freed::new(&[]).0,
            reports,
            forced: CancellationToken::new(),
        });
        Ok(Self {
            life,
            instance,
            bench,
            claim_ids: ClaimIds::new(instance),
            claims,
            running,
            unwritten,
            hints,
            recording: tokio::spawn(recorder.run(to_record)),
            beside,
        })
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
            for dead in pulse.expired.into_iter().chain(pulse.orphaned) {
                admission::recover(self.store(), dead, false).await?;
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
            self.claims.ask(id);
            claimer.wake();
            let claim = claimer.claim(id, 1).await?;
            self.claims.got(id, claim.tasks.len());
            self.unwritten.add(claim.tasks.len());
            if let Some(task) = claim.tasks.into_iter().next() {
                let attempt = task.id;
                let class = self.life.classes.get(&task.class).cloned();
                let class = class.expect("only tasks of known classes are claimed");
                // A task of its own, as in an engine: what the code does to the
                // task that it runs in, it does to that one.
                let running = execute::attempt(self.bench.clone(), class, id, task, WORKER);
                let running = tokio::spawn(running);
                tokio::select! {
                    _ = running => {}
                    () = self.hear_wishes() => {}
                }
                self.unwritten.at_most(0).await;
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
        let filter =
            LogFilter { attempt: Some(id.attempt), after: None, newest: false, limit: 1000 };
        let lines = self.store().logs(id.task_id, &filter).await?;
        Ok(Executed::of(id, details, lines))
    }

    pub(super) async fn end(self) -> Result<(), StoreError> {
        let Self { life, instance, bench, recording, beside, .. } = self;
        // The recorder ends when the bench is gone.
        drop(bench);
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
