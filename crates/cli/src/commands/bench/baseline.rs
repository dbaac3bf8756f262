//! Now against then.

use std::fs;
use std::path::Path;

use serde::Serialize;
use task_engine_core::display::count;

use super::measure::Measure;
use super::options::Scenario;
use super::outcome::{FORMAT, Outcome};
use crate::error::CliError;

/// Every figure that both have.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) tolerance: f64,
    /// Why the two may not be comparable at all.
    pub(super) differences: Vec<String>,
    pub(super) ratios: Vec<Ratio>,
}

#[derive(Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) scenario: Scenario,
    pub(super) measure: Measure,
    pub(super) then: f64,
    pub(super) now: f64,
    /// Above 1 it is better now, below it is worse, whichever way is better.
    pub(super) ratio: f64,
}

/// Reads what `--json` has printed.
pub(super) fn read(file: &Path) -> Result<Outcome, CliError> {
    let shown = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| CliError::Usage(format!("the baseline {shown} cannot be read: {error}")))?;
    let old: Outcome = serde_json::from_str(&text).map_err(|error| {
        CliError::Usage(format!("{shown} is not a baseline, as `bench --json` prints one: {error}"))
    })?;
    if old.format != FORMAT {
        return Err(CliError::Usage(format!(
            "the baseline {shown} is of format {}, this program knows format {FORMAT}; measure it anew",
            old.format
        )));
    }
    Ok(old)
}

impl Comparison {
    pub(super) fn new(old: &Outcome, new: &Outcome, tolerance: f64) -> Self {
        let mut ratios = Vec::new();
        for scenario in &new.scenarios {
            let Some(before) = old.scenario(scenario.name) else {
                continue;
            };
            for (measure, now) in &scenario.measures {
                let then = before.measures.get(measure).and_then(Option::as_ref);
                if let (Some(then), Some(now)) = (then, now) {
                    ratios.push(Ratio {
                        scenario: scenario.name,
                        measure: *measure,
                        then: then.median,
                        now: now.median,
                        ratio: ratio(*measure, then.median, now.median),
                    });
                }
            }
        }
        Self { tolerance, differences: differences(old, new), ratios }
    }

    pub(super) fn is_worse(&self, ratio: &Ratio) -> bool {
        ratio.ratio < self.tolerance
    }

    /// An error if something is worse than is tolerated.
    pub(super) fn verdict(&self) -> Result<(), CliError> {
        let worse: Vec<_> = self.ratios.iter().filter(|ratio| self.is_worse(ratio)).collect();
        if self.ratios.is_empty() {
            return Err(CliError::Failure(
                "the baseline has none of these scenarios, so nothing was compared".to_owned(),
            ));
        }
        if worse.is_empty() {
            return Ok(());
        }
        let list: String = worse.iter().map(|ratio| format!("\n  {}", ratio.words())).collect();
        Err(CliError::Failure(format!(
            "{} below {} × the baseline:{list}",
            count(worse.len(), "figure"),
            self.tolerance
        )))
    }
}

impl Ratio {
    fn words(&self) -> String {
        let Self { scenario, measure, then, now, ratio } = self;
        format!(
            "{} {}: {} then, {} now ({ratio:.2} ×)",
            scenario.name(),
            measure.words(),
            measure.show(*then),
            measure.show(*now)
        )
    }
}

fn ratio(measure: Measure, then: f64, now: f64) -> f64 {
    let (then, now) = (then.max(measure.floor()), now.max(measure.floor()));
    if measure.more_is_better() { now / then } else { then / now }
}

fn differences(old: &Outcome, new: &Outcome) -> Vec<String> {
    let mut all = Vec::new();
    let mut compare = |what: &str, then: String, now: String| {
        if then != now {
            all.push(format!("{what}: {then} then, {now} now"));
        }
    };
    compare("database", old.database.clone(), new.database.clone());
    compare("cores", old.cores.to_string(), new.cores.to_string());
    let settings = |outcome: &Outcome| serde_json::to_value(&outcome.settings).unwrap_or_default();
    let (then, now) = (settings(old), settings(new));
    for (name, now) in now.as_object().into_iter().flatten() {
        // More repeats make a figure steadier, not another one.
        if name != "repeats" {
            compare(name, then[name].to_string(), now.to_string());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_one_is_better_whichever_way_that_is() {
        for (measure, then, now, expected) in [
            (Measure::TasksPerSec, 1000.0, 2000.0, 2.0),
            (Measure::TasksPerSec, 1000.0, 500.0, 0.5),
            (Measure::EngineCpuUsPerTask, 10.0, 20.0, 0.5),
            (Measure::WalBytesPerTask, 800.0, 400.0, 2.0),
            // Too small to mean anything.
            (Measure::LatencyMsP50, 0.0, 0.4, 1.0),
            (Measure::DeadRowsPerTask, 0.0, 0.0, 1.0),
        ] {
            assert_eq!(ratio(measure, then, now), expected, "{measure:?}");
        }
    }
}
