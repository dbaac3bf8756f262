//! What an engine holds at this moment: its claims, and the attempts that run.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimId;
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

/// That an attempt was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CancelNotice {
    pub(crate) why: Cause,
    pub(crate) at: Instant,
}

impl CancelNotice {
    fn now(why: Cause) -> Self {
        Self { why, at: Instant::now() }
    }
}

/// The attempts that run, so that they can be told to end.
#[derive(Debug, Default)]
pub(crate) struct Running {
    attempts: Mutex<Attempts>,
}

#[derive(Debug, Default)]
struct Attempts {
    running: HashMap<AttemptId, (CancellationToken, Option<CancelNotice>)>,
    /// What the store says is to be cancelled. An attempt may be claimed, and
    /// its wish be heard of, before it begins here.
    wanted: HashSet<AttemptId>,
    /// Why every attempt is told to end, also one that is only about to begin.
    closed: Option<Cause>,
}

impl Running {
    pub(crate) fn begin(&self, id: AttemptId, token: CancellationToken) {
        let mut attempts = lock(&self.attempts);
        let wanted = attempts.wanted.contains(&id).then_some(Cause::Requested);
        let told = wanted.or(attempts.closed).map(CancelNotice::now);
        if told.is_some() {
            token.cancel();
        }
        attempts.running.insert(id, (token, told));
    }

    /// Returns how it was told to end, if it was.
    pub(crate) fn end(&self, id: AttemptId) -> Option<CancelNotice> {
        lock(&self.attempts).running.remove(&id).and_then(|(_, told)| told)
    }

    /// How an attempt was told to end, if it was.
    pub(crate) fn told(&self, id: AttemptId) -> Option<CancelNotice> {
        lock(&self.attempts).running.get(&id).and_then(|(_, told)| *told)
    }

    /// Tells these to end, and those among them that have not begun yet as soon
    /// as they do. Each call has all wishes that there are. The first cause
    /// stays. Returns those that were not told before.
    pub(crate) fn want_cancelled(&self, ids: &[AttemptId]) -> Vec<AttemptId> {
        let mut attempts = lock(&self.attempts);
        attempts.wanted = ids.iter().copied().collect();
        let mut news = Vec::new();
        for id in ids {
            if let Some((token, told @ None)) = attempts.running.get_mut(id) {
                *told = Some(CancelNotice::now(Cause::Requested));
                token.cancel();
                news.push(*id);
            }
        }
        news
    }

    /// Tells every attempt to end, now and from now on.
    pub(crate) fn close(&self, why: Cause) {
        let mut attempts = lock(&self.attempts);
        attempts.closed.get_or_insert(why);
        for (token, told) in attempts.running.values_mut() {
            told.get_or_insert(CancelNotice::now(why));
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
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use task_engine_core::task::TaskId;

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
        assert_eq!(running.want_cancelled(&[id]), [id]);
        assert_eq!(running.want_cancelled(&[id]), [], "it was told before");
        assert_eq!(running.want_cancelled(&[]), []);
        running.close(Cause::EngineStopped);
        assert!(token.is_cancelled());
        assert_eq!(running.end(id).map(|told| told.why), Some(Cause::Requested));
        let late = CancellationToken::new();
        running.begin(id, late.clone());
        assert!(late.is_cancelled(), "it began when all was over");
        assert_eq!(running.end(id).map(|told| told.why), Some(Cause::EngineStopped));
        assert_eq!(running.want_cancelled(&[id]), [], "it has ended");
    }

    #[test]
    fn a_wish_that_is_heard_of_before_its_attempt_begins_is_kept() {
        let running = Running::default();
        let id = AttemptId { task_id: TaskId(1), attempt: 1 };
        assert_eq!(running.want_cancelled(&[id]), []);
        let token = CancellationToken::new();
        running.begin(id, token.clone());
        assert!(token.is_cancelled());
        assert_eq!(running.told(id).map(|told| told.why), Some(Cause::Requested));
        let next = AttemptId { attempt: 2, ..id };
        let token = CancellationToken::new();
        running.begin(next, token.clone());
        assert!(!token.is_cancelled(), "another attempt");
    }
}
