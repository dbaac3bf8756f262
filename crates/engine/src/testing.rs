//! For the tests of applications that create and run tasks (feature `testing`).
//!
//! A [`Harness`] is an engine that does nothing by itself, on a database in
//! memory. A test says what happens: [perform](Harness::perform) one task,
//! [drain](Harness::drain) all that are due, [move the clock](Harness::advance);
//! and looks at [what was created](Harness::created). Tasks go the same way as in
//! a real engine: decoded, with their hooks, their time limit, guarded against
//! panics, and recorded.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use task_engine::testing::Harness;
//! use task_engine::{Engine, Failure, Run, Task};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Register { name: String }
//! impl Task for Register { const CLASS: &'static str = "register"; }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Greet { name: String }
//! impl Task for Greet { const CLASS: &'static str = "greet"; }
//!
//! async fn register(task: Register, run: Run<()>) -> Result<usize, Failure> {
//!     if task.name.is_empty() {
//!         return Err(Failure::no_retry("nobody"));
//!     }
//!     run.log(format!("hello {}", task.name));
//!     run.client().create(Greet { name: task.name.clone() }).await?;
//!     Ok(task.name.len())
//! }
//!
//! async fn greet(_: Greet, run: Run<()>) -> Result<(), Failure> {
//!     if run.retry_number() == 0 { Err("the line is busy".into()) } else { Ok(()) }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // Give it the function with which the application makes its engine.
//! let harness = Harness::new(|store| {
//!     Engine::new(store, ()).handle(register).handle(greet)
//! }).await;
//!
//! // One task.
//! let done = harness.perform(Register { name: "Ada".into() }).await;
//! assert_eq!(done.result::<usize>(), Ok(3));
//! assert_eq!(done.log(), ["hello Ada"]);
//! harness.assert_created(&Greet { name: "Ada".into() }).await;
//!
//! let failed = harness.perform(Register { name: "".into() }).await;
//! assert_eq!(failed.error().message, "nobody");
//! assert!(!failed.will_be_retried());
//!
//! // All that wait and are due; then those that wait for a retry, too.
//! let drained = harness.drain().await;
//! assert!(drained[0].will_be_retried());
//! harness.drain_until_quiet().await.assert_all_done();
//! # }
//! ```
//!
//! Nothing here returns errors: whatever goes wrong is a panic, with a message for
//! whoever reads the failed test.
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
//! - `harness`: what a test does; `session`: one life of its engine;
//! - `executed`: what became of tasks that ran;
//! - `created`, `difference`: what was created, and how it differs from what was
//!   expected.

mod created;
mod difference;
mod executed;
mod harness;
mod session;

#[cfg(feature = "postgres")]
pub use created::created_in_postgres;
#[cfg(feature = "sqlx")]
pub use created::created_in_sqlx;
pub use created::{Created, CreatedTasks, created_in};
pub use executed::{Drained, Executed, PassedOver};
pub use harness::Harness;
