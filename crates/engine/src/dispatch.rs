//! The dispatcher: claims as many tasks as there are free workers, and starts
//! them. Each pool of workers has one, which alone claims for it, so a wake-up
//! never wakes more than there is work for.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use task_engine_core::attempt::{Ending, NextState, TaskError};
use task_engine_core::claim::ClaimIds;
use task_engine_core::display::span;
use task_engine_store::claim::{Claim, Claimer, Rest};
use task_engine_store::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::execute::{self, Bench};
use crate::figures::About;
use crate::handler::Classes;
use crate::measure;
use crate::record::Unwritten;
use crate::running::Claims;
use crate::stop::{Phase, StopWatch};
use crate::wake_up::{Backoff, Hints};

pub(crate) struct Dispatcher<S> {
    pub(crate) bench: Arc<Bench<S>>,
    pub(crate) classes: Arc<Classes<S>>,
    pub(crate) claimer: Box<dyn Claimer>,
    pub(crate) claim_ids: Arc<ClaimIds>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) unwritten: Arc<Unwritten>,
    pub(crate) hints: Arc<Hints>,
    pub(crate) stop: StopWatch,
    /// Where the tasks' code runs: the application's runtime, not the engine's.
    pub(crate) handlers: Handle,
    /// Which pool this is, and the numbers of its workers.
    pub(crate) pool: usize,
    pub(crate) workers: Range<i32>,
    pub(crate) freed: UnboundedReceiver<i32>,
    /// How many workers the whole engine has.
    pub(crate) all_workers: i32,
    pub(crate) poll: Duration,
}

/// Why the dispatcher ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The engine is to stop.
    Stopping,
    /// The engine was declared lost.
    InstanceOver,
    /// This process must not use the store any longer.
    StoreUnusable,
    /// A part of the engine panicked: a bug, not a stop.
    Broken,
}

impl<S: Send + Sync + 'static> Dispatcher<S> {
    pub(crate) async fn run(mut self) -> End {
        // The last one is taken first: worker 0 before worker 1.
        let mut free: Vec<i32> = self.workers.clone().rev().collect();
        let mut backoff = Backoff::new();
        let mut contended = Duration::ZERO;
        while self.stop.phase() == Phase::Running {
            while let Ok(worker) = self.freed.try_recv() {
                free.push(worker);
            }
            if free.is_empty() {
                self.a_worker_or_the_end(&mut free).await;
                continue;
            }
            // Results that cannot be written must not pile up without bound. They
            // are counted for the engine, and so is what runs: one pool's bound
            // would stop it because of another's tasks.
            let bound = usize::try_from(self.all_workers).unwrap_or(0) * 4 + 1000;
            tokio::select! {
                () = self.unwritten.at_most(bound) => {}
                () = self.stop.reached(Phase::Draining) => continue,
            }
            if self.hints.work(self.pool).take() {
                self.claimer.wake();
            }
            match self.claim(free.len()).await {
                Ok(claim) => {
                    backoff = Backoff::new();
                    let rest = claim.1.rest;
                    let brought_some = !claim.1.tasks.is_empty();
                    if !self.start(claim, &mut free) {
                        break;
                    }
                    contended = match rest {
                        Rest::Contended => (contended * 2).clamp(CONTENDED_MIN, CONTENDED_MAX),
                        _ => Duration::ZERO,
                    };
                    match rest {
                        Rest::More if brought_some => {}
                        Rest::More => tokio::task::yield_now().await,
                        Rest::Contended => self.sleep(contended, true).await,
                        Rest::Nothing { next_in } => {
                            let Range { start, end } = self.workers;
                            tracing::trace!(
                                "{} of workers {start} to {} are idle",
                                free.len(),
                                end - 1
                            );
                            self.sleep(next_in.map_or(self.poll, |d| d.min(self.poll)), true).await;
                        }
                    }
                }
                Err(StoreError::InstanceOver) => return End::InstanceOver,
                Err(error) => {
                    let wait = backoff.next();
                    tracing::warn!("no tasks can be claimed, next try in {}: {error}", span(wait));
                    self.sleep(wait, false).await;
                }
            }
        }
        End::Stopping
    }

    async fn claim(
        &mut self,
        limit: usize,
    ) -> Result<(task_engine_core::claim::ClaimId, Claim), StoreError> {
        let id = self.claim_ids.take();
        self.claims.ask(id);
        // Awaited to its end, never dropped half-way: then nobody would know
        // what it brought.
        match self.claimer.claim(id, limit).await {
            Ok(claim) => {
                measure::claimed(claim.tasks.len());
                self.claims.got(id, claim.tasks.len());
                self.unwritten.add(claim.tasks.len());
                Ok((id, claim))
            }
            Err(error) => {
                self.claims.lost(id);
                Err(error)
            }
        }
    }

    /// Starts what was claimed; false if the stop came first, and all was given
    /// back.
    fn start(
        &self,
        (id, claim): (task_engine_core::claim::ClaimId, Claim),
        free: &mut Vec<i32>,
    ) -> bool {
        let stopping = self.stop.phase() != Phase::Running;
        for task in claim.tasks {
            let class = self.classes.get(&task.class).cloned();
            match (class, free.pop()) {
                (Some(class), Some(worker)) if !stopping => {
                    let bench = self.bench.clone();
                    self.handlers.spawn(execute::attempt(bench, class, id, task, worker));
                }
                _ => self.release(id, &task),
            }
        }
        !stopping
    }

    fn release(
        &self,
        claim: task_engine_core::claim::ClaimId,
        task: &task_engine_store::claim::ClaimedTask,
    ) {
        let ending = Ending {
            id: task.id,
            retry_number: task.retry_number,
            claim_id: claim,
            instance_id: self.bench.instance,
            ran: None,
            result: None,
            error: Some(TaskError::new(
                TaskError::NEVER_STARTED,
                "the engine was told to stop before the task started",
            )),
            next: NextState::Wait { after: Duration::ZERO, retry_number: task.retry_number },
            told: None,
        };
        // One that this engine does not know counts with all others.
        let class = self.classes.get(&task.class).map_or(usize::MAX, |class| class.number);
        let _ = self.bench.endings.send((ending, About { class, due_at: task.due_at }));
    }

    async fn a_worker_or_the_end(&mut self, free: &mut Vec<i32>) {
        tokio::select! {
            worker = self.freed.recv() => free.extend(worker),
            () = self.stop.reached(Phase::Draining) => {}
        }
    }

    /// Sleeps until the time is over, the engine is to stop, or, if it may be
    /// woken, there is a hint of work.
    async fn sleep(&mut self, time: Duration, may_be_woken: bool) {
        let (hints, pool) = (self.hints.clone(), self.pool);
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.stop.reached(Phase::Draining) => {}
            () = hints.work(pool).wait(), if may_be_woken => {
                tracing::trace!("idle workers are woken");
                measure::woken();
            }
        }
    }
}

/// How long to leave tasks alone that somebody else has locked: their claim is
/// over in a moment, but a forgotten transaction may hold them for hours.
const CONTENDED_MIN: Duration = Duration::from_millis(2);
const CONTENDED_MAX: Duration = Duration::from_secs(1);
