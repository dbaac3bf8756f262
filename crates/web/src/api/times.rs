//! Times and durations in requests.

pub(super) use task_engine_core::parse::duration_with_unit as duration;
pub(super) use task_engine_operations::definition::time;
