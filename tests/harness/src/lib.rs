//! Real servers, poolers and processes for tests. Everything that is started here
//! ends with the test process, also when that is killed.
//!
//! # Map
//! - [`TestServer`]: a PostgreSQL server; [`TestPooler`]: a pgbouncer before it; [`connect`]: a
//!   connection to it;
//! - [`Sandbox`]: a folder and a database for the `task-engine` program;
//! - [`RunningProgram`], [`command`], [`run_to_end`]: processes;
//! - [`wait_until`]: waits for a condition; [`not_run`]: reports a skipped test.

mod client;
mod not_run;
mod pooler;
mod process;
mod sandbox;
mod server;
mod wait;

pub use client::connect;
pub use not_run::not_run;
pub use pooler::TestPooler;
pub use process::{CommandOutput, RunningProgram, command, run_to_end};
pub use sandbox::{Sandbox, WITNESS_OPTIONS, WitnessFile};
pub use server::{ServerOptions, TestServer};
pub use wait::{TIMEOUT, wait_until, wait_within};
