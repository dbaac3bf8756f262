//! The claims that an engine holds.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use task_engine_core::claim::ClaimId;

use crate::running::lock;

/// The claims that this engine knows. The reply of a claim that only the store
/// knows was lost, and its tasks are reclaimed.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// How many attempts of each claim have not been recorded. A claim is known
    /// before its request is sent.
    open: Mutex<HashMap<ClaimId, usize>>,
    /// Claims whose attempts are all recorded.
    finished: Mutex<Vec<ClaimId>>,
}

impl Claims {
    pub(crate) fn requested(&self, id: ClaimId) {
        lock(&self.open).insert(id, 0);
    }

    pub(crate) fn received(&self, id: ClaimId, attempts: usize) {
        if attempts > 0 {
            lock(&self.open).insert(id, attempts);
        } else {
            lock(&self.open).remove(&id);
        }
    }

    /// The claim may exist in the store, and no longer here.
    pub(crate) fn reply_lost(&self, id: ClaimId) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_is_known_until_recorded() {
        let claims = Claims::default();
        let id = ClaimId(7);
        claims.requested(id);
        assert!(claims.known().contains(&id));
        claims.received(id, 2);
        claims.recorded([id].into_iter());
        assert!(claims.known().contains(&id));
        claims.recorded([id].into_iter());
        assert!(claims.known().is_empty());
        assert_eq!(claims.take_finished(), [id]);
        assert!(claims.take_finished().is_empty());
    }
}
