//! Rollups as the steps of a chart.

use std::time::Duration;

use jiff::Timestamp;
use task_engine_store::rollup::{ClassTotal, RollupRow, TimeHistogram};

use crate::cache::Span;

/// All steps up to now, also those without an ended attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) steps: Vec<SeriesStep>,
    /// The busiest first.
    pub(crate) classes: Vec<ClassTotal>,
}

/// The attempts that ended within one step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeriesStep {
    pub(crate) at: Timestamp,
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    pub(crate) other: u64,
    pub(crate) run: TimeHistogram,
    pub(crate) wait: TimeHistogram,
}

impl SeriesStep {
    pub(crate) fn ended(&self) -> u64 {
        self.ok + self.failed + self.other
    }
}

impl Series {
    pub(crate) fn of(rows: &[RollupRow], now: Timestamp, over: Span) -> Self {
        let mut steps = empty_steps(now, over);
        for row in rows {
            // Rows outside come from a clock that was changed.
            if let Ok(place) = steps.binary_search_by_key(&row.at, |step| step.at) {
                let step = &mut steps[place];
                step.ok += row.ok;
                step.failed += row.failed;
                step.other += row.other;
                step.run.merge(&row.run);
                step.wait.merge(&row.wait);
            }
        }
        Self { steps, classes: ClassTotal::sum(rows) }
    }

    pub(crate) fn ended(&self) -> u64 {
        self.steps.iter().map(SeriesStep::ended).sum()
    }

    /// Successful attempts per second over the last few steps; `None` if there
    /// are none.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn ok_per_sec(&self, now: Timestamp) -> Option<f64> {
        const STEPS: usize = 6;
        let recent = &self.steps[self.steps.len().saturating_sub(STEPS)..];
        let secs = now.duration_since(recent.first()?.at).as_secs_f64().max(1.0);
        let ok: u64 = recent.iter().map(|step| step.ok).sum();
        (ok > 0).then(|| ok as f64 / secs)
    }
}

fn empty_steps(now: Timestamp, over: Span) -> Vec<SeriesStep> {
    let secs = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let step = secs(over.step());
    let begin = (now.as_second() - secs(over.over())).div_euclid(step) * step;
    let at = |second| Timestamp::from_second(second).ok();
    let starts = (0..).map(|n| begin + n * step).take_while(|second| *second <= now.as_second());
    let empty = |at| SeriesStep {
        at,
        ok: 0,
        failed: 0,
        other: 0,
        run: TimeHistogram::default(),
        wait: TimeHistogram::default(),
    };
    starts.filter_map(at).map(empty).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at: &str, class: &str, ok: u64, failed: u64) -> RollupRow {
        let mut run = TimeHistogram::default();
        run.counts[5] = ok + failed;
        let wait = run;
        let at = at.parse().unwrap();
        RollupRow { at, class: class.into(), ok, failed, other: 0, run_secs_sum: 0.0, run, wait }
    }

    #[test]
    fn steps_sum_their_classes() {
        let now: Timestamp = "2026-11-16T04:00:30Z".parse().unwrap();
        let rows = [
            row("2026-11-16T03:00:00Z", "a", 1, 0),
            row("2026-11-16T04:00:00Z", "a", 2, 1),
            row("2026-11-16T04:00:00Z", "b", 10, 0),
            row("2026-11-16T09:00:00Z", "b", 1, 0),
        ];
        let series = Series::of(&rows, now, Span::Hour);
        assert_eq!(series.steps.len(), 61);
        assert_eq!((series.steps[0].ok, series.steps[1].ok), (1, 0));
        let last = series.steps.last().unwrap();
        assert_eq!((last.ok, last.failed, last.run.counts[5]), (12, 1, 13));
        let classes: Vec<_> = series.classes.iter().map(|class| class.class.as_str()).collect();
        assert_eq!(classes, ["b", "a"]);
        assert_eq!(Series::of(&[], now, Span::Day).steps.len(), 97);
        assert_eq!(Series::of(&[], now, Span::Day).ok_per_sec(now), None);
        let rate = series.ok_per_sec(now).unwrap();
        assert!((rate - 12.0 / 330.0).abs() < 1e-9, "{rate}");
    }
}
