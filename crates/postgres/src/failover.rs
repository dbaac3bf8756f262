//! Whether the server still has what it confirmed. A standby that was behind when
//! it took over, or a backup that was put in the place of the server, does not,
//! and says nothing about it: but its log ends earlier, or is on another line.

use std::sync::{Mutex, PoisonError};

/// How far the log of the server was, at the last look.
#[derive(Debug, Default)]
pub(crate) struct LogWatch(Mutex<Option<Position>>);

/// A place in the server's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// A new one begins whenever a standby takes over.
    timeline: u32,
    /// Bytes that were ever written.
    bytes: i64,
}

/// What a look tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    AsBefore,
    /// Another server took over, and may not have all transactions.
    TakenOver,
    /// So many bytes are gone.
    WentBack(i64),
}

impl Position {
    /// From the name of the file that is written to, and how far.
    pub(crate) fn of(file: &str, bytes: i64) -> Option<Self> {
        let timeline = u32::from_str_radix(file.get(..8)?, 16).ok()?;
        Some(Self { timeline, bytes })
    }

    fn after(self, before: Option<Self>) -> Seen {
        match before {
            Some(before) if self.bytes < before.bytes => Seen::WentBack(before.bytes - self.bytes),
            Some(before) if self.timeline != before.timeline => Seen::TakenOver,
            _ => Seen::AsBefore,
        }
    }
}

impl LogWatch {
    /// Takes a look, and says so if something is missing.
    pub(crate) fn look(&self, now: Option<Position>) {
        let Some(now) = now else { return };
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        match now.after(before) {
            Seen::AsBefore => {}
            Seen::TakenOver => tracing::warn!(
                "a standby of PostgreSQL has taken over (timeline {}); if it was not synchronous, tasks that were confirmed shortly before may be lost",
                now.timeline
            ),
            Seen::WentBack(bytes) => tracing::error!(
                "PostgreSQL has lost the last {bytes} bytes of its log: a standby that was behind took over, or a backup was restored; tasks and results that were confirmed are lost with them"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_look_tells() {
        let at = |file: &str, bytes| Position::of(file, bytes).unwrap();
        let before = at("000000010000000000000003", 100);
        for (now, seen) in [
            (before, Seen::AsBefore),
            (at("000000010000000000000004", 200), Seen::AsBefore),
            (at("000000020000000000000004", 200), Seen::TakenOver),
            (at("000000020000000000000003", 60), Seen::WentBack(40)),
            (at("000000010000000000000003", 60), Seen::WentBack(40)),
        ] {
            assert_eq!(now.after(Some(before)), seen, "{now:?}");
        }
        assert_eq!(before.after(None), Seen::AsBefore);
        assert_eq!(Position::of("", 1), None);
        assert_eq!(Position::of("zzzzzzzz00000000", 1), None);
    }
}
