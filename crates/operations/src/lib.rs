//! The operations of operators: one implementation for the command line, the pages of the
//! dashboard and the HTTP API.
//!
//! **Applications do not add this crate**: [`task-engine`] is the crate for them. It is for
//! programs that operate tasks with an audit log, like the crates `task-engine-web` and
//! `task-engine-cli`.
//!
//! [`task-engine`]: https://docs.rs/task-engine
//!
//! # Map
//! - [`operator`]: the actor of operations, and their audit;
//! - [`report`]: the outcomes, as tokens for programs and as sentences for people;
//! - [`tasks`], [`durable`], [`queues`], [`limits`], [`schedules`], [`recover`], [`tokens`], [`prune`]: the operations;
//! - [`fields`], [`definition`]: tasks and flows in JSON;
//! - [`flows`]: flows as graphs;
//! - [`schemas`]: parameters that do not fit the schema of their class;
//! - [`search`], [`errors`]: finding tasks;
//! - [`stats`], [`why`], [`checks`]: statistics, why a task does not run, and checks of the database;
//! - [`redaction`]: how tasks with secrets are shown.

pub mod checks;
pub mod definition;
pub mod durable;
pub mod errors;
pub mod fields;
mod fingerprint;
pub mod flows;
pub mod limits;
pub mod operator;
pub mod prune;
pub mod queues;
pub mod recover;
pub mod redaction;
pub mod report;
mod rerun;
pub mod schedules;
pub mod schemas;
pub mod search;
pub mod stats;
pub mod tasks;
pub mod tokens;
pub mod why;

pub use operator::{Actor, AuditedOperation, OperationError, Operator};
pub use report::{OperationOutcome, OperationReport};
