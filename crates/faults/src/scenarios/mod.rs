//! One function a fault. Each injects it, heals it, and lets the arena make the
//! account.

pub mod deaths;
pub mod network;
pub mod servers;
