//! The result of all repeats, as printed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::metric::{Measurement, Metric, median};
use crate::options::{BenchSettings, Scenario};

#[derive(Debug, Serialize)]
pub(crate) struct BenchReport {
    pub(crate) version: String,
    pub(crate) database: String,
    pub(crate) measured_at: Timestamp,
    pub(crate) cores: usize,
    /// Connections of other programs; their costs are part of the values.
    pub(crate) other_connections: i64,
    pub(crate) settings: BenchSettings,
    pub(crate) scenarios: Vec<ScenarioReport>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ScenarioReport {
    pub(crate) name: Scenario,
    /// Null: cannot be measured here.
    pub(crate) metrics: BTreeMap<Metric, Option<Spread>>,
    /// One list per repeat: seconds since its start, tasks per second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rate_over_time: Vec<Vec<(f64, f64)>>,
    /// Of all repeats.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) latencies_ms: Vec<f64>,
}

/// One metric over all repeats.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// In the order in which they were measured.
    pub(crate) values: Vec<f64>,
}

/// All measurements, before they are summarized.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) measurements: Vec<(Scenario, Vec<Measurement>)>,
    pub(crate) other_connections: i64,
}

impl BenchReport {
    pub(crate) fn new(database: String, settings: BenchSettings, measured: Measured) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            database,
            measured_at: Timestamp::now(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            other_connections: measured.other_connections,
            settings,
            scenarios: measured
                .measurements
                .into_iter()
                .map(|(name, measurements)| ScenarioReport::new(name, measurements))
                .collect(),
        }
    }

    pub(crate) fn scenario(&self, name: Scenario) -> Option<&ScenarioReport> {
        self.scenarios.iter().find(|scenario| scenario.name == name)
    }
}

impl ScenarioReport {
    fn new(name: Scenario, measurements: Vec<Measurement>) -> Self {
        let mut values: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
        let (mut rate_over_time, mut latencies_ms) = (Vec::new(), Vec::new());
        for measurement in measurements {
            for (metric, value) in measurement.values {
                values.entry(metric).or_default().extend(value);
            }
            if !measurement.rate_over_time.is_empty() {
                rate_over_time.push(measurement.rate_over_time);
            }
            latencies_ms.extend(measurement.latencies_ms);
        }
        let metrics =
            values.into_iter().map(|(metric, values)| (metric, Spread::of(values))).collect();
        Self { name, metrics, rate_over_time, latencies_ms }
    }
}

impl Spread {
    pub(crate) fn of(values: Vec<f64>) -> Option<Self> {
        let median = median(&values)?;
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { median, min, max, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_become_median_and_range() {
        let measurement = |rate: f64| {
            Measurement::default()
                .with(Metric::TasksPerSec, Some(rate))
                .with(Metric::WalBytesPerTask, None)
        };
        let report = ScenarioReport::new(
            Scenario::Drain,
            vec![measurement(10.0), measurement(30.0), measurement(20.0)],
        );
        let rate = report.metrics[&Metric::TasksPerSec].clone().unwrap();
        assert_eq!((rate.median, rate.min, rate.max), (20.0, 10.0, 30.0));
        assert_eq!(rate.values, [10.0, 30.0, 20.0]);
        assert_eq!(report.metrics[&Metric::WalBytesPerTask], None);
        assert!(!report.metrics.contains_key(&Metric::DeadRowsPerTask));
    }
}
