//! The dispatcher claims as many tasks as there are free workers, and starts
//! them. Each pool of workers has one dispatcher, and only it claims for the pool.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use task_engine_core::attempt::{AttemptEnd, AttemptRecord, RetryPolicy, decide_end};
use task_engine_core::claim::{ClaimId, ClaimIds};
use task_engine_core::display::span;
use task_engine_core::retry::RetryRule;
use task_engine_core::step::is_awaited;
use task_engine_store::claim::{Claim, ClaimRest, ClaimedTask, Claimer};
use task_engine_store::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::backoff::Backoff;
use crate::claims::Claims;
use crate::classes::Classes;
use crate::execute::{self, AttemptContext};
use crate::measure;
use crate::record::OpenCount;
use crate::rollup::EndingLabels;
use crate::session::SessionEnd;
use crate::stop::{Phase, StopSignal};
use crate::wake_up::WakeUps;

pub(crate) struct Dispatcher<S> {
    pub(crate) context: Arc<AttemptContext<S>>,
    pub(crate) classes: Arc<Classes<S>>,
    pub(crate) claimer: Box<dyn Claimer>,
    pub(crate) claim_ids: Arc<ClaimIds>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) unrecorded: Arc<OpenCount>,
    pub(crate) wake_ups: Arc<WakeUps>,
    pub(crate) stop: StopSignal,
    /// Where handlers run: the application's runtime, not the engine's.
    pub(crate) handlers: Handle,
    /// The number of this pool, and the numbers of its workers.
    pub(crate) pool: usize,
    pub(crate) workers: Range<i32>,
    /// Receives the numbers of workers that have become free.
    pub(crate) freed: UnboundedReceiver<i32>,
    /// How many workers the whole engine has.
    pub(crate) all_workers: i32,
    pub(crate) poll: Duration,
}

impl<S: Send + Sync + 'static> Dispatcher<S> {
    pub(crate) async fn run(mut self) -> SessionEnd {
        // Taken from the end: worker 0 before worker 1.
        let mut free: Vec<i32> = self.workers.clone().rev().collect();
        let mut backoff = Backoff::new();
        let mut contended = Duration::ZERO;
        while self.stop.phase() == Phase::Running {
            while let Ok(worker) = self.freed.try_recv() {
                free.push(worker);
            }
            if free.is_empty() {
                self.wait_for_worker_or_stop(&mut free).await;
                continue;
            }
            // Bounds the results that wait to be recorded. Running attempts of
            // all pools count, so the bound is that of the whole engine: the
            // tasks of one pool must not stop another.
            let bound = usize::try_from(self.all_workers).unwrap_or(0) * 4 + 1000;
            tokio::select! {
                () = self.unrecorded.wait_until_at_most(bound) => {}
                () = self.stop.reached(Phase::Draining) => continue,
            }
            let wake_up = self.wake_ups.work(self.pool);
            if wake_up.take_keys_freed() {
                self.claimer.keys_freed();
            }
            if wake_up.take() {
                self.claimer.invalidate();
            }
            match self.claim(free.len()).await {
                Ok((id, claim)) => {
                    backoff = Backoff::new();
                    let rest = claim.rest;
                    let has_tasks = !claim.tasks.is_empty();
                    if !self.start(id, claim, &mut free) {
                        break;
                    }
                    contended = match rest {
                        ClaimRest::Contended => (contended * 2).clamp(CONTENDED_MIN, CONTENDED_MAX),
                        _ => Duration::ZERO,
                    };
                    match rest {
                        ClaimRest::More if has_tasks => {}
                        ClaimRest::More => tokio::task::yield_now().await,
                        ClaimRest::Contended => self.sleep(contended, true).await,
                        ClaimRest::Nothing { next_in } => {
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
                Err(StoreError::InstanceOver) => return SessionEnd::InstanceOver,
                Err(error) => {
                    let wait = backoff.next();
                    tracing::warn!("cannot claim tasks, next try in {}: {error}", span(wait));
                    self.sleep(wait, false).await;
                }
            }
        }
        SessionEnd::Stopping
    }

    async fn claim(&mut self, limit: usize) -> Result<(ClaimId, Claim), StoreError> {
        let id = self.claim_ids.take();
        self.claims.requested(id);
        // Awaited to its end, never dropped: the tasks of a dropped claim would be
        // unknown until the next heartbeat.
        match self.claimer.claim(id, limit).await {
            Ok(claim) => {
                measure::claimed(claim.tasks.len());
                self.claims.received(id, claim.tasks.len());
                self.unrecorded.add(claim.tasks.len());
                Ok((id, claim))
            }
            Err(error) => {
                self.claims.reply_lost(id);
                Err(error)
            }
        }
    }

    /// Starts the claimed tasks. False if the stop came first, and all of them
    /// were released.
    fn start(&self, id: ClaimId, claim: Claim, free: &mut Vec<i32>) -> bool {
        let stopping = self.stop.phase() != Phase::Running;
        for task in claim.tasks {
            let class = self.classes.get(&task.class).cloned();
            match (class, free.pop()) {
                (Some(class), Some(worker)) if !stopping => {
                    let context = self.context.clone();
                    self.handlers.spawn(execute::attempt(context, class, id, task, worker));
                }
                _ => self.release(id, &task),
            }
        }
        !stopping
    }

    fn release(&self, claim: ClaimId, task: &ClaimedTask) {
        let end = AttemptEnd::never_started("the engine stopped before the task started");
        // The rule does not matter: this end uses no retry.
        let policy = RetryPolicy::of(RetryRule::default());
        let next = decide_end(&end, task.id.attempt, task.retry_number, &policy);
        let (result, error) = end.into_parts();
        let ending = AttemptRecord {
            id: task.id,
            retry_number: task.retry_number,
            claim_id: claim,
            instance_id: self.context.instance,
            ran: None,
            result,
            error,
            next,
            cancel_response: None,
        };
        // A class without a handler here is counted among the others.
        let class = self.classes.get(&task.class).map_or(usize::MAX, |class| class.number);
        let limited = task.limited.is_some();
        // A cancel request may end the task.
        let awaited = is_awaited(&task.context);
        let labels = EndingLabels { class, due_at: task.due_at, awaited, limited };
        let _ = self.context.endings.send((ending, labels));
    }

    async fn wait_for_worker_or_stop(&mut self, free: &mut Vec<i32>) {
        tokio::select! {
            worker = self.freed.recv() => free.extend(worker),
            () = self.stop.reached(Phase::Draining) => {}
        }
    }

    /// Sleeps until the time is over, the engine is to stop, or, if `wakeable`, a
    /// wake-up arrives.
    async fn sleep(&mut self, time: Duration, wakeable: bool) {
        let (wake_ups, pool) = (self.wake_ups.clone(), self.pool);
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.stop.reached(Phase::Draining) => {}
            () = wake_ups.work(pool).wait(), if wakeable => {
                tracing::trace!("idle workers are woken");
                measure::woken();
            }
        }
    }
}

/// How long to wait before claiming tasks again that another transaction has
/// locked. A claim holds them for a moment, a forgotten transaction for hours.
const CONTENDED_MIN: Duration = Duration::from_millis(2);
const CONTENDED_MAX: Duration = Duration::from_secs(1);
