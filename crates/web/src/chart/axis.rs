//! The axes of a chart.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use task_engine_core::display::span;

/// The unit of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Number,
    Seconds,
}

/// A grid line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

/// Grid lines above zero.
const TICKS_MAX: f64 = 4.0;
/// Round durations, in seconds.
const ROUND_SECS: [f64; 16] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0,
    21_600.0, 86_400.0,
];

/// Round numbers from zero up to the largest value.
pub(super) fn ticks(largest: f64, unit: Unit) -> Vec<Tick> {
    let step = match unit {
        // Tasks are whole numbers.
        Unit::Number => decimal_step(largest / TICKS_MAX).max(1.0),
        Unit::Seconds => time_step(largest / TICKS_MAX),
    };
    let number = (largest / step).ceil().clamp(1.0, TICKS_MAX);
    let mut ticks = Vec::new();
    let mut n = 0.0;
    while n <= number {
        let at = step * n;
        let label = match unit {
            Unit::Number => short(at),
            Unit::Seconds => span(Duration::try_from_secs_f64(at).unwrap_or(Duration::MAX)),
        };
        ticks.push(Tick { at, label });
        n += 1.0;
    }
    ticks
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn decimal_step(least: f64) -> f64 {
    if least <= 0.0 || !least.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|round| round * power >= least * 0.999_999);
    round.unwrap_or(10.0) * power
}

/// A round duration, at least `least`.
fn time_step(least: f64) -> f64 {
    if least <= 0.5 {
        return decimal_step(least).max(0.001);
    }
    ROUND_SECS.into_iter().find(|round| *round >= least).unwrap_or_else(|| {
        const DAY: f64 = 86_400.0;
        decimal_step(least / DAY) * DAY
    })
}

/// `950`, `1.2 k`, `34 M`.
fn short(number: f64) -> String {
    let mut rest = number;
    for unit in ["", " k", " M", " G", " T", " P"] {
        if rest < 999.5 || unit == " P" {
            let digits = usize::from(rest < 9.95);
            let text = format!("{rest:.digits$}");
            return format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text));
        }
        rest /= 1000.0;
    }
    format!("{number:.0}")
}

/// Labels of the time axis: index and text. Every ten minutes or, over a longer
/// time, every four hours.
pub(super) fn times(times: &[Timestamp], zone: &TimeZone) -> Vec<(usize, String)> {
    let long = match (times.first(), times.last()) {
        (Some(first), Some(last)) => last.duration_since(*first).as_secs() > 2 * 3600,
        _ => return Vec::new(),
    };
    let every_minutes = if long { 240 } else { 10 };
    let mut labels = Vec::new();
    let mut before = None;
    for (n, time) in times.iter().enumerate() {
        let local = time.to_zoned(zone.clone());
        let minute = i32::from(local.hour()) * 60 + i32::from(local.minute());
        let slot = minute / every_minutes;
        // The first step may be inside its slot.
        let begins = before.map_or(minute % every_minutes == 0, |before| before != slot);
        if begins {
            labels.push((n, local.strftime("%H:%M").to_string()));
        }
        before = Some(slot);
    }
    labels
}

/// Charts do not need more precision.
#[allow(clippy::cast_precision_loss)]
pub(super) fn as_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
