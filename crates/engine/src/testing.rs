//! Runs tasks in the tests of an application, without a server (feature `testing`).
//!
//! A [`Harness`] is an engine that runs tasks only when the test asks for it, on an
//! in-memory database. A test can [perform](Harness::perform) one task,
//! [drain](Harness::drain) all that are due, [move the clock](Harness::advance), and
//! check [which tasks were created](Harness::created). Tasks run as in a real engine:
//! with decoding, hooks, time limit, panic handling and recording.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use task_engine::testing::Harness;
//! use task_engine::{Context, Failure, Task};
//!
//! #[derive(Serialize, Deserialize, Task)]
//! struct Register { name: String }
//!
//! #[derive(Serialize, Deserialize, Task)]
//! struct Greet { name: String }
//!
//! async fn register(task: Register, cx: Context<()>) -> Result<usize, Failure> {
//!     if task.name.is_empty() {
//!         return Err(Failure::no_retry("no name"));
//!     }
//!     cx.log(format!("hello {}", task.name));
//!     cx.create(Greet { name: task.name.clone() }).await?;
//!     Ok(task.name.len())
//! }
//!
//! async fn greet(_: Greet, cx: Context<()>) -> Result<(), Failure> {
//!     if cx.retry_number() == 0 { Err("the line is busy".into()) } else { Ok(()) }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // Give it the function with which the application makes its engine.
//! let harness = Harness::new(|tasks| tasks.engine(()).handle(register).handle(greet)).await;
//!
//! // One task.
//! let done = harness.perform(Register { name: "Ada".into() }).await;
//! assert_eq!(done.result::<usize>(), Ok(3));
//! assert_eq!(done.log(), ["hello Ada"]);
//! harness.assert_created(&Greet { name: "Ada".into() }).await;
//!
//! let failed = harness.perform(Register { name: "".into() }).await;
//! assert_eq!(failed.error().message, "no name");
//! assert!(!failed.will_be_retried());
//!
//! // All that wait and are due; then those that wait for a retry, too.
//! let drained = harness.drain().await;
//! assert!(drained[0].will_be_retried());
//! harness.drain_until_quiet().await.assert_all_done();
//! # }
//! ```
//!
//! Nothing here returns errors: a failure is a panic with a message for the reader of
//! the failed test.
//!
//! # In the application's own transactions
//! [`created_in`] (rusqlite), `created_in_postgres` and `created_in_sqlx` show what
//! a transaction has created before it commits; a test then rolls it back.
//!
//! # Time
//! Time limits and waits inside a task's code are on the machine's clock. Due
//! times, retries, schedules and leases are on the database's, which a harness on
//! SQLite can move ([`Harness::advance`]). That is a part of the feature `testing`,
//! and no program that is built without it can do so, or sees that it was done.
//! Name the feature in `[dev-dependencies]` only.
//!
//! # Map
//! - `harness`: what a test calls; `harness_session`: one session of its engine;
//! - `executed`: what became of tasks that ran;
//! - `created`, `difference`: what was created, and how it differs from what was
//!   expected.

mod created;
mod difference;
mod executed;
mod harness;
mod harness_session;

#[cfg(feature = "postgres")]
pub use created::created_in_postgres;
#[cfg(feature = "sqlx")]
pub use created::created_in_sqlx;
pub use created::{Created, CreatedTasks, created_in};
pub use executed::{Drained, Executed, PassedOver};
pub use harness::Harness;
