//! The settler records endings that depend on transactions of the application. It asks the
//! store whether attempts that called `complete_in` have completed their tasks; if not, they
//! have failed. And it suspends tasks, which waits for a transaction that sends them a signal.
//! It runs apart from the recorder: such a transaction may still be open, and other results
//! must not wait for it.

use std::time::{Duration, Instant};

use task_engine_core::attempt::{AttemptRecord, NextState, TaskError};
use task_engine_core::completion::SettleOutcome;
use task_engine_core::step::{SuspendOutcome, Suspension};
use task_engine_core::task::TaskStatus;
use task_engine_store::error::StoreError;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::backoff::Backoff;
use crate::record::{RecordContext, RecordTotals, STOP_TIMEOUT, gives_up, was_released};
use crate::rollup::EndingLabels;
use crate::stop::Phase;

const BATCH_MAX: usize = 1000;

/// An ending that depends on a transaction of the application.
#[derive(Debug)]
pub(crate) enum PendingEnding {
    /// The attempt called `complete_in`.
    Completion(Box<PendingCompletion>),
    /// The task waits for a signal or for its children.
    Suspension(Box<Suspension>, EndingLabels),
}

impl PendingEnding {
    fn record(&self) -> &AttemptRecord {
        match self {
            Self::Completion(completion) => &completion.ending,
            Self::Suspension(suspension, _) => &suspension.record,
        }
    }
}

/// An attempt that has returned after it called `complete_in`.
#[derive(Debug)]
pub(crate) struct PendingCompletion {
    /// Its end, if the completion is not committed.
    pub(crate) ending: AttemptRecord,
    pub(crate) labels: EndingLabels,
    /// Whether its code returned a result.
    pub(crate) succeeded: bool,
}

pub(crate) struct Settler {
    pub(crate) shared: RecordContext,
    /// The last error of the store, if its last answer was one.
    pub(crate) last_error: Option<StoreError>,
}

impl Settler {
    /// Settles attempts until the last sender is gone and none is open.
    pub(crate) async fn run(
        mut self,
        mut pending: UnboundedReceiver<PendingEnding>,
    ) -> RecordTotals {
        let mut totals = RecordTotals::default();
        let (mut new, mut open) = (Vec::new(), Vec::new());
        let mut backoff = Backoff::new();
        // When the open ones are asked about again.
        let mut again_at = tokio::time::Instant::now();
        let mut stopping_since = None;
        let mut more = true;
        while more || !open.is_empty() {
            let is_open = !open.is_empty();
            tokio::select! {
                count = pending.recv_many(&mut new, BATCH_MAX), if more => more = count > 0,
                // Separate from the new ones: they take longer.
                () = tokio::time::sleep_until(again_at), if is_open => {
                    let tried = std::mem::take(&mut open);
                    open = self.settle(tried, &mut totals).await;
                    again_at = tokio::time::Instant::now() + backoff.next();
                }
            }
            if !new.is_empty() {
                let left = self.settle(std::mem::take(&mut new), &mut totals).await;
                if open.is_empty() && !left.is_empty() {
                    backoff = Backoff::new();
                    again_at = tokio::time::Instant::now() + backoff.next();
                }
                open.extend(left);
            }
            if !open.is_empty() && self.gives_up(&mut stopping_since) {
                tracing::error!(
                    "{} results could not be recorded; their tasks stay running until another engine or `task-engine recover` recovers them",
                    open.len()
                );
                totals.unrecorded += open.len();
                break;
            }
        }
        self.shared.remove_finished_claims().await;
        totals
    }

    /// Returns those that could not be settled yet.
    async fn settle(
        &mut self,
        batch: Vec<PendingEnding>,
        totals: &mut RecordTotals,
    ) -> Vec<PendingEnding> {
        let endings: Vec<AttemptRecord> = batch.iter().map(|one| one.record().clone()).collect();
        self.shared.reports.flush_before(&endings).await;
        let (mut completions, mut suspensions) = (Vec::new(), Vec::new());
        for one in batch {
            match one {
                PendingEnding::Completion(completion) => completions.push(*completion),
                PendingEnding::Suspension(suspension, labels) => {
                    suspensions.push((*suspension, labels));
                }
            }
        }
        let mut open = Vec::new();
        if !completions.is_empty() {
            let left = self.complete(completions, totals).await.into_iter();
            open.extend(left.map(|one| PendingEnding::Completion(Box::new(one))));
        }
        if !suspensions.is_empty() {
            let left = self.suspend(suspensions, totals).await.into_iter();
            open.extend(left.map(|(one, labels)| PendingEnding::Suspension(Box::new(one), labels)));
        }
        open
    }

    /// Suspends tasks. Returns those that another transaction holds.
    async fn suspend(
        &mut self,
        batch: Vec<(Suspension, EndingLabels)>,
        totals: &mut RecordTotals,
    ) -> Vec<(Suspension, EndingLabels)> {
        let suspensions: Vec<Suspension> = batch.iter().map(|(one, _)| one.clone()).collect();
        let outcomes = match self.shared.store.suspend(&suspensions).await {
            Ok(outcomes) => outcomes,
            Err(StoreError::InvalidData(why)) => {
                for (one, _) in &batch {
                    tracing::error!("the end of {} cannot be recorded: {why}", one.record.id);
                }
                self.shared.unrecorded.done(batch.len());
                totals.unrecorded += batch.len();
                return Vec::new();
            }
            Err(error) => {
                tracing::warn!("{} results are kept until the store answers: {error}", batch.len());
                self.last_error = Some(error);
                return batch;
            }
        };
        self.last_error = None;
        let (mut open, mut counted, mut counted_labels) = (Vec::new(), Vec::new(), Vec::new());
        let mut settled = 0;
        for ((one, labels), outcome) in batch.into_iter().zip(outcomes) {
            match outcome {
                SuspendOutcome::Open => {
                    tracing::debug!(
                        "{}: another transaction holds its task; asking again",
                        one.record.id
                    );
                    open.push((one, labels));
                    continue;
                }
                SuspendOutcome::Late => tracing::warn!(
                    "{} returned after its end was recorded; its result is kept as evidence and changes nothing",
                    one.record.id
                ),
                SuspendOutcome::Suspended(watching) => {
                    // The child may have ended before the watch was committed.
                    if let Some(child) = watching {
                        self.shared.ended_tasks.send(child);
                    }
                    crate::measure::suspended();
                    counted_labels.push(labels);
                    counted.push(one.record.clone());
                }
            }
            self.shared.claims.recorded(std::iter::once(one.record.claim_id));
            settled += 1;
        }
        self.shared.after_record(&counted, &counted_labels, &[], settled);
        self.shared.remove_finished_claims().await;
        open
    }

    /// Returns the completions that could not be settled yet.
    async fn complete(
        &mut self,
        batch: Vec<PendingCompletion>,
        totals: &mut RecordTotals,
    ) -> Vec<PendingCompletion> {
        let endings: Vec<AttemptRecord> = batch.iter().map(|one| one.ending.clone()).collect();
        let settled = match self.shared.store.settle(&endings).await {
            Ok(settled) => settled,
            // One that is refused must not delay the others.
            Err(StoreError::InvalidData(why)) if batch.len() == 1 => {
                tracing::error!("the end of {} cannot be recorded: {why}", endings[0].id);
                self.shared.unrecorded.done(1);
                totals.unrecorded += 1;
                return Vec::new();
            }
            Err(StoreError::InvalidData(_)) => {
                let mut open = Vec::new();
                for one in batch {
                    open.extend(Box::pin(self.complete(vec![one], totals)).await);
                }
                return open;
            }
            Err(error) => {
                tracing::warn!("{} results are kept until the store answers: {error}", batch.len());
                self.last_error = Some(error);
                return batch;
            }
        };
        self.last_error = None;
        let (mut open, mut counted, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        let mut recorded = 0;
        for (one, settled) in batch.into_iter().zip(settled) {
            one.log(settled);
            if settled == SettleOutcome::Open {
                open.push(one);
                continue;
            }
            if settled == SettleOutcome::Recorded && was_released(&one.ending) {
                totals.released += 1;
            }
            self.shared.claims.recorded(std::iter::once(one.ending.claim_id));
            recorded += 1;
            if settled != SettleOutcome::Late {
                labels.push(one.labels);
                counted.push(one.into_counted(settled));
            }
        }
        self.shared.after_record(&counted, &labels, &[], recorded);
        // If all tasks are completed in transactions, the recorder has nothing to write.
        self.shared.remove_finished_claims().await;
        open
    }

    fn gives_up(&self, since: &mut Option<Instant>) -> bool {
        let phase = self.shared.stop.phase();
        let gives_up = match &self.last_error {
            Some(error) => gives_up(phase, error),
            None => phase >= Phase::Forced,
        };
        gives_up && since.get_or_insert_with(Instant::now).elapsed() >= STOP_TIMEOUT
    }
}

impl PendingCompletion {
    /// Its end as it is recorded.
    fn into_counted(self, settled: SettleOutcome) -> AttemptRecord {
        match settled {
            SettleOutcome::Completed => AttemptRecord {
                error: None,
                next: NextState::End(TaskStatus::Stopped),
                ..self.ending
            },
            _ => self.ending,
        }
    }

    fn is_snoozed(&self) -> bool {
        let goes_on = matches!(self.ending.next, NextState::Wait { .. });
        let name = self.ending.error.as_ref().map(|error| error.exception.as_str());
        goes_on && name == Some(TaskError::SNOOZED)
    }

    fn log(&self, settled: SettleOutcome) {
        let ending = &self.ending;
        let id = ending.id.task_id;
        let worker = ending.ran.and_then(|ran| ran.worker).unwrap_or_default();
        let ms = ending.ran.map_or(Duration::ZERO, |ran| ran.lasted).as_millis();
        let error = ending.error.as_ref().map(ToString::to_string).unwrap_or_default();
        match settled {
            SettleOutcome::Completed if self.succeeded => {
                tracing::info!("Worker {worker} finished task {id} in {ms} ms");
            }
            SettleOutcome::Completed => tracing::warn!(
                "Worker {worker} task {id} was completed in a transaction; its later error changes nothing: {error}"
            ),
            SettleOutcome::Recorded if self.is_snoozed() => {
                tracing::info!("Worker {worker} snoozed task {id} after {ms} ms: {error}");
            }
            SettleOutcome::Recorded => {
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
            SettleOutcome::Late => tracing::warn!(
                "{} returned after its end was recorded; its result is kept as evidence and changes nothing",
                ending.id
            ),
            SettleOutcome::Open => tracing::debug!(
                "{}: the transaction that completes it is still open; asking again",
                ending.id
            ),
        }
    }
}
