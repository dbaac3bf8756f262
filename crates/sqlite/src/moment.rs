//! Times as the tables have them: whole microseconds since the Unix epoch.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use rusqlite::Connection;

#[cfg(feature = "testing")]
use crate::clock::clock_offset;

/// One moment on two clocks: the database's, which for an embedded database is the
/// machine's, and the monotonic one for durations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// The time that everything in one transaction happens at.
    pub(crate) now: i64,
    steady: Instant,
}

impl Moment {
    /// The current moment by the clock of this database.
    pub(crate) fn take(db: &Connection) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { now: micros(since_epoch) + clock_offset(db), steady: Instant::now() }
    }

    /// The time after a delay; at most the last one that can be stored.
    pub(crate) fn after(self, wait: Duration) -> i64 {
        self.now.saturating_add(micros(wait)).min(Timestamp::MAX.as_microsecond())
    }

    /// The time of an event on the steady clock.
    pub(crate) fn of(self, event: Instant) -> i64 {
        self.now - micros(self.steady.saturating_duration_since(event))
    }
}

/// Without tests, the database's clock is the machine's.
#[cfg(not(feature = "testing"))]
fn clock_offset(_: &Connection) -> i64 {
    0
}

/// A duration in whole microseconds.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A stored time. A time beyond the calendar was written by hand; the nearest one is
/// returned.
pub(crate) fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

/// How long it is from one stored time to a later one.
pub(crate) fn between(earlier: i64, later: i64) -> Duration {
    Duration::from_micros(u64::try_from(later.saturating_sub(earlier)).unwrap_or(0))
}
