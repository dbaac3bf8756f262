//! What is measured, and in which unit.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// A metric of a scenario. `PerTask`: costs divided by the tasks that were created
/// or executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    TasksPerSec,
    StepsPerSec,
    /// Children, counted from the start of their parent.
    WithCreationPerSec,
    LatencyMsP50,
    LatencyMsP95,
    LatencyMsP99,
    /// The same, counted from the call that creates, not from its return.
    CallLatencyMsP50,
    CallLatencyMsP99,
    DatabaseCpuUsPerTask,
    EngineCpuUsPerTask,
    WalBytesPerTask,
    CommitsPerTask,
    DeadRowsPerTask,
    EngineMemoryMb,
    IdleCommitsPerSec,
    IdleCpuPercent,
    /// The most starts in any second.
    StartsInWindowMax,
    /// Starts, compared with those that a rate allows.
    StartsUsedPercent,
    /// Tasks of other keys that still waited at the end.
    BacklogLeft,
}

impl Metric {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::TasksPerSec => "tasks/s",
            Self::StepsPerSec => "steps/s",
            Self::WithCreationPerSec => "tasks/s with their creation",
            Self::LatencyMsP50 => "p50 ms",
            Self::LatencyMsP95 => "p95 ms",
            Self::LatencyMsP99 => "p99 ms",
            Self::CallLatencyMsP50 => "p50 ms from the call",
            Self::CallLatencyMsP99 => "p99 ms from the call",
            Self::DatabaseCpuUsPerTask => "database CPU µs/task",
            Self::EngineCpuUsPerTask => "engine CPU µs/task",
            Self::WalBytesPerTask => "WAL bytes/task",
            Self::CommitsPerTask => "commits/task",
            Self::DeadRowsPerTask => "dead rows/task",
            Self::EngineMemoryMb => "engine memory MB",
            Self::IdleCommitsPerSec => "commits/s when idle",
            Self::IdleCpuPercent => "CPU % when idle",
            Self::StartsInWindowMax => "starts in a second at most",
            Self::StartsUsedPercent => "% of the possible starts",
            Self::BacklogLeft => "tasks of other keys left",
        }
    }

    /// With significant digits only.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::TasksPerSec
            | Self::StepsPerSec
            | Self::WithCreationPerSec
            | Self::StartsInWindowMax
            | Self::BacklogLeft => thousands(value),
            Self::WalBytesPerTask => format!("{value:.0}"),
            Self::CommitsPerTask | Self::DeadRowsPerTask => format!("{value:.3}"),
            Self::LatencyMsP50
            | Self::LatencyMsP95
            | Self::LatencyMsP99
            | Self::CallLatencyMsP50
            | Self::CallLatencyMsP99
            | Self::IdleCommitsPerSec
            | Self::IdleCpuPercent => format!("{value:.2}"),
            Self::DatabaseCpuUsPerTask
            | Self::EngineCpuUsPerTask
            | Self::EngineMemoryMb
            | Self::StartsUsedPercent => format!("{value:.1}"),
        }
    }
}

/// One repeat of a scenario. A metric without a value cannot be measured here; a
/// missing metric does not apply.
#[derive(Debug, Default)]
pub(crate) struct Measurement {
    pub(crate) values: BTreeMap<Metric, Option<f64>>,
    /// Seconds since the start, and tasks per second from there on.
    pub(crate) rate_over_time: Vec<(f64, f64)>,
    pub(crate) latencies_ms: Vec<f64>,
}

impl Measurement {
    /// A scenario that this database does not support.
    pub(crate) fn unavailable() -> Self {
        Self::default().with(Metric::TasksPerSec, None)
    }

    pub(crate) fn with(mut self, metric: Metric, value: Option<f64>) -> Self {
        self.values.insert(metric, value);
        self
    }

    pub(crate) fn rate(self, tasks: u64, took: Duration) -> Self {
        let secs = took.as_secs_f64();
        self.with(Metric::TasksPerSec, (secs > 0.0).then(|| tasks as f64 / secs))
    }

    pub(crate) fn latencies(mut self, samples_ms: Vec<f64>) -> Self {
        for (metric, share) in [
            (Metric::LatencyMsP50, 0.50),
            (Metric::LatencyMsP95, 0.95),
            (Metric::LatencyMsP99, 0.99),
        ] {
            self = self.with(metric, percentile(&samples_ms, share));
        }
        self.latencies_ms = samples_ms;
        self
    }
}

/// The smallest value that at least this share of the values does not exceed.
pub(crate) fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[sorted.len() / 2 - 1] + upper) / 2.0 })
}

/// A whole number with separators: `12,345`.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_observed_values() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.50), Some(100.0));
        assert_eq!(percentile(&values, 0.99), Some(198.0));
        assert_eq!(percentile(&[7.0], 0.99), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn median_handles_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn thousands_are_separated() {
        for (value, shown) in [(0.4, "0"), (999.0, "999"), (1000.0, "1,000"), (1e6, "1,000,000")] {
            assert_eq!(thousands(value), shown);
        }
    }
}
