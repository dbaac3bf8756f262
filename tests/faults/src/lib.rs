//! Faults injected into real engines and servers, and a check that no promise is
//! broken.
//!
//! ```text
//! cargo test -p task-engine-faults --test faults            short versions of all
//! cargo test -p task-engine-faults --test faults -- F14     one fault
//! FAULTS=soak FAULT_SEED=7 FAULT_TABLE=table.md cargo test -p task-engine-faults --test faults
//! ```
//!
//! # Map
//! - [`registry`]: all faults: how they are injected, on which stores, what is checked;
//! - [`scenarios`]: one function per fault;
//! - [`run`]: runs them, and prints the table;
//! - [`check`]: the promises, from [`witness`] and [`step_witness`] (files that
//!   tasks write to), [`history`] (the store) and the confirmed ids of producers;
//! - [`harness`]: processes, the proxy, volumes, and resource usage;
//! - [`limits`]: the limits of tasks, and tasks that have them;
//! - [`engine`], [`durable`], [`producer`], [`signaller`], [`commands`]: the program
//!   `fault-engine`.

pub mod check;
pub mod commands;
pub mod durable;
pub mod engine;
pub mod harness;
pub mod history;
pub mod limits;
pub mod producer;
pub mod registry;
pub mod run;
pub mod scenarios;
pub mod signaller;
pub mod step_witness;
pub mod witness;
