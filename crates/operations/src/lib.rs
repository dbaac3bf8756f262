//! What operators do with tasks: one implementation for the command line, the pages of the
//! dashboard and the HTTP API.
//!
//! # Map
//! - [`search`], [`errors`]: finding tasks;
//! - [`stats`], [`why`]: what goes on, and why a task does not run;
//! - [`recover`]: recovery by an operator;
//! - [`secrets`]: what engines have declared as secret.

pub mod errors;
mod fingerprint;
pub mod recover;
pub mod search;
pub mod secrets;
pub mod stats;
pub mod why;
