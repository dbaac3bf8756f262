//! Identifiers of claims.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::instance::InstanceId;

/// One batch of tasks that an engine holds.
///
/// The engine chooses the id, so that it knows its own claims even when the reply of the store was
/// lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub i64);

/// Generates the ids of an engine's claims: the instance id in the upper bits, so that no two
/// engines choose the same one.
///
/// Enough for 8 million instances of 34 years each at a thousand claims a second.
#[derive(Debug)]
pub struct ClaimIds {
    last: AtomicI64,
}

impl ClaimIds {
    /// Starts at the first id of this instance.
    #[must_use]
    pub fn new(instance: InstanceId) -> Self {
        Self { last: AtomicI64::new(instance.0 << 40) }
    }

    /// Returns an unused id.
    ///
    /// All claimers of an engine share one generator.
    pub fn take(&self) -> ClaimId {
        ClaimId(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
