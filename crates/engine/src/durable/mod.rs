//! Durable tasks run processes of hours or weeks, which survive crashes and deployments.
//!
//! A task becomes durable by using these calls of its [`Context`]:
//!
//! | call | what it does |
//! |---|---|
//! | [`step`](crate::Context::step) | runs code once and stores its result; later attempts get the stored result |
//! | [`step_in`](crate::Context::step_in) | records a step in a transaction of the application: effect and record commit together |
//! | [`sleep`](crate::Context::sleep), [`sleep_until`](crate::Context::sleep_until) | ends the attempt until a time by the database's clock |
//! | [`wait_for`](crate::Context::wait_for) | ends the attempt until a signal arrives |
//! | [`call`](crate::Context::call), [`call_all`](crate::Context::call_all) | creates child tasks and ends the attempt until they have ended |
//!
//! ```
//! use std::time::Duration;
//! use serde::{Deserialize, Serialize};
//! use task_engine::durable::WaitTimedOut;
//! use task_engine::{Context, Failure, Task};
//!
//! #[derive(Serialize, Deserialize, Task)]
//! struct Order { id: u64, cents: u64 }
//! # struct Shop;
//! # impl Shop {
//! #     async fn reserve(&self, _: u64) -> Result<String, Failure> { Ok("r".into()) }
//! #     async fn release(&self, _: &str) -> Result<(), Failure> { Ok(()) }
//! #     async fn ship(&self, _: &str) -> Result<String, Failure> { Ok("s".into()) }
//! # }
//!
//! async fn order(task: Order, cx: Context<Shop>) -> Result<String, Failure> {
//!     let reservation = cx.step("reserve", || cx.state().reserve(task.id)).await?;
//!     let day = Duration::from_secs(86_400);
//!     match cx.wait_for::<String>("approved", 7 * day).await {
//!         Ok(by) => cx.log(format!("approved by {by}")),
//!         Err(WaitTimedOut { .. }) => {
//!             cx.step("release", || cx.state().release(&reservation)).await?;
//!             return Ok("not approved".into());
//!         }
//!     }
//!     cx.sleep("cooling off", 3 * day).await;
//!     cx.step("ship", || cx.state().ship(&reservation)).await
//! }
//! ```
//!
//! # Rules
//! - The code between the calls may run again: in every attempt, from the beginning. Keep
//!   effects and random numbers inside steps.
//! - A step is identified by its name. A recorded step never runs again and never changes.
//! - A call that suspends the task does not return: the handler's future is dropped, or the thread
//!   of a blocking handler is unwound. The next attempt runs the handler from its beginning, with
//!   the recorded results. So no error handling of the code sees a suspension.
//! - The time limit of a class applies to each attempt, not to the time between them.
//! - Retries are counted anew after an attempt that recorded a step
//!   ([`RetryRule::restart_after_progress`](crate::RetryRule::restart_after_progress)).
//! - A task has at most 1,000 steps, whose results have at most 16 MiB together.
//!
//! [`Context`]: crate::Context

mod attempt;
mod context;
mod exit;
mod parents;
mod raw;
mod replay;
mod session;
mod transaction;
mod writer;

use std::fmt;
use std::time::Duration;

use task_engine_core::attempt::TaskError;
use task_engine_core::display::span;
use task_engine_core::step::ChildOutcome;
use task_engine_core::task::{TaskId, TaskStatus};

pub(crate) use attempt::{AttemptSteps, SuspendRequest};
pub(crate) use exit::{AttemptExit, run_until_exit};
pub(crate) use parents::EndedTasks;
pub(crate) use session::{InjectedFailures, SessionHandle};
pub(crate) use writer::write_steps;

/// The error of [`Context::wait_for`](crate::Context::wait_for) when the signal did not arrive in
/// time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitTimedOut {
    /// The signal.
    pub signal: String,
    /// How long the task waited for it.
    pub timeout: Duration,
}

impl fmt::Display for WaitTimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signal {:?} did not arrive within {}", self.signal, span(self.timeout))
    }
}

impl std::error::Error for WaitTimedOut {}

/// The error of [`Context::call`](crate::Context::call) when a child task did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildFailed {
    /// The child.
    pub task_id: TaskId,
    /// How it ended; `None` if it was removed.
    pub status: Option<TaskStatus>,
    /// Its last error.
    pub error: TaskError,
}

impl ChildFailed {
    fn of(outcome: ChildOutcome) -> Self {
        let no_error = || TaskError::new("ChildFailed", "the child has no result");
        let error = outcome.error.unwrap_or_else(no_error);
        Self { task_id: outcome.id, status: outcome.status, error }
    }
}

impl fmt::Display for ChildFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status.map_or("removed", TaskStatus::as_str);
        write!(f, "child task {} ({status}): {}", self.task_id, self.error)
    }
}

impl std::error::Error for ChildFailed {}
