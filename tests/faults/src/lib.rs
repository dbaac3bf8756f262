//! Faults, injected into real engines and real servers, and the check that
//! nothing was lost.
//!
//! ```text
//! cargo test -p task-engine-faults --test faults            short versions of all
//! cargo test -p task-engine-faults --test faults -- F14     one fault
//! FAULTS=soak FAULT_SEED=7 FAULT_TABLE=table.md cargo test -p task-engine-faults --test faults
//! ```
//!
//! # Map
//! - [`registry`]: every fault: how it is injected, on which stores, what it checks;
//! - [`scenarios`]: one function a fault;
//! - [`run`]: runs them, and prints the table;
//! - [`check`]: the promises, from [`witness`] (a file that tasks write to),
//!   [`history`] (the store) and what producers were told;
//! - [`harness`]: processes, the proxy, volumes, and what engines use meanwhile;
//! - [`engine`], [`producer`], [`orders`]: the program `fault-engine`.

pub mod check;
pub mod engine;
pub mod harness;
pub mod history;
pub mod orders;
pub mod producer;
pub mod registry;
pub mod run;
pub mod scenarios;
pub mod witness;
