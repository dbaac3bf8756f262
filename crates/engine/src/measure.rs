//! The engine's own work as metrics, with the feature `metrics`; nothing without
//! it. What tasks do is counted by the hook [`Metrics`](crate::hooks::Metrics).
//!
//! | metric | what |
//! |---|---|
//! | `task_engine_claims_total` | claims that brought tasks |
//! | `task_engine_claimed_tasks` | how many each of them brought |
//! | `task_engine_recorded_tasks` | how many endings were written at a time |
//! | `task_engine_wake_ups_total` | idle pools of workers that were woken |
//! | `task_engine_heartbeats_total` | by `outcome`: `heard` or `missed` |
//! | `task_engine_heartbeat_seconds` | how long the database took to answer one |

#[cfg(feature = "metrics")]
mod told {
    use std::time::Duration;

    #[allow(clippy::cast_precision_loss)] // A batch has thousands at the most.
    pub(crate) fn claimed(tasks: usize) {
        if tasks > 0 {
            metrics::counter!("task_engine_claims_total").increment(1);
            metrics::histogram!("task_engine_claimed_tasks").record(tasks as f64);
        }
    }

    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn recorded(tasks: usize) {
        metrics::histogram!("task_engine_recorded_tasks").record(tasks as f64);
    }

    pub(crate) fn woken() {
        metrics::counter!("task_engine_wake_ups_total").increment(1);
    }

    pub(crate) fn heartbeat(heard: bool, took: Duration) {
        let outcome = if heard { "heard" } else { "missed" };
        metrics::counter!("task_engine_heartbeats_total", "outcome" => outcome).increment(1);
        if heard {
            metrics::histogram!("task_engine_heartbeat_seconds").record(took);
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod told {
    use std::time::Duration;

    pub(crate) fn claimed(_: usize) {}
    pub(crate) fn recorded(_: usize) {}
    pub(crate) fn woken() {}
    pub(crate) fn heartbeat(_: bool, _: Duration) {}
}

pub(crate) use told::{claimed, heartbeat, recorded, woken};
