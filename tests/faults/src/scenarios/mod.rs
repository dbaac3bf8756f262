//! One function for each fault. It injects the fault, heals it, and checks the promises.

pub mod clocks;
pub mod deaths;
pub mod durable;
pub mod files;
pub mod flows;
pub mod limits;
pub mod network;
pub mod operators;
pub mod poison;
pub mod poolers;
pub mod servers;
pub mod versions;
