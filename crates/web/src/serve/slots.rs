//! Slots for connections. A full table evicts an idle connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::session::network;

pub(super) struct ConnectionSlots {
    max: usize,
    taken: Mutex<SlotTable>,
    freed: Notify,
}

#[derive(Default)]
struct SlotTable {
    next_id: u64,
    by_id: HashMap<u64, SlotState>,
}

struct SlotState {
    network: IpAddr,
    /// Since when the client has neither sent nor read anything. `None` while a
    /// request is processed.
    idle_since: Option<Instant>,
    evicted: CancellationToken,
}

/// A slot; freed on drop.
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    id: u64,
    evicted: CancellationToken,
}

impl ConnectionSlots {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default(), freed: Notify::new() })
    }

    /// A free slot, or that of an idle connection, which is closed. Waits if all
    /// connections are busy.
    pub(super) async fn take(self: &Arc<Self>, from: IpAddr) -> ConnectionSlot {
        loop {
            let freed = self.freed.notified();
            if let Some(slot) = self.try_take(from) {
                return slot;
            }
            freed.await;
        }
    }

    fn try_take(self: &Arc<Self>, from: IpAddr) -> Option<ConnectionSlot> {
        let mut taken = self.lock();
        if taken.by_id.len() >= self.max {
            let victim = taken.victim()?;
            if let Some(entry) = taken.by_id.remove(&victim) {
                entry.evicted.cancel();
            }
        }
        let (id, evicted) = (taken.next_id, CancellationToken::new());
        taken.next_id += 1;
        let entry = SlotState {
            network: network(from),
            idle_since: Some(Instant::now()),
            evicted: evicted.clone(),
        };
        taken.by_id.insert(id, entry);
        drop(taken);
        Some(ConnectionSlot { slots: Arc::clone(self), id, evicted })
    }

    fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotTable {
    /// The longest idle connection of the client with the most connections: a single
    /// client cannot displace the others.
    fn victim(&self) -> Option<u64> {
        let mut of_network: HashMap<IpAddr, usize> = HashMap::new();
        for entry in self.by_id.values() {
            *of_network.entry(entry.network).or_default() += 1;
        }
        let waiting = self.by_id.iter().filter_map(|(id, entry)| {
            let since = entry.idle_since?;
            Some((std::cmp::Reverse(of_network[&entry.network]), since, *id))
        });
        waiting.min().map(|(_, _, id)| id)
    }
}

impl ConnectionSlot {
    /// A request is processed: not evicted.
    pub(super) fn set_busy(&self) {
        self.set(None);
    }

    /// The client is waited for: may be evicted.
    pub(super) fn set_idle(&self) {
        self.set(Some(Instant::now()));
        self.slots.freed.notify_one();
    }

    fn set(&self, idle_since: Option<Instant>) {
        if let Some(entry) = self.slots.lock().by_id.get_mut(&self.id) {
            entry.idle_since = idle_since;
        }
    }

    /// Completes when the slot is evicted.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.lock().by_id.remove(&self.id);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn busiest_client_is_evicted_first() {
        let slots = ConnectionSlots::new(3);
        let (many, one) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let alone = slots.take(one).await;
        let (first, second) = (slots.take(many).await, slots.take(many).await);
        let next = slots.take(one).await;
        assert!(first.evicted.is_cancelled());
        assert!(!second.evicted.is_cancelled() && !alone.evicted.is_cancelled());
        drop(first);
        second.set_busy();
        next.set_busy();
        let last = slots.take(many).await;
        assert!(alone.evicted.is_cancelled(), "the only idle one");
        last.set_busy();
        let (waiting, ()) = tokio::join!(slots.take(one), async { drop(second) });
        assert!(!waiting.evicted.is_cancelled() && !next.evicted.is_cancelled());
    }
}
