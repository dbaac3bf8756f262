//! The recorder writes endings in batches. While one write is under way, the next
//! batch gathers; there is no timer, and no delay when the engine is idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use task_engine_core::attempt::{AttemptId, AttemptRecord, TaskError};
use task_engine_core::display::span;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::backoff::Backoff;
use crate::claims::Claims;
use crate::durable::EndedTasks;
use crate::limits::FreedKeys;
use crate::progress::ReportWriter;
use crate::rollup::{EndingLabels, Rollups};
use crate::stop::{Phase, StopSignal};

const BATCH_MAX: usize = 1000;
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long a stop waits for a store that refuses. A forced stop waits this long
/// for an unreachable store, too.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// What the recorder and the settler share.
#[derive(Clone)]
pub(crate) struct RecordContext {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) stop: StopSignal,
    pub(crate) unrecorded: Arc<OpenCount>,
    pub(crate) reports: Arc<ReportWriter>,
    pub(crate) rollups: Arc<Rollups>,
    /// Where awaited tasks that have ended go, and children that a suspended task watches.
    pub(crate) ended_tasks: EndedTasks,
    pub(crate) freed_keys: FreedKeys,
}

impl RecordContext {
    /// What follows the record of these ends. `count`: how many attempts are open no more.
    pub(crate) fn after_record(
        &self,
        endings: &[AttemptRecord],
        labels: &[EndingLabels],
        uncounted: &[AttemptId],
        count: usize,
    ) {
        // Also those that would wait again, because a cancel request may have ended them. The
        // stored end counts.
        for (ending, labels) in endings.iter().zip(labels) {
            if labels.awaited {
                self.ended_tasks.send(ending.id.task_id);
            }
        }
        self.unrecorded.done(count);
        self.freed_keys.wake_after(labels);
        self.rollups.count(endings, labels, uncounted);
    }

    /// Removes finished claims. Usually the next record does.
    pub(crate) async fn remove_finished_claims(&self) {
        let finished = self.claims.take_finished();
        if finished.is_empty() {
            return;
        }
        if let Err(error) = self.store.record(&[], &finished).await {
            tracing::debug!("finished claims are left to the next heartbeat: {error}");
            self.claims.keep_finished(finished);
        }
    }
}

pub(crate) struct ResultRecorder {
    pub(crate) shared: RecordContext,
    /// Attempts of the current write that are not counted in the rollups: not
    /// recorded, or ended before by recovery.
    pub(crate) uncounted: Vec<AttemptId>,
    /// Since when a stop has been waiting for the store.
    pub(crate) stopping_since: Option<Instant>,
}

/// Counts the open attempts, or the ended tasks whose parents and dependents have not been looked
/// for.
///
/// An attempt is open from its claim until it is recorded. When too many are open, the engine
/// claims no more.
#[derive(Debug, Default)]
pub(crate) struct OpenCount {
    count: AtomicUsize,
    fewer: Notify,
}

impl OpenCount {
    pub(crate) fn add(&self, more: usize) {
        self.count.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn done(&self, count: usize) {
        self.count.fetch_sub(count, Ordering::Relaxed);
        self.fewer.notify_one();
    }

    /// Waits until there are no more than this many.
    pub(crate) async fn wait_until_at_most(&self, count: usize) {
        while self.count() > count {
            self.fewer.notified().await;
        }
    }
}

/// Totals of one session: how many tasks were released, and how many endings
/// could not be recorded.
#[derive(Debug, Default)]
pub(crate) struct RecordTotals {
    pub(crate) released: usize,
    pub(crate) unrecorded: usize,
}

impl RecordTotals {
    pub(crate) fn and(self, other: &Self) -> Self {
        Self {
            released: self.released + other.released,
            unrecorded: self.unrecorded + other.unrecorded,
        }
    }
}

impl ResultRecorder {
    /// Writes endings until the last sender is gone.
    pub(crate) async fn run(
        mut self,
        mut endings: UnboundedReceiver<(AttemptRecord, EndingLabels)>,
    ) -> RecordTotals {
        let mut totals = RecordTotals::default();
        let (mut arrived, mut gathered, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        while endings.recv_many(&mut arrived, BATCH_MAX).await > 0 {
            let count = arrived.len();
            for (ending, ending_labels) in arrived.drain(..) {
                gathered.push(ending);
                labels.push(ending_labels);
            }
            let mut rest = &mut gathered[..];
            while !rest.is_empty() {
                let (batch, after) = rest.split_at_mut(batch_len(rest));
                totals.released += batch.iter().filter(|e| was_released(e)).count();
                totals.unrecorded += self.write(batch).await;
                rest = after;
            }
            self.shared.after_record(&gathered, &labels, &self.uncounted, count);
            self.uncounted.clear();
            gathered.clear();
            labels.clear();
        }
        self.shared.reports.flush_at_end().await;
        self.shared.remove_finished_claims().await;
        totals
    }

    /// Writes a batch, and retries until the store accepts it. Returns how many
    /// endings could not be written.
    ///
    /// Only `InvalidData` is about the endings themselves. An operator can fix all
    /// other errors, a refused connection for one, so the results are kept until
    /// then.
    async fn write(&mut self, batch: &mut [AttemptRecord]) -> usize {
        let mut backoff = Backoff::new();
        loop {
            self.shared.reports.flush_before(batch).await;
            let finished = self.shared.claims.take_finished();
            match self.shared.store.record(batch, &finished).await {
                Ok(late) => {
                    crate::measure::recorded(batch.len());
                    for id in &late {
                        tracing::warn!(
                            "{id} returned after its end was recorded; its result is kept as evidence and changes nothing"
                        );
                    }
                    self.uncounted.extend(late);
                    self.shared.claims.recorded(batch.iter().map(|ending| ending.claim_id));
                    return 0;
                }
                Err(StoreError::InvalidData(why)) => {
                    self.shared.claims.keep_finished(finished);
                    return self.write_halves(batch, &why).await;
                }
                Err(error) => {
                    self.shared.claims.keep_finished(finished);
                    let wait = backoff.next();
                    tracing::warn!(
                        "{} results are kept until the store takes them, next try in {}: {error}",
                        batch.len(),
                        span(wait)
                    );
                    if !self.wait_to_retry(wait, &error).await {
                        tracing::error!(
                            "{} results could not be recorded: {error}; their tasks stay running until another engine or `task-engine recover` recovers them, and are then run again",
                            batch.len()
                        );
                        self.uncounted.extend(batch.iter().map(|ending| ending.id));
                        return batch.len();
                    }
                }
            }
        }
    }

    /// Finds the ending that the store refuses by halving the batch, so that the
    /// others are recorded. Its result is replaced by a failure.
    async fn write_halves(&mut self, batch: &mut [AttemptRecord], why: &str) -> usize {
        let [ending] = batch else {
            let (one, other) = batch.split_at_mut(batch.len() / 2);
            let unrecorded = Box::pin(self.write(one)).await;
            return unrecorded + Box::pin(self.write(other)).await;
        };
        let is_refused = |error: &TaskError| error.exception == TaskError::RESULT_NOT_STORABLE;
        if ending.error.as_ref().is_some_and(is_refused) {
            tracing::error!("the end of {} cannot be recorded: {why}", ending.id);
            self.uncounted.push(ending.id);
            return 1;
        }
        ending.refuse_result(why);
        tracing::warn!(
            "the result of {} cannot be stored, so it has failed and is not retried: {why}",
            ending.id
        );
        Box::pin(self.write(batch)).await
    }

    /// Waits before the next try; false when there is no time left for one.
    async fn wait_to_retry(&mut self, wait: Duration, error: &StoreError) -> bool {
        tokio::time::sleep(wait).await;
        if !gives_up(self.shared.stop.phase(), error) {
            self.stopping_since = None;
            return true;
        }
        self.stopping_since.get_or_insert_with(Instant::now).elapsed() < STOP_TIMEOUT
    }
}

/// Whether an engine in this phase stops waiting for its results to be recorded. An
/// unreachable store comes back by itself; one that refuses needs an operator.
pub(crate) fn gives_up(phase: Phase, error: &StoreError) -> bool {
    phase >= Phase::Forced || (phase >= Phase::Draining && !error.is_temporary())
}

/// How many of these go into one statement; at least one.
fn batch_len(endings: &[AttemptRecord]) -> usize {
    let mut bytes = 0;
    let fits = |ending: &&AttemptRecord| {
        bytes += ending.result.as_ref().map_or(0, |result| result.as_str().len()) + 1000;
        bytes <= BATCH_BYTES_MAX
    };
    endings.iter().take_while(fits).count().max(1)
}

pub(crate) fn was_released(ending: &AttemptRecord) -> bool {
    ending.error.as_ref().is_some_and(|error| error.exception == TaskError::ENGINE_STOPPED)
}
