//! Cancel requests for running attempts: how they were delivered and answered.

use std::str::FromStr;
use std::time::Instant;

use jiff::Timestamp;
use serde::Serialize;

use crate::parse_error::ParseError;

/// The reaction of the code of an attempt to a cancel request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReaction {
    /// It ended without a result.
    Acknowledged,
    /// It did not end in time, and was dropped.
    Killed,
    /// It went on and returned a result.
    Ignored,
}

enum_tokens!(CancelReaction {
    Acknowledged = "acknowledged", Killed = "killed", Ignored = "ignored",
});

impl FromStr for CancelReaction {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::from_token(text)
            .ok_or_else(|| ParseError(format!("unknown reaction to a cancel request: {text:?}")))
    }
}

/// The delivery of a cancel request to the code of an attempt, and the reaction of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelResponse {
    /// When it was delivered, on the engine's monotonic clock.
    pub delivered: Instant,
    /// How the code reacted.
    pub reaction: CancelReaction,
}

/// The state of a cancel request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CancelOutcome {
    /// The attempt still runs.
    Pending,
    /// The attempt ended before the request was delivered, or its engine died.
    Unanswered,
    /// See [`CancelReaction::Acknowledged`].
    Acknowledged,
    /// See [`CancelReaction::Killed`].
    Killed,
    /// See [`CancelReaction::Ignored`].
    Ignored,
}

enum_tokens!(CancelOutcome {
    Pending = "pending", Unanswered = "unanswered", Acknowledged = "acknowledged",
    Killed = "killed", Ignored = "ignored",
});

impl CancelOutcome {
    /// Creates the outcome for an attempt that runs or has ended, with the recorded reaction.
    #[must_use]
    pub fn of(runs: bool, reaction: Option<CancelReaction>) -> Self {
        match reaction {
            Some(CancelReaction::Acknowledged) => Self::Acknowledged,
            Some(CancelReaction::Killed) => Self::Killed,
            Some(CancelReaction::Ignored) => Self::Ignored,
            None if runs => Self::Pending,
            None => Self::Unanswered,
        }
    }
}

/// A recorded cancel request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CancelRow {
    /// When a user requested it.
    pub requested_at: Timestamp,
    /// When it was delivered to the attempt's code; known once the code has reacted.
    pub delivered_at: Option<Timestamp>,
    /// Its state.
    pub outcome: CancelOutcome,
}
