//! For [`Hook`](crate::Hook)s: what they get, and the ready-made ones: metrics, and
//! a time budget.
//!
//! There is none for memory, because the memory of tasks in one process cannot be
//! measured separately.

mod budget;
#[cfg(feature = "metrics")]
mod metrics;

pub use crate::extensions::Extensions;
pub use crate::hook::Inner;
pub use budget::Budget;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
