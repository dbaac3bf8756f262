//! Wake-ups: hints that there may be work. Losing every one of them costs time,
//! never a task: the poll is below.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use task_engine_core::display::span;
use task_engine_store::contract::{Store, WakeUp};
use tokio::sync::Notify;

/// What has been heard and not yet acted upon.
#[derive(Debug)]
pub(crate) struct Hints {
    /// One for each pool of workers: what one has heard, the others have not.
    work: Vec<Hint>,
    cancel: Hint,
    schedule: Hint,
    /// When the next schedule is due, as far as the scheduler knows.
    next_schedule: Mutex<Option<Instant>>,
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
        Self {
            work: (0..pools).map(|_| Hint::default()).collect(),
            cancel: Hint::default(),
            schedule: Hint::default(),
            next_schedule: Mutex::default(),
        }
    }

    pub(crate) fn work(&self, pool: usize) -> &Hint {
        &self.work[pool]
    }

    pub(crate) fn cancel(&self) -> &Hint {
        &self.cancel
    }

    pub(crate) fn schedule(&self) -> &Hint {
        &self.schedule
    }

    /// The scheduler sleeps until then.
    pub(crate) fn expect_schedule(&self, time: Option<Instant>) {
        *self.next_schedule.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    /// A heartbeat tells when the next schedule is due. If that is before the
    /// scheduler expects one, it has missed a change, and looks again.
    pub(crate) fn schedule_due_in(&self, wait: Duration) {
        let told = Instant::now().checked_add(wait.saturating_add(CLOCK_SLACK));
        let expected = *self.next_schedule.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_some_and(|told| expected.is_none_or(|time| told < time)) {
            self.schedule.hear();
        }
    }

    fn hear(&self, wake_up: WakeUp) {
        match wake_up {
            WakeUp::Schedule => self.schedule.hear(),
            WakeUp::Cancel => self.cancel.hear(),
            // Work, or what only a newer store knows: to look once more is cheap.
            _ => self.work.iter().for_each(Hint::hear),
        }
    }
}

/// Two answers about one time differ by how long they were under way.
const CLOCK_SLACK: Duration = Duration::from_millis(100);

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
        tracing::warn!(
            "wake-ups are lost, the poll goes on, listening again in {}: {error}",
            span(wait)
        );
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
