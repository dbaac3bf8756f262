//! The running attempts of an engine, and how they are interrupted.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use task_engine_core::attempt::{AttemptId, InterruptCause};
use tokio_util::sync::CancellationToken;

/// That the code of an attempt was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interrupt {
    pub(crate) cause: InterruptCause,
    pub(crate) at: Instant,
}

impl Interrupt {
    fn now(cause: InterruptCause) -> Self {
        Self { cause, at: Instant::now() }
    }
}

/// The running attempts of an engine, so that they can be interrupted.
#[derive(Debug, Default)]
pub(crate) struct RunningAttempts {
    attempts: Mutex<AttemptTable>,
}

#[derive(Debug, Default)]
struct AttemptTable {
    running: HashMap<AttemptId, (CancellationToken, Option<Interrupt>)>,
    /// The cancel requests in the store. One may arrive here before its attempt,
    /// which is claimed, begins.
    cancel_requests: HashSet<AttemptId>,
    /// Why every attempt is interrupted, also one that begins from now on.
    interrupt_all: Option<InterruptCause>,
}

impl RunningAttempts {
    pub(crate) fn begin(&self, id: AttemptId, token: CancellationToken) {
        let mut attempts = lock(&self.attempts);
        let requested =
            attempts.cancel_requests.contains(&id).then_some(InterruptCause::CancelRequested);
        let interrupt = requested.or(attempts.interrupt_all).map(Interrupt::now);
        if interrupt.is_some() {
            token.cancel();
        }
        attempts.running.insert(id, (token, interrupt));
    }

    pub(crate) fn end(&self, id: AttemptId) {
        lock(&self.attempts).running.remove(&id);
    }

    /// How a running attempt was interrupted, if it was.
    pub(crate) fn interrupt(&self, id: AttemptId) -> Option<Interrupt> {
        lock(&self.attempts).running.get(&id).and_then(|(_, interrupt)| *interrupt)
    }

    /// Interrupts these attempts; those that have not begun yet, as soon as they
    /// begin. Each call has all cancel requests of the store. The first cause of an
    /// interrupt stays. Returns the attempts that were not interrupted before.
    pub(crate) fn request_cancel(&self, ids: &[AttemptId]) -> Vec<AttemptId> {
        let mut attempts = lock(&self.attempts);
        attempts.cancel_requests = ids.iter().copied().collect();
        let mut new = Vec::new();
        for id in ids {
            if let Some((token, interrupt @ None)) = attempts.running.get_mut(id) {
                *interrupt = Some(Interrupt::now(InterruptCause::CancelRequested));
                token.cancel();
                new.push(*id);
            }
        }
        new
    }

    /// Interrupts every attempt, now and from now on.
    pub(crate) fn interrupt_all(&self, cause: InterruptCause) {
        let mut attempts = lock(&self.attempts);
        attempts.interrupt_all.get_or_insert(cause);
        for (token, interrupt) in attempts.running.values_mut() {
            interrupt.get_or_insert(Interrupt::now(cause));
            token.cancel();
        }
    }
}

/// Locks although a thread has panicked with the lock: each change is one step, so
/// the value is consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
