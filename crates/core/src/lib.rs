//! The types of Task Engine, and its decisions as pure functions.
//!
//! **Applications do not add this crate**: [`task-engine`] exports what they need. It is for
//! authors of stores and tools. It depends on no database, clock or runtime.
//!
//! Examples for items that applications use are written with `task_engine`.
//!
//! [`task-engine`]: https://docs.rs/task-engine
//!
//! # Map
//! - [`task`], [`unique`], [`retry`], [`secret`], [`schema`], [`json`]: tasks as applications write them;
//! - [`schedule`]: recurring tasks, and when they run;
//! - [`claim`], [`attempt`], [`completion`], [`progress`], [`cancel`]: attempts, and what
//!   happens after them;
//! - [`step`]: durable tasks;
//! - [`recovery`], [`instance`], [`process`], [`queue`]: engines, and the recovery of attempts
//!   of dead ones;
//! - [`flow`], [`dependency`], [`traceparent`]: tasks that belong together;
//! - [`filter`], [`change`]: which tasks an operator selects, and what can be changed.

#[cfg(not(unix))]
compile_error!("Task Engine supports Unix systems only");

#[macro_use]
mod enum_tokens;

pub mod attempt;
pub mod cancel;
pub mod change;
pub mod claim;
pub mod completion;
#[doc(hidden)]
pub mod dependency;
#[doc(hidden)]
pub mod display;
pub mod filter;
#[doc(hidden)]
pub mod flow;
pub mod instance;
pub mod json;
#[doc(hidden)]
pub mod limit;
#[doc(hidden)]
pub mod parse;
mod parse_error;
#[doc(hidden)]
pub mod process;
pub mod progress;
pub mod queue;
pub mod recovery;
pub mod retry;
pub mod schedule;
pub mod schema;
pub mod secret;
pub mod step;
pub mod suggest;
pub mod task;
pub mod traceparent;
pub mod unique;

pub use dependency::Flow;
pub use json::{InvalidJson, Json};
pub use parse_error::ParseError;
pub use retry::{RetryOverride, RetryRule};
pub use schedule::{Missed, Overlap, Schedule};
pub use task::{NewTask, Task, TaskId, TaskOptions, TaskStatus};
pub use unique::{Creation, OnConflict, Scope, Unique};
