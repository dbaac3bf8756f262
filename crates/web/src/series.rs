//! What engines have counted, step by step, ready to be drawn.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use task_engine_model::figures::{BOUNDS_MS, FigureRow, Histogram};
use task_engine_model::words::span;

use crate::glance::Span;

/// All steps from the first to now, also those in which nothing ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) steps: Vec<Step>,
    /// The busiest first.
    pub(crate) classes: Vec<ClassSum>,
}

/// What ended within one step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) at: Timestamp,
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    pub(crate) other: u64,
    pub(crate) run: Histogram,
    pub(crate) wait: Histogram,
}

/// What ended of one class within all of the time.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ClassSum {
    /// Empty for all that are not told apart.
    pub(crate) class: String,
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    pub(crate) other: u64,
    pub(crate) run: Histogram,
}

impl Step {
    pub(crate) fn ended(&self) -> u64 {
        self.ok + self.failed + self.other
    }
}

impl ClassSum {
    pub(crate) fn ended(&self) -> u64 {
        self.ok + self.failed + self.other
    }
}

impl Series {
    pub(crate) fn of(rows: &[FigureRow], now: Timestamp, over: Span) -> Self {
        let mut steps = empty_steps(now, over);
        let mut classes: BTreeMap<&str, ClassSum> = BTreeMap::new();
        for row in rows {
            // A row of before or after is that of a clock that was put right.
            if let Ok(place) = steps.binary_search_by_key(&row.at, |step| step.at) {
                let step = &mut steps[place];
                step.ok += row.ok;
                step.failed += row.failed;
                step.other += row.other;
                add(&mut step.run, &row.run);
                add(&mut step.wait, &row.wait);
            }
            let class = classes.entry(&row.class).or_default();
            row.class.clone_into(&mut class.class);
            class.ok += row.ok;
            class.failed += row.failed;
            class.other += row.other;
            add(&mut class.run, &row.run);
        }
        let mut classes: Vec<_> = classes.into_values().collect();
        classes.sort_by_key(|class| std::cmp::Reverse(class.ended()));
        Self { steps, classes }
    }

    pub(crate) fn ended(&self) -> u64 {
        self.steps.iter().map(Step::ended).sum()
    }

    /// How many attempts did their work in a second, over the last few steps;
    /// `None` if none did.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn ok_per_sec(&self, now: Timestamp) -> Option<f64> {
        const STEPS: usize = 6;
        let lately = &self.steps[self.steps.len().saturating_sub(STEPS)..];
        let secs = now.duration_since(lately.first()?.at).as_secs_f64().max(1.0);
        let ok: u64 = lately.iter().map(|step| step.ok).sum();
        (ok > 0).then(|| ok as f64 / secs)
    }
}

fn empty_steps(now: Timestamp, over: Span) -> Vec<Step> {
    let secs = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let step = secs(over.step());
    let begin = (now.as_second() - secs(over.over())).div_euclid(step) * step;
    let at = |second| Timestamp::from_second(second).ok();
    let starts = (0..).map(|n| begin + n * step).take_while(|second| *second <= now.as_second());
    let empty = |at| Step {
        at,
        ok: 0,
        failed: 0,
        other: 0,
        run: Histogram::default(),
        wait: Histogram::default(),
    };
    starts.filter_map(at).map(empty).collect()
}

fn add(all: &mut Histogram, one: &Histogram) {
    for (sum, number) in all.iter_mut().zip(one) {
        *sum += number;
    }
}

/// About the time that so many of a hundred do not exceed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Quantile {
    pub(crate) secs: f64,
    /// It is longer than this: the last bucket has no end.
    pub(crate) and_more: bool,
}

impl Quantile {
    pub(crate) fn of(times: &Histogram, percent: u64) -> Option<Self> {
        let all: u64 = times.iter().sum();
        let wanted = u128::from(all) * u128::from(percent);
        let mut below = 0_u64;
        for (n, number) in times.iter().enumerate() {
            let until = below + number;
            if *number > 0 && u128::from(until) * 100 >= wanted {
                let from_ms = n.checked_sub(1).map_or(0, |before| BOUNDS_MS[before]);
                return Some(match BOUNDS_MS.get(n) {
                    None => Self { secs: ms(from_ms), and_more: true },
                    Some(to_ms) => Self {
                        secs: between(from_ms, *to_ms, below, *number, wanted),
                        and_more: false,
                    },
                });
            }
            below = until;
        }
        None
    }

    pub(crate) fn words(self) -> String {
        let long = span(Duration::try_from_secs_f64(self.secs).unwrap_or_default());
        if self.and_more { format!("over {long}") } else { long }
    }
}

/// Within a bucket, as if its times were spread evenly.
#[allow(clippy::cast_precision_loss)]
fn between(from_ms: u64, to_ms: u64, below: u64, number: u64, wanted: u128) -> f64 {
    let share = ((wanted as f64 / 100.0 - below as f64) / number as f64).clamp(0.0, 1.0);
    ms(from_ms) + (ms(to_ms) - ms(from_ms)) * share
}

#[allow(clippy::cast_precision_loss)]
fn ms(time: u64) -> f64 {
    time as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at: &str, class: &str, ok: u64, failed: u64) -> FigureRow {
        let mut run = Histogram::default();
        run[5] = ok + failed;
        let wait = run;
        let at = at.parse().unwrap();
        FigureRow { at, class: class.into(), ok, failed, other: 0, run_secs_sum: 0.0, run, wait }
    }

    #[test]
    fn every_step_is_there_and_has_the_sum_of_its_classes() {
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
        assert_eq!((last.ok, last.failed, last.run[5]), (12, 1, 13));
        let classes: Vec<_> = series.classes.iter().map(|class| class.class.as_str()).collect();
        assert_eq!(classes, ["b", "a"]);
        assert_eq!(Series::of(&[], now, Span::Day).steps.len(), 97);
        assert_eq!(Series::of(&[], now, Span::Day).ok_per_sec(now), None);
        let rate = series.ok_per_sec(now).unwrap();
        assert!((rate - 12.0 / 330.0).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn quantiles_lie_in_their_bucket() {
        let of = |pairs: &[(usize, u64)], percent| {
            let mut times = Histogram::default();
            for (bucket, number) in pairs {
                times[*bucket] = *number;
            }
            Quantile::of(&times, percent)
        };
        assert_eq!(of(&[], 50), None);
        // A hundred between 100 and 300 ms: half of them below 200.
        let half = of(&[(5, 100)], 50).unwrap();
        assert!((half.secs - 0.2).abs() < 1e-9 && !half.and_more, "{half:?}");
        let late = of(&[(5, 90), (9, 10)], 95).unwrap();
        assert!((10.0..60.0).contains(&late.secs), "{late:?}");
        assert_eq!(of(&[(11, 1)], 50).unwrap().words(), "over 10 min");
        let huge = of(&[(0, u64::MAX / 4), (10, u64::MAX / 4)], 95).unwrap();
        assert!(huge.secs.is_finite() && huge.secs <= 600.0, "{huge:?}");
    }
}
