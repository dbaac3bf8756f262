//! What is measured, in which unit, and which way is better.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A figure of a scenario. Those that end in `PerTask` are costs shared out
/// over the tasks that were created or executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Measure {
    TasksPerSec,
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
}

impl Measure {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::TasksPerSec => "tasks/s",
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
        }
    }

    pub(super) fn more_is_better(self) -> bool {
        self == Self::TasksPerSec
    }

    /// Below this a difference means nothing: it is less than what the clocks
    /// and counters can tell apart.
    pub(super) fn floor(self) -> f64 {
        match self {
            Self::TasksPerSec => 1.0,
            Self::LatencyMsP50
            | Self::LatencyMsP95
            | Self::LatencyMsP99
            | Self::CallLatencyMsP50
            | Self::CallLatencyMsP99 => 0.5,
            Self::DatabaseCpuUsPerTask | Self::EngineCpuUsPerTask | Self::EngineMemoryMb => 1.0,
            Self::WalBytesPerTask => 10.0,
            Self::CommitsPerTask | Self::DeadRowsPerTask => 0.01,
            Self::IdleCommitsPerSec => 0.2,
            Self::IdleCpuPercent => 0.2,
        }
    }

    /// As many digits as are worth reading.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::TasksPerSec => thousands(value),
            Self::WalBytesPerTask => format!("{value:.0}"),
            Self::CommitsPerTask | Self::DeadRowsPerTask => format!("{value:.3}"),
            Self::LatencyMsP50
            | Self::LatencyMsP95
            | Self::LatencyMsP99
            | Self::CallLatencyMsP50
            | Self::CallLatencyMsP99
            | Self::IdleCommitsPerSec
            | Self::IdleCpuPercent => format!("{value:.2}"),
            Self::DatabaseCpuUsPerTask | Self::EngineCpuUsPerTask | Self::EngineMemoryMb => {
                format!("{value:.1}")
            }
        }
    }
}

/// What one turn of a scenario brought. A measure that is there without a
/// value could not be taken here; one that is not there does not apply.
#[derive(Debug, Default)]
pub(super) struct Take {
    pub(super) values: BTreeMap<Measure, Option<f64>>,
    /// Seconds since the beginning, and tasks a second from there on.
    pub(super) rate_over_time: Vec<(f64, f64)>,
    pub(super) latencies_ms: Vec<f64>,
}

impl Take {
    /// A scenario that cannot be had on this database.
    pub(super) fn not_to_be_had() -> Self {
        Self::default().with(Measure::TasksPerSec, None)
    }

    pub(super) fn with(mut self, measure: Measure, value: Option<f64>) -> Self {
        self.values.insert(measure, value);
        self
    }

    pub(super) fn rate(self, tasks: u64, took: Duration) -> Self {
        let secs = took.as_secs_f64();
        self.with(Measure::TasksPerSec, (secs > 0.0).then(|| tasks as f64 / secs))
    }

    pub(super) fn latencies(mut self, samples_ms: Vec<f64>) -> Self {
        for (measure, share) in [
            (Measure::LatencyMsP50, 0.50),
            (Measure::LatencyMsP95, 0.95),
            (Measure::LatencyMsP99, 0.99),
        ] {
            self = self.with(measure, percentile(&samples_ms, share));
        }
        self.latencies_ms = samples_ms;
        self
    }
}

/// The smallest value that at least this share of all does not exceed.
pub(super) fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The middle one, or the mean of the two in the middle.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[sorted.len() / 2 - 1] + upper) / 2.0 })
}

/// A whole number that can be read: `12,345`.
pub(super) fn thousands(value: f64) -> String {
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
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.50), Some(100.0));
        assert_eq!(percentile(&values, 0.99), Some(198.0));
        assert_eq!(percentile(&[7.0], 0.99), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn numbers_are_grouped() {
        for (value, shown) in [(0.4, "0"), (999.0, "999"), (1000.0, "1,000"), (1e6, "1,000,000")] {
            assert_eq!(thousands(value), shown);
        }
    }
}
