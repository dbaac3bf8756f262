//! Detects that the server has lost confirmed transactions: an asynchronous standby
//! took over, or a backup was restored. The server reports no error, but its log ends
//! earlier or is on another timeline.

use std::sync::{Mutex, PoisonError};

/// How far the log of the server was, at the last check.
#[derive(Debug, Default)]
pub(crate) struct WalWatch(Mutex<Option<WalPosition>>);

/// A position in the server's write-ahead log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalPosition {
    /// Changes whenever a standby takes over.
    timeline: u32,
    /// Bytes that were ever written.
    bytes: i64,
}

/// How the log has changed since the last check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WalChange {
    AsBefore,
    /// Another server took over. It may not have all transactions.
    TakenOver,
    /// The log is this many bytes shorter.
    WentBack(i64),
}

impl WalPosition {
    /// From the name of the current log file and the bytes written.
    pub(crate) fn of(file: &str, bytes: i64) -> Option<Self> {
        let timeline = u32::from_str_radix(file.get(..8)?, 16).ok()?;
        Some(Self { timeline, bytes })
    }

    fn after(self, before: Option<Self>) -> WalChange {
        match before {
            Some(before) if self.bytes < before.bytes => {
                WalChange::WentBack(before.bytes - self.bytes)
            }
            Some(before) if self.timeline != before.timeline => WalChange::TakenOver,
            _ => WalChange::AsBefore,
        }
    }
}

impl WalWatch {
    /// Logs a warning or an error if confirmed transactions may be lost.
    pub(crate) fn check(&self, now: Option<WalPosition>) {
        let Some(now) = now else { return };
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        match now.after(before) {
            WalChange::AsBefore => {}
            WalChange::TakenOver => tracing::warn!(
                "a standby of PostgreSQL has taken over (timeline {}); if it was not synchronous, tasks that were confirmed shortly before may be lost",
                now.timeline
            ),
            WalChange::WentBack(bytes) => tracing::error!(
                "PostgreSQL has lost the last {bytes} bytes of its log: a standby that was behind took over, or a backup was restored; tasks and results that were confirmed are lost with them"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_changes_are_detected() {
        let at = |file: &str, bytes| WalPosition::of(file, bytes).unwrap();
        let before = at("000000010000000000000003", 100);
        for (now, seen) in [
            (before, WalChange::AsBefore),
            (at("000000010000000000000004", 200), WalChange::AsBefore),
            (at("000000020000000000000004", 200), WalChange::TakenOver),
            (at("000000020000000000000003", 60), WalChange::WentBack(40)),
            (at("000000010000000000000003", 60), WalChange::WentBack(40)),
        ] {
            assert_eq!(now.after(Some(before)), seen, "{now:?}");
        }
        assert_eq!(before.after(None), WalChange::AsBefore);
        assert_eq!(WalPosition::of("", 1), None);
        assert_eq!(WalPosition::of("zzzzzzzz00000000", 1), None);
    }
}
