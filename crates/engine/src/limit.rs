//! Limits say how many attempts run at a time, how often they start, and in which order.
//!
//! They also share the workers among customers.
//!
//! A limit holds for all engines of the database.
//!
//! ```
//! use std::time::Duration;
//! use serde::{Deserialize, Serialize};
//! use task_engine::limit::{Limit, LimitOptions, Rate};
//! use task_engine::{Failure, Task, TaskEngine};
//!
//! /// Two at a time for each customer, and at most 100 starts a second for each.
//! #[derive(Serialize, Deserialize, Task)]
//! #[task(limit = 2, rate = "100/1s", key = "customer")]
//! struct Sync { customer: String }
//!
//! async fn sync(task: Sync) -> Result<(), Failure> {
//!     // The service answered 429: no task of this customer starts for 30 s.
//!     Err(Failure::rate_limited(Duration::from_secs(30)))
//! }
//!
//! # fn example(tasks: TaskEngine) -> Result<(), Box<dyn std::error::Error>> {
//! let engine = tasks
//!     .engine(())
//!     .handle(sync)
//!     .limit(Limit::of_queue("mail", "mail", LimitOptions::max(5))?)
//!     .limit(Limit::named("api", LimitOptions::max(10))?);
//! # Ok(()) }
//! ```
//!
//! | which tasks | declare it | name |
//! |---|---|---|
//! | of a class | `#[task(limit = 2)]`, [`TaskOptions::limit`] | `sync`; `sync.rate`, `sync.order`, `sync.fair` |
//! | of a queue | [`Limit::of_queue`], [`Engine::limit`](crate::Engine::limit) | yours |
//! | that name it | [`Limit::named`], [`Engine::limit`](crate::Engine::limit), [`Create::limit`](crate::Create::limit) | yours |
//!
//! - **A key** is the value of a parameter: the limit applies to each value separately, and
//!   keys get equal shares of the workers ([`LimitOptions::weight`] changes that).
//! - **A rate** counts starts in every window of its length, wherever the window begins. The
//!   start is when the code of the attempt is called, with its hooks.
//! - **In order**: tasks of a key run one at a time; a task that failed and waits for its
//!   retry, sleeps or is postponed blocks its key.
//! - A running attempt holds its keys until its end is recorded. A task that sleeps or waits
//!   for a signal holds none, unless it runs in order.
//!
//! [`TaskOptions::limit`]: crate::TaskOptions::limit

#[doc(inline)]
pub use task_engine_core::limit::{
    ClassLimit, InvalidLimit, LIMITS_MAX, Limit, LimitOptions, LimitTarget, MAX_RUNNING_MAX,
    RATE_MAX, RATE_PER_MAX, RATE_PER_MIN, Rate, WEIGHT_MAX, WEIGHTS_MAX,
};
