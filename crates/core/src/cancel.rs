//! What became of a wish to cancel a running attempt.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use jiff::Timestamp;
use serde::Serialize;

use crate::parse_error::ParseError;

/// How the code of an attempt took it that it was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReaction {
    /// It ended, without having done its work.
    Acknowledged,
    /// It did not end in time, and was dropped half-way.
    Killed,
    /// It went on, and did its work in spite of it.
    Ignored,
}

impl CancelReaction {
    /// The word, as it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::Killed => "killed",
            Self::Ignored => "ignored",
        }
    }
}

impl FromStr for CancelReaction {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let all = [Self::Acknowledged, Self::Killed, Self::Ignored];
        let found = all.into_iter().find(|answer| answer.as_str() == text);
        found.ok_or_else(|| ParseError(format!("no answer to a wish to cancel: {text:?}")))
    }
}

/// The word of an engine about an attempt that it told to end, because somebody
/// wanted it cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelResponse {
    /// When it was told, on the engine's own steady clock.
    pub at: Instant,
    /// How it took it.
    pub answer: CancelReaction,
}

/// What became of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CancelOutcome {
    /// The attempt still runs.
    Pending,
    /// The attempt ended before its code could answer: it was faster than the
    /// wish, or its engine died.
    Unanswered,
    /// See [`CancelReaction::Acknowledged`].
    Acknowledged,
    /// See [`CancelReaction::Killed`].
    Killed,
    /// See [`CancelReaction::Ignored`].
    Ignored,
}

impl CancelOutcome {
    /// Of an attempt that runs or has ended, with the answer that is on record.
    #[must_use]
    pub fn of(runs: bool, answer: Option<CancelReaction>) -> Self {
        match answer {
            Some(CancelReaction::Acknowledged) => Self::Acknowledged,
            Some(CancelReaction::Killed) => Self::Killed,
            Some(CancelReaction::Ignored) => Self::Ignored,
            None if runs => Self::Pending,
            None => Self::Unanswered,
        }
    }

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Unanswered => "unanswered",
            Self::Acknowledged => CancelReaction::Acknowledged.as_str(),
            Self::Killed => CancelReaction::Killed.as_str(),
            Self::Ignored => CancelReaction::Ignored.as_str(),
        }
    }
}

impl fmt::Display for CancelOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A wish to cancel an attempt, on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CancelRow {
    /// When somebody asked for it.
    pub requested_at: Timestamp,
    /// When the attempt's code was told; known once it has answered.
    pub told_at: Option<Timestamp>,
    /// What became of it.
    pub outcome: CancelOutcome,
}
