//! Metrics of the engine itself, with the feature `metrics`; without it, nothing.
//! The hook [`Metrics`](crate::hooks::Metrics) counts executions.
//!
//! | metric | meaning |
//! |---|---|
//! | `task_engine_claims_total` | claims that returned tasks |
//! | `task_engine_claimed_tasks` | tasks per such claim |
//! | `task_engine_recorded_tasks` | endings per write |
//! | `task_engine_recorded_steps_total` | recorded steps of durable tasks |
//! | `task_engine_suspensions_total` | suspensions until a signal or the end of children |
//! | `task_engine_wake_ups_total` | wake-ups of idle pools of workers |
//! | `task_engine_heartbeats_total` | heartbeats, by `outcome`: `ok` or `failed` |
//! | `task_engine_heartbeat_seconds` | round trip of a heartbeat |

#[cfg(feature = "metrics")]
mod imp {
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

    pub(crate) fn steps_recorded(steps: usize) {
        metrics::counter!("task_engine_recorded_steps_total").increment(steps as u64);
    }

    pub(crate) fn suspended() {
        metrics::counter!("task_engine_suspensions_total").increment(1);
    }

    pub(crate) fn woken() {
        metrics::counter!("task_engine_wake_ups_total").increment(1);
    }

    pub(crate) fn heartbeat(ok: bool, took: Duration) {
        let outcome = if ok { "ok" } else { "failed" };
        metrics::counter!("task_engine_heartbeats_total", "outcome" => outcome).increment(1);
        if ok {
            metrics::histogram!("task_engine_heartbeat_seconds").record(took);
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod imp {
    use std::time::Duration;

    pub(crate) fn claimed(_: usize) {}
    pub(crate) fn recorded(_: usize) {}
    pub(crate) fn steps_recorded(_: usize) {}
    pub(crate) fn suspended() {}
    pub(crate) fn woken() {}
    pub(crate) fn heartbeat(_: bool, _: Duration) {}
}

pub(crate) use imp::{claimed, heartbeat, recorded, steps_recorded, suspended, woken};
