//! The violations that `OperatorStore::verify` finds.

use std::fmt;

use serde::Serialize;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which invariant.
    pub kind: ViolationKind,
    /// The violation for people, with the task.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $token:literal,)*) => {
        /// The invariants that `verify` checks: a closed list.
        ///
        /// A store that cannot break one does not check it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ViolationKind { $($(#[$doc])* $name,)* }

        task_engine_core::enum_tokens!(ViolationKind { $($name = $token),* });
    };
}

kinds! {
    /// The database file is damaged.
    DamagedFile "damaged_file",
    /// A task neither waits, nor is held, nor has ended.
    TaskLost "task_lost",
    /// A task waits and is held, or is held twice.
    TaskInTwoStates "task_in_two_states",
    /// A task waits, is held, or has ended attempts, steps, signals or children, but was not
    /// created.
    TaskNotCreated "task_not_created",
    /// A suspended task waits on, although what it waits for happened more than a minute ago.
    TaskNotResumed "task_not_resumed",
    /// A task waits or is held with the number of an attempt that has ended.
    AttemptReused "attempt_reused",
    /// A task continued after it had succeeded.
    ContinuedAfterSuccess "continued_after_success",
    /// The end of an attempt contradicts itself.
    IncoherentEnd "incoherent_end",
    /// A claim belongs to an unknown instance.
    UnknownInstance "unknown_instance",
    /// Progress is stored for an attempt that is neither held nor ended.
    ReportWithoutAttempt "report_without_attempt",
    /// A log line has a number that was not used.
    LogLineOutOfRange "log_line_out_of_range",
    /// A cancel request is over, but its attempt has not ended.
    CancellationWithoutEnd "cancellation_without_end",
    /// A unique key belongs to a task that does not have it.
    UniqueKeyMismatch "unique_key_mismatch",
    /// A fired slot has no schedule, or would fire again.
    SlotMismatch "slot_mismatch",
    /// A task waits for tasks that it depends on, but looks at none of them.
    BlockedRowInvalid "blocked_row_invalid",
    /// A task waits in the lane of its keys, but in a wrong queue or with wrong keys.
    LimitedRowInvalid "limited_row_invalid",
    /// An attempt runs, but does not hold the keys of its limits.
    LimitNotCounted "limit_not_counted",
    /// A key has two newest rows.
    LimitKeyTwice "limit_key_twice",
    /// A stored value cannot be read.
    UnreadableValue "unreadable_value",
    /// A time is outside the calendar.
    TimeOutOfRange "time_out_of_range",
}

impl ViolationKind {
    /// Returns a violation of this kind.
    pub fn violation(self, message: impl Into<String>) -> Violation {
        Violation { kind: self, message: message.into() }
    }
}

impl Serialize for ViolationKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
