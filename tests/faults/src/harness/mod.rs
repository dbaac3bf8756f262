//! Real processes, and what is done to them.

pub mod arena;
pub mod bounds;
pub mod fleet;
pub mod machine;
pub mod proxy;
