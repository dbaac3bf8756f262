//! Wake-ups: notifications that there may be work. If one is lost, the poll finds
//! the work later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use task_engine_core::display::span;
use task_engine_store::contract::{Store, WakeUp};
use tokio::sync::Notify;

use crate::backoff::Backoff;

/// Wake-ups that have arrived and have not been handled yet.
#[derive(Debug)]
pub(crate) struct WakeUps {
    /// One for each pool of workers.
    work: Vec<WakeUpFlag>,
    cancel: WakeUpFlag,
    schedule: WakeUpFlag,
    /// When the scheduler expects the next schedule to be due.
    next_schedule: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
pub(crate) struct WakeUpFlag {
    set: AtomicBool,
    /// Attempts with limits have ended, and nothing else is new.
    keys_freed: AtomicBool,
    notify: Notify,
}

impl WakeUpFlag {
    fn set(&self) {
        self.set.store(true, Ordering::Release);
        // Keeps one permit for the next waiter, so no wake-up is missed.
        self.notify.notify_one();
    }

    /// Whether it was set since the last call.
    pub(crate) fn take(&self) -> bool {
        self.set.swap(false, Ordering::Acquire)
    }

    fn set_keys_freed(&self) {
        self.keys_freed.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Whether keys of limits may be free since the last call.
    pub(crate) fn take_keys_freed(&self) -> bool {
        self.keys_freed.swap(false, Ordering::Acquire)
    }

    pub(crate) async fn wait(&self) {
        while !self.set.load(Ordering::Acquire) && !self.keys_freed.load(Ordering::Acquire) {
            self.notify.notified().await;
        }
    }
}

impl WakeUps {
    pub(crate) fn new(pools: usize) -> Self {
        Self {
            work: (0..pools).map(|_| WakeUpFlag::default()).collect(),
            cancel: WakeUpFlag::default(),
            schedule: WakeUpFlag::default(),
            next_schedule: Mutex::default(),
        }
    }

    pub(crate) fn work(&self, pool: usize) -> &WakeUpFlag {
        &self.work[pool]
    }

    pub(crate) fn cancel(&self) -> &WakeUpFlag {
        &self.cancel
    }

    pub(crate) fn schedule(&self) -> &WakeUpFlag {
        &self.schedule
    }

    /// Called by the scheduler, which sleeps until then.
    pub(crate) fn expect_schedule(&self, time: Option<Instant>) {
        *self.next_schedule.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    /// A heartbeat reports when the next schedule is due. If that is earlier than
    /// the scheduler expects, it has missed a change, and is woken.
    pub(crate) fn schedule_due_in(&self, wait: Duration) {
        let due = Instant::now().checked_add(wait.saturating_add(CLOCK_SLACK));
        let expected = *self.next_schedule.lock().unwrap_or_else(PoisonError::into_inner);
        if due.is_some_and(|due| expected.is_none_or(|time| due < time)) {
            self.schedule.set();
        }
    }

    /// Attempts of this engine have ended: keys of limits may be free.
    pub(crate) fn wake_for_keys(&self) {
        self.work.iter().for_each(WakeUpFlag::set_keys_freed);
    }

    fn receive(&self, wake_up: WakeUp) {
        match wake_up {
            WakeUp::Schedule => self.schedule.set(),
            WakeUp::Cancel => self.cancel.set(),
            // Work, or a kind that only a newer store knows: one more claim is cheap.
            _ => self.work.iter().for_each(WakeUpFlag::set),
        }
    }
}

/// Two replies about the same time differ by their round trips.
const CLOCK_SLACK: Duration = Duration::from_millis(100);

/// Listens for wake-ups, and reconnects when the connection breaks.
pub(crate) async fn listen(store: Arc<dyn Store>, wake_ups: Arc<WakeUps>) {
    let mut backoff = Backoff::new();
    loop {
        let began = Instant::now();
        let receive = |wake_up| wake_ups.receive(wake_up);
        let Err(error) = store.listen(&receive).await else {
            return;
        };
        if began.elapsed() > Duration::from_secs(10) {
            backoff = Backoff::new();
        }
        let wait = backoff.next();
        tracing::warn!(
            "cannot receive wake-ups, polling instead; next try in {}: {error}",
            span(wait)
        );
        tokio::time::sleep(wait).await;
    }
}
