//! The end of an attempt inside a transaction of the application: the task's
//! effects and its end commit together, or neither does.

use std::time::Instant;

use crate::attempt::AttemptId;
use crate::claim::ClaimId;
use crate::json::Json;

/// The successful end of an attempt, to be written in the application's transaction.
///
/// A `Context` makes it; the stores' crates write it.
///
/// The engine asks the store afterwards whether it was committed. If not, the
/// attempt has failed.
#[derive(Debug, Clone)]
pub struct Completion {
    /// Which attempt.
    pub id: AttemptId,
    /// The claim that it belongs to.
    pub claim_id: ClaimId,
    /// The worker that runs it.
    pub worker: Option<i32>,
    /// When it began, on the engine's monotonic clock.
    pub began: Instant,
    /// The result.
    pub result: Json,
    /// Where the store of its engine has its tables: `Store::schema_name`.
    pub schema: String,
}

/// The state of an attempt that may have completed its task in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleOutcome {
    /// The completion is committed.
    Completed,
    /// It was not committed and cannot be any more: the ending that was sent is
    /// recorded.
    Recorded,
    /// The attempt had been ended before.
    ///
    /// The ending that was sent is kept as evidence.
    Late,
    /// The outcome is not known yet, because the transaction is still open.
    Open,
}
