//! Real processes, and what is done to them.

pub mod context;
pub mod machine;
pub mod proxy;
pub mod supervisor;
pub mod usage;
