//! One function a fault. Each injects it, heals it, and lets the arena make the
//! account.

pub mod clocks;
pub mod deaths;
pub mod files;
pub mod network;
pub mod operators;
pub mod poison;
pub mod poolers;
pub mod servers;
pub mod versions;
