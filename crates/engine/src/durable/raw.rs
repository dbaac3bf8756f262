//! The durable calls as executables use them: with JSON, and with the end of the attempt as
//! an error. The caller ends the attempt with that error; it is a snooze if the task is
//! suspended.

use std::time::Duration;

use task_engine_core::json::Json;
use task_engine_core::step::{ChildOutcome, SignalRow, StepContent};
use task_engine_core::task::NewTask;

use super::attempt::StepState;
use crate::context::Context;
use crate::failure::Failure;

impl<S> Context<S> {
    /// Returns the name under which a step is recorded, and its result if it is recorded already.
    #[doc(hidden)]
    pub async fn begin_step_raw(&self, name: &str) -> Result<(String, Option<Json>), Failure> {
        Ok(match self.enter_step(name).await? {
            StepState::Run(name) => (name, None),
            StepState::Recorded(name, result) => (name, Some(result)),
        })
    }

    /// Records the result of a step under the name that [`begin_step_raw`](Self::begin_step_raw)
    /// returned.
    ///
    /// Returns the result that counts: another attempt may have recorded its own before.
    #[doc(hidden)]
    pub async fn end_step_raw(
        &self,
        name: &str,
        result: Json,
        lasted: Duration,
    ) -> Result<Json, Failure> {
        let stored = self.leave_step(name, result.clone(), lasted).await?;
        Ok(stored.unwrap_or(result))
    }

    /// Returns when the sleep is over.
    #[doc(hidden)]
    pub async fn sleep_raw(&self, name: &str, time: StepContent) -> Result<(), Failure> {
        self.sleep_or_suspend(name, time).await
    }

    /// Returns the signal, or the timeout.
    #[doc(hidden)]
    pub async fn wait_raw(&self, name: &str, timeout: Duration) -> Result<SignalRow, Failure> {
        self.wait_or_suspend(name, timeout).await
    }

    /// Returns how the children ended, in their order.
    #[doc(hidden)]
    pub async fn call_raw(
        &self,
        name: &str,
        children: Vec<NewTask>,
    ) -> Result<Vec<ChildOutcome>, Failure> {
        self.call_or_suspend(name, || Ok(children)).await
    }
}
