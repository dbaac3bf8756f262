//! Places for connections, and who loses theirs when there are not enough.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::session::network;

pub(super) struct Places {
    max: usize,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Default)]
struct Taken {
    next_id: u64,
    by_id: HashMap<u64, Entry>,
}

struct Entry {
    network: IpAddr,
    /// Since when the other end is waited for: to send something, or to read its
    /// answer. `None` while a request is worked on.
    waits_since: Option<Instant>,
    given_away: CancellationToken,
}

/// A place, until it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    id: u64,
    given_away: CancellationToken,
}

impl Places {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default(), freed: Notify::new() })
    }

    /// A free place; or that of a connection that is waited for, which is closed.
    /// If all of them are worked on, the next that ends.
    pub(super) async fn take(self: &Arc<Self>, from: IpAddr) -> Place {
        loop {
            let freed = self.freed.notified();
            if let Some(place) = self.try_take(from) {
                return place;
            }
            freed.await;
        }
    }

    fn try_take(self: &Arc<Self>, from: IpAddr) -> Option<Place> {
        let mut taken = self.lock();
        if taken.by_id.len() >= self.max {
            let loser = taken.loser()?;
            if let Some(entry) = taken.by_id.remove(&loser) {
                entry.given_away.cancel();
            }
        }
        let (id, given_away) = (taken.next_id, CancellationToken::new());
        taken.next_id += 1;
        let entry = Entry {
            network: network(from),
            waits_since: Some(Instant::now()),
            given_away: given_away.clone(),
        };
        taken.by_id.insert(id, entry);
        drop(taken);
        Some(Place { places: Arc::clone(self), id, given_away })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Who has the most connections loses the one that is waited for the longest:
    /// a single client cannot crowd the others out.
    fn loser(&self) -> Option<u64> {
        let mut of_network: HashMap<IpAddr, usize> = HashMap::new();
        for entry in self.by_id.values() {
            *of_network.entry(entry.network).or_default() += 1;
        }
        let waiting = self.by_id.iter().filter_map(|(id, entry)| {
            let since = entry.waits_since?;
            Some((std::cmp::Reverse(of_network[&entry.network]), since, *id))
        });
        waiting.min().map(|(_, _, id)| id)
    }
}

impl Place {
    /// A request is worked on: it is answered, whoever comes.
    pub(super) fn works(&self) {
        self.set(None);
    }

    /// The other end is waited for.
    pub(super) fn waits(&self) {
        self.set(Some(Instant::now()));
        self.places.freed.notify_one();
    }

    fn set(&self, waits_since: Option<Instant>) {
        if let Some(entry) = self.places.lock().by_id.get_mut(&self.id) {
            entry.waits_since = waits_since;
        }
    }

    /// Until somebody else has it.
    pub(super) async fn given_away(&self) {
        self.given_away.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().by_id.remove(&self.id);
        self.places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn crowding_client_loses_its_oldest() {
        let places = Places::new(3);
        let (many, one) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let alone = places.take(one).await;
        let (first, second) = (places.take(many).await, places.take(many).await);
        let next = places.take(one).await;
        assert!(first.given_away.is_cancelled());
        assert!(!second.given_away.is_cancelled() && !alone.given_away.is_cancelled());
        drop(first);
        second.works();
        next.works();
        let last = places.take(many).await;
        assert!(alone.given_away.is_cancelled(), "the only one that is waited for");
        last.works();
        let (waiting, ()) = tokio::join!(places.take(one), async { drop(second) });
        assert!(!waiting.given_away.is_cancelled() && !next.given_away.is_cancelled());
    }
}
