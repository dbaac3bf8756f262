//! For [`Hook`](crate::Hook)s: what they get, and some that are there: metrics,
//! a budget of time.
//!
//! There is none for memory: it belongs to the process, and tasks that run side
//! by side in one process cannot be told apart.

mod budget;
#[cfg(feature = "metrics")]
mod metrics;

pub use crate::extensions::Extensions;
pub use crate::hook::Inner;
pub use budget::Budget;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
