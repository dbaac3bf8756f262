//! The settler: attempts that may have completed their tasks in transactions of
//! the application's own. The store is asked whether they have; if not, they have
//! failed. Apart from the recorder, because such a transaction may still be open,
//! and nobody else's result waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use task_engine_core::attempt::{Ending, NextState, TaskError};
use task_engine_core::completion::Settled;
use task_engine_core::task::TaskStatus;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::figures::{About, Figures};
use crate::record::{Record, STOP_TIMEOUT, Unwritten, gives_up, was_released};
use crate::report::Reports;
use crate::running::Claims;
use crate::stop::{Phase, StopWatch};
use crate::wake_up::Backoff;

const BATCH_MAX: usize = 1000;

/// An attempt that has returned after it had begun to complete its task.
#[derive(Debug)]
pub(crate) struct Unsettled {
    /// How it has ended, if the completion is not on record.
    pub(crate) ending: Ending,
    /// What charts want to know about it.
    pub(crate) about: About,
    /// Whether its code says that all went well.
    pub(crate) succeeded: bool,
}

pub(crate) struct Settler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) stop: StopWatch,
    pub(crate) unwritten: Arc<Unwritten>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) figures: Arc<Figures>,
    /// What the store said last, if it did not settle anything.
    pub(crate) last_error: Option<StoreError>,
}

impl Settler {
    /// Settles attempts until the last sender is gone and none is open.
    pub(crate) async fn run(mut self, mut unsettled: UnboundedReceiver<Unsettled>) -> Record {
        let mut record = Record::default();
        let (mut new, mut open) = (Vec::new(), Vec::new());
        let mut backoff = Backoff::new();
        // When those that are open are asked about again.
        let mut again_at = tokio::time::Instant::now();
        let mut stopping_since = None;
        let mut more = true;
        while more || !open.is_empty() {
            let is_open = !open.is_empty();
            tokio::select! {
                count = unsettled.recv_many(&mut new, BATCH_MAX), if more => more = count > 0,
                // Apart from the new ones: they take longer.
                () = tokio::time::sleep_until(again_at), if is_open => {
                    let tried = std::mem::take(&mut open);
                    open = self.settle(tried, &mut record).await;
                    again_at = tokio::time::Instant::now() + backoff.next();
                }
            }
            if !new.is_empty() {
                let left = self.settle(std::mem::take(&mut new), &mut record).await;
                if open.is_empty() && !left.is_empty() {
                    backoff = Backoff::new();
                    again_at = tokio::time::Instant::now() + backoff.next();
                }
                open.extend(left);
            }
            if !open.is_empty() && self.gives_up(&mut stopping_since) {
                tracing::error!(
                    "{} results could not be written and are given up; their tasks are left as running, until other engines recover them (or `task-engine recover`)",
                    open.len()
                );
                record.unrecorded += open.len();
                break;
            }
        }
        self.sweep().await;
        record
    }

    /// Returns those that could not be settled yet.
    async fn settle(&mut self, batch: Vec<Unsettled>, record: &mut Record) -> Vec<Unsettled> {
        let endings: Vec<Ending> = batch.iter().map(|one| one.ending.clone()).collect();
        self.reports.before(&endings).await;
        let settled = match self.store.settle(&endings).await {
            Ok(settled) => settled,
            // One that cannot be stored must not hold up the others.
            Err(StoreError::InvalidData(why)) if batch.len() == 1 => {
                tracing::error!("the end of {} cannot be stored at all: {why}", endings[0].id);
                self.unwritten.written(1);
                record.unrecorded += 1;
                return Vec::new();
            }
            Err(StoreError::InvalidData(_)) => {
                let mut open = Vec::new();
                for one in batch {
                    open.extend(Box::pin(self.settle(vec![one], record)).await);
                }
                return open;
            }
            Err(error) => {
                tracing::warn!("{} results are kept until the store tells: {error}", batch.len());
                self.last_error = Some(error);
                return batch;
            }
        };
        self.last_error = None;
        let (mut open, mut counted, mut about) = (Vec::new(), Vec::new(), Vec::new());
        for (one, settled) in batch.into_iter().zip(settled) {
            one.log(settled);
            if settled == Settled::Open {
                open.push(one);
                continue;
            }
            if settled == Settled::Recorded && was_released(&one.ending) {
                record.released += 1;
            }
            self.claims.recorded(std::iter::once(one.ending.claim_id));
            self.unwritten.written(1);
            if settled != Settled::Late {
                about.push(one.about);
                counted.push(one.into_counted(settled));
            }
        }
        self.figures.count(&counted, &about, &[]);
        self.sweep().await;
        open
    }

    /// Removes claims that are finished: if all tasks are completed by
    /// themselves, the recorder has nothing to do.
    async fn sweep(&self) {
        let finished = self.claims.take_finished();
        if finished.is_empty() {
            return;
        }
        if let Err(error) = self.store.record(&[], &finished).await {
            tracing::debug!("finished claims are left to the next sweep: {error}");
            self.claims.keep_finished(finished);
        }
    }

    fn gives_up(&self, since: &mut Option<Instant>) -> bool {
        let phase = self.stop.phase();
        let gives_up = match &self.last_error {
            Some(error) => gives_up(phase, error),
            None => phase >= Phase::Forced,
        };
        gives_up && since.get_or_insert_with(Instant::now).elapsed() >= STOP_TIMEOUT
    }
}

impl Unsettled {
    /// What is on record about it.
    fn into_counted(self, settled: Settled) -> Ending {
        match settled {
            Settled::Completed => {
                Ending { error: None, next: NextState::End(TaskStatus::Stopped), ..self.ending }
            }
            _ => self.ending,
        }
    }

    fn is_snoozed(&self) -> bool {
        let goes_on = matches!(self.ending.next, NextState::Wait { .. });
        let name = self.ending.error.as_ref().map(|error| error.exception.as_str());
        goes_on && name == Some(TaskError::SNOOZED)
    }

    fn log(&self, settled: Settled) {
        let ending = &self.ending;
        let id = ending.id.task_id;
        let worker = ending.ran.and_then(|ran| ran.worker).unwrap_or_default();
        let ms = ending.ran.map_or(Duration::ZERO, |ran| ran.lasted).as_millis();
        let error = ending.error.as_ref().map(ToString::to_string).unwrap_or_default();
        match settled {
            Settled::Completed if self.succeeded => {
                tracing::info!("Worker {worker} finished task {id} in {ms} ms");
            }
            Settled::Completed => tracing::warn!(
                "Worker {worker} task {id} is done, by a transaction of its own; what came after changes nothing: {error}"
            ),
            Settled::Recorded if self.is_snoozed() => {
                tracing::info!("Worker {worker} snoozed task {id} after {ms} ms: {error}");
            }
            Settled::Recorded => {
                tracing::info!("Worker {worker} failed task {id} in {ms} ms, error is {error}");
                match ending.next {
                    NextState::Wait { after, .. } => tracing::info!(
                        "Worker {worker} task {id} will be retried in {:.0} s",
                        after.as_secs_f64()
                    ),
                    NextState::End(_) => {
                        tracing::warn!(
                            "Worker {worker} task {id} has failed and will not be retried"
                        );
                    }
                }
            }
            Settled::Late => tracing::warn!(
                "{} returned after its end was on record; its result is kept as evidence and changes nothing",
                ending.id
            ),
            Settled::Open => tracing::debug!(
                "{}: the transaction that completes it is still open; it is asked again",
                ending.id
            ),
        }
    }
}
