//! Real processes, networks and volumes, and faults in them.

pub mod context;
pub mod machine;
pub mod proxy;
pub mod supervisor;
pub mod usage;
