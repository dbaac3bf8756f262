//! The words of Task Engine as types, its decisions as pure functions, and the
//! contract that every store keeps.
//!
//! An application that only *creates* tasks needs this crate and one store:
//! describe what is stored with [`Task`], then create it through a [`Client`].
//! Nothing here knows a database driver, and nothing here runs a task.
//!
//! # Map
//! - [`task`]: what was asked for, and what is known about it;
//! - [`json`]: JSON text that every store accepts;
//! - [`retry`]: when a failed attempt is tried again;
//! - [`attempt`]: what can happen to an attempt, and what comes next;
//! - [`recovery`]: what becomes of attempts whose engine is gone;
//! - [`instance`]: engines as the database sees them, and who may use a name;
//! - [`schedule`]: regular tasks, and when they run;
//! - [`store`]: the contract;
//! - [`client`]: creation for applications.

pub mod attempt;
pub mod client;
pub mod instance;
pub mod json;
pub mod recovery;
pub mod retry;
pub mod schedule;
pub mod store;
pub mod task;

pub use attempt::{AttemptId, Ending, Next, Outcome, TaskError, transition};
pub use client::Client;
pub use instance::{InstanceId, InstanceRow, NewInstance};
pub use json::{BadJson, Json};
pub use retry::{RetryOverride, RetryRule};
pub use schedule::{Missed, Overlap, Schedule};
pub use store::{Answer, Claim, ClaimId, ClaimedTask, Claimer, Rest, Store, StoreError, WakeUp};
pub use task::{
    ClassRules, ExecutionRow, NewTask, Task, TaskDetails, TaskFilter, TaskId, TaskRow, TaskStatus,
};
