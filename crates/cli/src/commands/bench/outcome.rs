//! The outcome of a bench: what is printed, saved and compared.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::baseline::Comparison;
use super::measure::{Measure, Take, median};
use super::options::{Scenario, Settings};

/// Raised when a saved outcome can no longer be read.
pub(super) const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) format: u32,
    pub(super) version: String,
    pub(super) database: String,
    pub(super) measured_at: Timestamp,
    pub(super) cores: usize,
    /// How many others were seen at work on the same server: their costs are
    /// in the figures.
    pub(super) strangers: i64,
    pub(super) settings: Settings,
    pub(super) scenarios: Vec<ScenarioOutcome>,
    /// With what was measured before, if there was something to compare with.
    #[serde(default, skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub(super) comparison: Option<Comparison>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ScenarioOutcome {
    pub(super) name: Scenario,
    /// Null: it could not be measured here.
    pub(super) measures: BTreeMap<Measure, Option<Spread>>,
    /// One line a repeat: seconds since its beginning, tasks a second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) rate_over_time: Vec<Vec<(f64, f64)>>,
    /// Of all repeats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) latencies_ms: Vec<f64>,
}

/// One figure over all repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// In the order in which they were measured.
    pub(super) values: Vec<f64>,
}

/// What was taken, before it is summed up.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) takes: Vec<(Scenario, Vec<Take>)>,
    pub(super) strangers: i64,
}

impl Outcome {
    pub(super) fn new(database: String, settings: Settings, measured: Measured) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            database,
            measured_at: Timestamp::now(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            strangers: measured.strangers,
            settings,
            scenarios: measured
                .takes
                .into_iter()
                .map(|(name, takes)| ScenarioOutcome::new(name, takes))
                .collect(),
            comparison: None,
        }
    }

    pub(super) fn scenario(&self, name: Scenario) -> Option<&ScenarioOutcome> {
        self.scenarios.iter().find(|scenario| scenario.name == name)
    }
}

impl ScenarioOutcome {
    fn new(name: Scenario, takes: Vec<Take>) -> Self {
        let mut values: BTreeMap<Measure, Vec<f64>> = BTreeMap::new();
        let (mut rate_over_time, mut latencies_ms) = (Vec::new(), Vec::new());
        for take in takes {
            for (measure, value) in take.values {
                values.entry(measure).or_default().extend(value);
            }
            if !take.rate_over_time.is_empty() {
                rate_over_time.push(take.rate_over_time);
            }
            latencies_ms.extend(take.latencies_ms);
        }
        let measures =
            values.into_iter().map(|(measure, values)| (measure, Spread::of(values))).collect();
        Self { name, measures, rate_over_time, latencies_ms }
    }
}

impl Spread {
    fn of(values: Vec<f64>) -> Option<Self> {
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
    fn repeats_become_one_figure_and_what_is_missing_stays_so() {
        let take = |rate: f64| {
            Take::default()
                .with(Measure::TasksPerSec, Some(rate))
                .with(Measure::WalBytesPerTask, None)
        };
        let outcome =
            ScenarioOutcome::new(Scenario::Drain, vec![take(10.0), take(30.0), take(20.0)]);
        let rate = outcome.measures[&Measure::TasksPerSec].clone().unwrap();
        assert_eq!((rate.median, rate.min, rate.max), (20.0, 10.0, 30.0));
        assert_eq!(rate.values, [10.0, 30.0, 20.0]);
        assert_eq!(outcome.measures[&Measure::WalBytesPerTask], None);
        assert!(!outcome.measures.contains_key(&Measure::DeadRowsPerTask));
    }
}
