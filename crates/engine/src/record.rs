//! The recorder: endings are written in batches that form by themselves. While
//! one write is under way the next gathers; no timer, no wait when idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use task_engine_core::attempt::{AttemptId, Ending, NextState, TaskError};
use task_engine_core::display::span;
use task_engine_core::task::TaskStatus;
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::figures::{About, Figures};
use crate::report::Reports;
use crate::running::Claims;
use crate::stop::{Phase, StopWatch};
use crate::wake_up::Backoff;

const BATCH_MAX: usize = 1000;
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A stop waits this long for a store that refuses, and a forced one also for one
/// that is away.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Recorder {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) stop: StopWatch,
    pub(crate) unwritten: Arc<Unwritten>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) figures: Arc<Figures>,
    /// Of what is being written: those that are not on record, or had been ended
    /// by somebody else.
    pub(crate) uncounted: Vec<AttemptId>,
    /// Since when a stop waits for the store.
    pub(crate) stopping_since: Option<Instant>,
}

/// How many attempts have been claimed and are not on record yet. When there
/// are too many, the engine claims no more.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    count: AtomicUsize,
    fewer: Notify,
}

impl Unwritten {
    pub(crate) fn add(&self, attempts: usize) {
        self.count.fetch_add(attempts, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn written(&self, attempts: usize) {
        self.count.fetch_sub(attempts, Ordering::Relaxed);
        self.fewer.notify_one();
    }

    /// Waits until there are no more than this many.
    pub(crate) async fn at_most(&self, attempts: usize) {
        while self.count() > attempts {
            self.fewer.notified().await;
        }
    }
}

/// What became of the endings of one life.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) released: usize,
    pub(crate) unrecorded: usize,
}

impl Record {
    pub(crate) fn and(self, other: &Self) -> Self {
        Self {
            released: self.released + other.released,
            unrecorded: self.unrecorded + other.unrecorded,
        }
    }
}

impl Recorder {
    /// Writes endings until the last sender is gone.
    pub(crate) async fn run(mut self, mut endings: UnboundedReceiver<(Ending, About)>) -> Record {
        let mut record = Record::default();
        let (mut arrived, mut gathered, mut about) = (Vec::new(), Vec::new(), Vec::new());
        while endings.recv_many(&mut arrived, BATCH_MAX).await > 0 {
            let count = arrived.len();
            for (ending, of_it) in arrived.drain(..) {
                gathered.push(ending);
                about.push(of_it);
            }
            let mut rest = &mut gathered[..];
            while !rest.is_empty() {
                let (batch, after) = rest.split_at_mut(batch_len(rest));
                record.released += batch.iter().filter(|e| was_released(e)).count();
                record.unrecorded += self.write(batch).await;
                rest = after;
            }
            self.unwritten.written(count);
            self.figures.count(&gathered, &about, &self.uncounted);
            self.uncounted.clear();
            gathered.clear();
            about.clear();
        }
        self.reports.last().await;
        let finished = self.claims.take_finished();
        if let Err(error) = self.store.record(&[], &finished).await {
            tracing::debug!("finished claims are left to the next sweep: {error}");
        }
        record
    }

    /// Writes a batch, as often as it takes. Returns how many endings could not
    /// be written.
    ///
    /// Only what the store says about the data itself is the data's fault. All
    /// else, also a refused connection, may be mended by somebody, and a result
    /// that was worked for is kept until then.
    async fn write(&mut self, batch: &mut [Ending]) -> usize {
        let mut backoff = Backoff::new();
        loop {
            self.reports.before(batch).await;
            let finished = self.claims.take_finished();
            match self.store.record(batch, &finished).await {
                Ok(late) => {
                    crate::measure::recorded(batch.len());
                    for id in &late {
                        tracing::warn!(
                            "{id} returned after its end was on record; its result is kept as evidence and changes nothing"
                        );
                    }
                    self.uncounted.extend(late);
                    self.claims.recorded(batch.iter().map(|ending| ending.claim_id));
                    return 0;
                }
                Err(StoreError::InvalidData(why)) => {
                    self.claims.keep_finished(finished);
                    return self.write_apart(batch, &why).await;
                }
                Err(error) => {
                    self.claims.keep_finished(finished);
                    let wait = backoff.next();
                    tracing::warn!(
                        "{} results are kept until the store takes them, next try in {}: {error}",
                        batch.len(),
                        span(wait)
                    );
                    if !self.timeout(wait, &error).await {
                        tracing::error!(
                            "{} results could not be written and are given up: {error}; their tasks are left as running, until other engines recover them (or `task-engine recover`) and run them again",
                            batch.len()
                        );
                        self.uncounted.extend(batch.iter().map(|ending| ending.id));
                        return batch.len();
                    }
                }
            }
        }
    }

    /// One ending that cannot be stored must not hold up the others: the batch
    /// is halved until it is found, and ends as a failure.
    async fn write_apart(&mut self, batch: &mut [Ending], why: &str) -> usize {
        let [ending] = batch else {
            let (one, other) = batch.split_at_mut(batch.len() / 2);
            let unwritten = Box::pin(self.write(one)).await;
            return unwritten + Box::pin(self.write(other)).await;
        };
        let exception = "ResultNotStorable";
        if ending.error.as_ref().is_some_and(|error| error.exception == exception) {
            tracing::error!("the end of {} cannot be stored at all: {why}", ending.id);
            self.uncounted.push(ending.id);
            return 1;
        }
        ending.result = None;
        ending.error = Some(TaskError::new(exception, why).storable());
        ending.next = NextState::End(TaskStatus::Failed);
        tracing::warn!("the result of {} cannot be stored, so it has failed: {why}", ending.id);
        Box::pin(self.write(batch)).await
    }

    /// Waits before the next try; false when there is no time left for one.
    async fn timeout(&mut self, wait: Duration, error: &StoreError) -> bool {
        tokio::time::sleep(wait).await;
        if !gives_up(self.stop.phase(), error) {
            self.stopping_since = None;
            return true;
        }
        self.stopping_since.get_or_insert_with(Instant::now).elapsed() < STOP_TIMEOUT
    }
}

/// Whether an engine in this phase stops waiting for its results to be written. A
/// store that is away comes back; one that refuses does not, unless somebody
/// changes something.
pub(crate) fn gives_up(phase: Phase, error: &StoreError) -> bool {
    phase >= Phase::Forced || (phase >= Phase::Draining && !error.is_temporary())
}

/// How many of these go into one statement; at least one.
fn batch_len(endings: &[Ending]) -> usize {
    let mut bytes = 0;
    let fits = |ending: &&Ending| {
        bytes += ending.result.as_ref().map_or(0, |result| result.as_str().len()) + 1000;
        bytes <= BATCH_BYTES_MAX
    };
    endings.iter().take_while(fits).count().max(1)
}

pub(crate) fn was_released(ending: &Ending) -> bool {
    ending.error.as_ref().is_some_and(|error| error.exception == TaskError::ENGINE_STOPPED)
}
