//! Wake-ups: hints that there may be work. Losing every one of them costs time,
//! never a task: the poll is below.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use task_engine_model::{Store, WakeUp};
use tokio::sync::Notify;

/// What has been heard and not yet acted upon.
#[derive(Debug)]
pub(crate) struct Hints {
    /// One for each pool of workers: what one has heard, the others have not.
    work: Vec<Hint>,
    cancel: Hint,
}

#[derive(Debug, Default)]
pub(crate) struct Hint {
    heard: AtomicBool,
    notify: Notify,
}

impl Hint {
    fn hear(&self) {
        self.heard.store(true, Ordering::Release);
        // Keeps one permit if nobody waits yet: nothing is missed in between.
        self.notify.notify_one();
    }

    /// Whether something was heard since the last time.
    pub(crate) fn take(&self) -> bool {
        self.heard.swap(false, Ordering::Acquire)
    }

    pub(crate) async fn wait(&self) {
        while !self.heard.load(Ordering::Acquire) {
            self.notify.notified().await;
        }
    }
}

impl Hints {
    pub(crate) fn new(pools: usize) -> Self {
        Self { work: (0..pools).map(|_| Hint::default()).collect(), cancel: Hint::default() }
    }

    pub(crate) fn work(&self, pool: usize) -> &Hint {
        &self.work[pool]
    }

    pub(crate) fn cancel(&self) -> &Hint {
        &self.cancel
    }

    fn hear(&self, wake_up: WakeUp) {
        match wake_up {
            WakeUp::Work => self.work.iter().for_each(Hint::hear),
            WakeUp::Cancel => self.cancel.hear(),
        }
    }
}

/// Listens for ever; connects again when the connection breaks.
pub(crate) async fn listen(store: Arc<dyn Store>, hints: Arc<Hints>) {
    let mut backoff = Backoff::new();
    loop {
        let began = Instant::now();
        let hear = |wake_up| hints.hear(wake_up);
        let Err(error) = store.listen(&hear).await else {
            return;
        };
        if began.elapsed() > Duration::from_secs(10) {
            backoff = Backoff::new();
        }
        let wait = backoff.next();
        tracing::warn!("wake-ups are lost, the poll goes on, listening again in {wait:?}: {error}");
        tokio::time::sleep(wait).await;
    }
}

/// Waits between tries that grow, with a part left to chance so that engines
/// do not come back all at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(3);

    pub(crate) fn new() -> Self {
        Self { next: Self::FIRST }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.next.mul_f64(0.75 + 0.25 * fastrand::f64());
        self.next = (self.next * 2).min(Self::LONGEST);
        wait
    }
}
