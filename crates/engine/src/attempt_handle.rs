//! What the parts of one attempt share: its identity, its session, and what its code has
//! called so far.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use task_engine_core::attempt::AttemptId;
use task_engine_core::claim::ClaimId;

use crate::complete::Completing;
use crate::durable::{AttemptExit, AttemptSteps, SessionHandle};

/// One attempt, for its [`Context`](crate::Context) and for the engine.
pub(crate) struct AttemptHandle {
    pub(crate) id: AttemptId,
    pub(crate) claim: ClaimId,
    pub(crate) worker: i32,
    /// Its code runs on a thread of its own.
    pub(crate) blocking: bool,
    pub(crate) began: Instant,
    pub(crate) session: Arc<SessionHandle>,
    pub(crate) completing: Completing,
    pub(crate) exit: AttemptExit,
    /// Created by the first durable call.
    steps: OnceLock<Box<AttemptSteps>>,
}

impl AttemptHandle {
    pub(crate) fn new(
        id: AttemptId,
        claim: ClaimId,
        worker: i32,
        blocking: bool,
        session: Arc<SessionHandle>,
    ) -> Self {
        Self {
            id,
            claim,
            worker,
            blocking,
            began: Instant::now(),
            session,
            completing: Completing::default(),
            exit: AttemptExit::default(),
            steps: OnceLock::new(),
        }
    }

    pub(crate) fn steps(&self) -> &AttemptSteps {
        self.steps.get_or_init(Box::default)
    }

    /// The steps, if the code has made a durable call.
    pub(crate) fn used_steps(&self) -> Option<&AttemptSteps> {
        self.steps.get().map(|steps| &**steps)
    }

    /// Whether this attempt has recorded a step.
    pub(crate) fn has_recorded_steps(&self) -> bool {
        self.used_steps().is_some_and(AttemptSteps::has_recorded)
    }
}

impl fmt::Debug for AttemptHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptHandle").field("id", &self.id).finish_non_exhaustive()
    }
}
