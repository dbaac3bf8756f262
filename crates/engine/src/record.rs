//! The recorder: endings are written in batches that form by themselves. While
//! one write is under way the next gathers; no timer, no wait when idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use task_engine_model::{Ending, Next, Store, StoreError, TaskError};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::running::Claims;
use crate::stop::{Phase, StopWatch};
use crate::wake_up::Backoff;

const BATCH_MAX: usize = 1000;
/// A forced stop waits this long for a store that is away.
const FORCED_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Recorder {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) stop: StopWatch,
    pub(crate) unwritten: Arc<Unwritten>,
    /// When a forced stop first found the store away.
    pub(crate) forced_since: Option<Instant>,
}

/// How many endings wait to be written. When there are too many, the engine
/// claims no more.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    count: AtomicUsize,
    fewer: Notify,
}

impl Unwritten {
    pub(crate) fn add(&self, attempts: usize) {
        self.count.fetch_add(attempts, Ordering::Relaxed);
    }

    fn written(&self, attempts: usize) {
        self.count.fetch_sub(attempts, Ordering::Relaxed);
        self.fewer.notify_one();
    }

    /// Waits until no more than this many attempts run or wait to be written.
    pub(crate) async fn at_most(&self, attempts: usize) {
        while self.count.load(Ordering::Relaxed) > attempts {
            self.fewer.notified().await;
        }
    }
}

/// What became of the endings of one life.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) given_back: usize,
    pub(crate) unrecorded: usize,
}

impl Recorder {
    /// Writes endings until the last sender is gone.
    pub(crate) async fn run(mut self, mut endings: UnboundedReceiver<Ending>) -> Record {
        let mut record = Record::default();
        let mut batch = Vec::new();
        while endings.recv_many(&mut batch, BATCH_MAX).await > 0 {
            record.given_back += batch.iter().filter(|e| was_given_back(e)).count();
            if !self.write(&mut batch).await {
                record.unrecorded += batch.len();
                while let Ok(ending) = endings.try_recv() {
                    record.unrecorded += 1;
                    drop(ending);
                }
            }
            self.unwritten.written(batch.len());
            batch.clear();
        }
        self.close_claims().await;
        record
    }

    /// False if the store stayed away and the engine must stop.
    async fn write(&mut self, batch: &mut [Ending]) -> bool {
        let mut backoff = Backoff::new();
        loop {
            let finished = self.claims.take_finished();
            match self.store.record(batch, &finished).await {
                Ok(late) => {
                    for id in &late {
                        tracing::warn!(
                            "{id} returned after its end was on record; its result is kept as evidence and changes nothing"
                        );
                    }
                    self.claims.recorded(batch.iter().map(|ending| ending.claim_id));
                    return true;
                }
                Err(error) if error.is_temporary() => {
                    self.claims.keep_finished(finished);
                    let wait = backoff.next();
                    tracing::warn!(
                        "{} results are kept until the store is back, next try in {wait:?}: {error}",
                        batch.len()
                    );
                    if !self.patience(wait).await {
                        tracing::error!("{} results could not be written", batch.len());
                        return false;
                    }
                }
                Err(error) => {
                    self.claims.keep_finished(finished);
                    self.write_one_by_one(batch, error).await;
                    return true;
                }
            }
        }
    }

    /// One ending that the store refuses must not hold up the others.
    async fn write_one_by_one(&self, batch: &mut [Ending], error: StoreError) {
        tracing::error!("the store refused {} endings: {error}", batch.len());
        for ending in batch {
            let one = std::slice::from_ref(ending);
            let Err(error) = self.store.record(one, &[]).await else {
                self.claims.recorded(std::iter::once(ending.claim_id));
                continue;
            };
            ending.result = None;
            let why = format!("the store refused the end of this attempt: {error}");
            ending.error = Some(TaskError::new("ResultNotStorable", why).storable());
            ending.next = Next::End(task_engine_model::TaskStatus::Failed);
            match self.store.record(std::slice::from_ref(ending), &[]).await {
                Ok(_) => self.claims.recorded(std::iter::once(ending.claim_id)),
                // Its claim stays known and open: recovery will see to it.
                Err(error) => tracing::error!("{} cannot be recorded: {error}", ending.id),
            }
        }
    }

    async fn close_claims(&self) {
        let finished = self.claims.take_finished();
        if let Err(error) = self.store.record(&[], &finished).await {
            tracing::debug!("finished claims are left to the next sweep: {error}");
        }
    }

    /// Waits before the next try; false when there is no time left for one.
    async fn patience(&mut self, wait: Duration) -> bool {
        tokio::time::sleep(wait).await;
        if self.stop.phase() < Phase::Forced {
            return true;
        }
        self.forced_since.get_or_insert_with(Instant::now).elapsed() < FORCED_PATIENCE
    }
}

fn was_given_back(ending: &Ending) -> bool {
    ending.error.as_ref().is_some_and(|error| error.exception == TaskError::ENGINE_STOPPED)
}
