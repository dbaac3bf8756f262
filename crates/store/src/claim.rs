//! Claims: how an engine takes tasks.

use std::fmt;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimId;
use task_engine_core::json::Json;
use task_engine_core::limit::LaneKey;
use task_engine_core::secret;

use crate::contract::StoreFuture;

/// Claims tasks for one engine, or for one pool of its workers.
pub trait Claimer: Send {
    /// Takes up to `limit` due tasks, in the order of priority, time and id, if
    /// the engine's session has not ended ([`StoreError::InstanceOver`](crate::StoreError::InstanceOver)).
    fn claim(&mut self, id: ClaimId, limit: usize) -> StoreFuture<'_, Claim>;

    /// Invalidates what is cached about the queue: it may have changed.
    fn invalidate(&mut self);

    /// Attempts with limits have ended: keys may be free.
    ///
    /// The queue has not changed.
    fn keys_freed(&mut self) {}
}

/// The reply to a claim.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The tasks, now held under the claim's id.
    pub tasks: Vec<ClaimedTask>,
    /// Whether more is due.
    pub rest: ClaimRest,
}

/// A task in an engine's hands.
#[derive(Clone)]
pub struct ClaimedTask {
    /// The attempt that starts with this claim.
    pub id: AttemptId,
    /// Its retry number.
    pub retry_number: u32,
    /// The class.
    pub class: String,
    /// The parameters.
    pub parameters: Json,
    /// The context.
    pub context: Json,
    /// The queue.
    pub queue: String,
    /// The priority.
    pub priority: i32,
    /// From when on it could run.
    pub due_at: Timestamp,
    /// Why the row of the task cannot be read, if it cannot.
    ///
    /// Such a task is not executed: the engine ends it as failed, with this reason.
    pub unreadable: Option<String>,
    /// Its limits, if it has some.
    pub limited: Option<Box<LimitedStart>>,
}

/// The effect of limits on a claimed task.
#[derive(Debug, Clone)]
pub struct LimitedStart {
    /// Its limits with their keys.
    pub lane_key: LaneKey,
    /// It must start before this time, or be released: a rate counts its start up to then.
    pub start_before: Option<Instant>,
}

impl ClaimedTask {
    /// Sets the parameters and the context, as they are stored.
    ///
    /// If they are out of the limits of [`Json`], or the number of the attempt is, the task is
    /// [`unreadable`](Self::unreadable).
    #[must_use]
    pub fn with_stored_json(mut self, parameters: Vec<u8>, context: Vec<u8>) -> Self {
        let read = |what: &str, stored: Vec<u8>| {
            let text = String::from_utf8(stored).map_err(|_| "it is not UTF-8".to_owned());
            let json = text.and_then(|text| Json::parse_object(text).map_err(|e| e.to_string()));
            json.map_err(|why| format!("its {what} cannot be read: {why}"))
        };
        let attempt = self.id.attempt;
        let in_range = (1..i32::MAX).contains(&attempt);
        let numbered = in_range
            .then_some(())
            .ok_or_else(|| format!("its attempt has the number {attempt}, which is out of range"));
        let read = numbered
            .and_then(|()| Ok((read("parameters", parameters)?, read("context", context)?)));
        match read {
            Ok((parameters, context)) => (self.parameters, self.context) = (parameters, context),
            Err(why) => self.unreadable = Some(why),
        }
        self
    }
}

/// Without its secrets.
impl fmt::Debug for ClaimedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimedTask")
            .field("id", &self.id)
            .field("retry_number", &self.retry_number)
            .field("class", &self.class)
            .field("parameters", &secret::redacted(&self.parameters, &self.context))
            .field("context", &self.context)
            .field("queue", &self.queue)
            .field("priority", &self.priority)
            .field("due_at", &self.due_at)
            .field("unreadable", &self.unreadable)
            .field("limited", &self.limited)
            .finish()
    }
}

/// The answer to whether more tasks are due after a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimRest {
    /// More may be due: ask again as soon as a worker is free.
    More,
    /// Something may be due, but is locked by another session, or costly to find: ask
    /// again soon, not at once.
    Contended,
    /// Nothing else is due.
    ///
    /// The next task is due after this time, if there is one.
    Nothing {
        /// Until the next scheduled task.
        next_in: Option<Duration>,
    },
}
