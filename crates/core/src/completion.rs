//! The end of an attempt in a transaction of the application's own: what the
//! task did and that it is done commit together, or neither does.

use std::time::Instant;

use crate::attempt::AttemptId;
use crate::claim::ClaimId;
use crate::json::Json;

/// That an attempt has done its work, ready to be written into the transaction
/// that holds the work. A `Run` makes it; the stores' crates write it.
///
/// Whoever has one must write it or fail: the engine asks the store afterwards
/// whether it is on record, and an attempt of which it is not has failed.
#[derive(Debug, Clone)]
pub struct Completion {
    /// Which attempt.
    pub id: AttemptId,
    /// The claim that it came with.
    pub claim_id: ClaimId,
    /// The worker that runs it.
    pub worker: Option<i32>,
    /// When it began, on the engine's own steady clock.
    pub began: Instant,
    /// The result.
    pub result: Json,
    /// Where the store of its engine has its tables: [`Store::schema_name`].
    ///
    /// [`Store::schema_name`]: task_engine_store::contract::Store::schema_name
    pub schema: String,
}

/// What became of an attempt that may have completed its task by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It has, and that is on record.
    Completed,
    /// It has not, and never will: the ending that was sent is on record.
    Recorded,
    /// Somebody else had ended the attempt. What was sent is kept as evidence.
    Late,
    /// Nobody knows yet: the transaction in which it did is still open.
    Open,
}
