//! What an engine holds at this moment: its claims, and the attempts that run.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use task_engine_model::{AttemptId, ClaimId};
use tokio_util::sync::CancellationToken;

/// Why a running attempt is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Somebody cancelled the task.
    Requested,
    /// The engine must stop.
    EngineStopped,
    /// The engine was declared lost: what the attempt does no longer counts.
    InstanceLost,
}

/// The attempts that run, so that they can be told to end.
#[derive(Debug, Default)]
pub(crate) struct Running {
    attempts: Mutex<Attempts>,
}

#[derive(Debug, Default)]
struct Attempts {
    running: HashMap<AttemptId, (CancellationToken, Option<Cause>)>,
    /// Why every attempt is told to end, also one that is only about to begin.
    closed: Option<Cause>,
}

impl Running {
    pub(crate) fn begin(&self, id: AttemptId, token: CancellationToken) {
        let mut attempts = lock(&self.attempts);
        let closed = attempts.closed;
        if closed.is_some() {
            token.cancel();
        }
        attempts.running.insert(id, (token, closed));
    }

    /// Returns why it was told to end, if it was.
    pub(crate) fn end(&self, id: AttemptId) -> Option<Cause> {
        lock(&self.attempts).running.remove(&id).and_then(|(_, cause)| cause)
    }

    pub(crate) fn cause(&self, id: AttemptId) -> Option<Cause> {
        lock(&self.attempts).running.get(&id).and_then(|(_, cause)| *cause)
    }

    /// Tells one attempt to end. The first cause stays.
    pub(crate) fn cancel(&self, id: AttemptId, why: Cause) -> bool {
        let mut attempts = lock(&self.attempts);
        let Some((token, cause)) = attempts.running.get_mut(&id) else {
            return false;
        };
        let first = cause.is_none();
        cause.get_or_insert(why);
        token.cancel();
        first
    }

    /// Tells every attempt to end, now and from now on.
    pub(crate) fn close(&self, why: Cause) {
        let mut attempts = lock(&self.attempts);
        attempts.closed.get_or_insert(why);
        for (token, cause) in attempts.running.values_mut() {
            cause.get_or_insert(why);
            token.cancel();
        }
    }
}

/// The claims that this engine knows. One that the store has and this does not
/// know was lost on its way, and is given back.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// How many attempts of each have not been recorded. A claim is known from
    /// before it is asked for.
    open: Mutex<HashMap<ClaimId, usize>>,
    /// Claims whose attempts are all on record.
    finished: Mutex<Vec<ClaimId>>,
}

impl Claims {
    pub(crate) fn ask(&self, id: ClaimId) {
        lock(&self.open).insert(id, 0);
    }

    pub(crate) fn got(&self, id: ClaimId, attempts: usize) {
        if attempts > 0 {
            lock(&self.open).insert(id, attempts);
        } else {
            lock(&self.open).remove(&id);
        }
    }

    /// The answer was lost: if the claim was made, nobody knows it now.
    pub(crate) fn lost(&self, id: ClaimId) {
        lock(&self.open).remove(&id);
    }

    pub(crate) fn recorded(&self, ids: impl Iterator<Item = ClaimId>) {
        let mut open = lock(&self.open);
        let mut finished = lock(&self.finished);
        for id in ids {
            if let Some(left) = open.get_mut(&id) {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    open.remove(&id);
                    finished.push(id);
                }
            }
        }
    }

    pub(crate) fn take_finished(&self) -> Vec<ClaimId> {
        std::mem::take(&mut lock(&self.finished))
    }

    pub(crate) fn keep_finished(&self, ids: Vec<ClaimId>) {
        lock(&self.finished).extend(ids);
    }

    pub(crate) fn known(&self) -> HashSet<ClaimId> {
        lock(&self.open).keys().copied().collect()
    }
}

/// A panic while one of these was locked left it whole: each change is one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use task_engine_model::TaskId;

    #[test]
    fn a_claim_is_known_from_before_it_is_asked_for_until_all_is_recorded() {
        let claims = Claims::default();
        let id = ClaimId(7);
        claims.ask(id);
        assert!(claims.known().contains(&id));
        claims.got(id, 2);
        claims.recorded([id].into_iter());
        assert!(claims.known().contains(&id));
        claims.recorded([id].into_iter());
        assert!(claims.known().is_empty());
        assert_eq!(claims.take_finished(), [id]);
        assert!(claims.take_finished().is_empty());
    }

    #[test]
    fn the_first_cause_stays() {
        let running = Running::default();
        let id = AttemptId { task_id: TaskId(1), attempt: 1 };
        let token = CancellationToken::new();
        running.begin(id, token.clone());
        assert!(running.cancel(id, Cause::Requested));
        running.close(Cause::EngineStopped);
        assert!(token.is_cancelled());
        assert_eq!(running.end(id), Some(Cause::Requested));
        let late = CancellationToken::new();
        running.begin(id, late.clone());
        assert!(late.is_cancelled(), "it began when all was over");
        assert_eq!(running.end(id), Some(Cause::EngineStopped));
        assert!(!running.cancel(id, Cause::Requested));
    }
}
