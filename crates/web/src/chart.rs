//! Charts as SVG: functions from numbers to markup.
//!
//! Horizontal positions are percentages and vertical ones pixels, so that a chart
//! fits any window while its labels keep their size. The labels are outside of the
//! drawing; the style sheet reserves room for them.

mod axis;
mod timeline;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};

pub(crate) use axis::Unit;
pub(crate) use timeline::{TimelineBar, timeline};

/// The height of the drawing, without its labels.
const HEIGHT: f64 = 130.0;

/// One bar, stacked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    pub(crate) at: Timestamp,
    /// From the bottom up, each with the class of its colour.
    pub(crate) parts: Vec<(&'static str, u64)>,
    pub(crate) title: String,
}

/// One step of a line chart; `None` is a gap.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    pub(crate) at: Timestamp,
    /// One value for each line.
    pub(crate) values: Vec<Option<f64>>,
    pub(crate) title: String,
}

/// Stacked bars.
pub(crate) fn bars(bars: &[Bar], zone: &TimeZone, about: &str) -> Markup {
    let sum = |bar: &Bar| bar.parts.iter().map(|(_, number)| axis::as_f64(*number)).sum();
    let top = bars.iter().map(sum).fold(0.0, f64::max);
    let ticks = axis::ticks(top, Unit::Number);
    let scale = Scale { steps: bars.len(), top: ticks.last().map_or(1.0, |tick| tick.at) };
    let times: Vec<_> = bars.iter().map(|bar| bar.at).collect();
    let inside = html! {
        @for (n, bar) in bars.iter().enumerate() {
            (step(&scale, n, &bar.title, &stack(&scale, n, bar)))
        }
    };
    frame(about, &scale, &ticks, &times, zone, &inside)
}

fn stack(scale: &Scale, n: usize, bar: &Bar) -> Markup {
    let mut below = 0.0;
    html! {
        @for (class, number) in bar.parts.iter().filter(|(_, number)| *number > 0) {
            @let high = scale.high(axis::as_f64(*number));
            @let from = { below += high; HEIGHT - below };
            rect .(class) x=(percent(scale.left(n) + scale.wide() * 0.1))
                 width=(percent(scale.wide() * 0.8)) y=(pixels(from)) height=(pixels(high)) {}
        }
    }
}

/// A small chart without axes: one bar for each number, at least one pixel high.
pub(crate) fn sparkline(numbers: &[usize], about: &str) -> Markup {
    const WIDTH: usize = 8;
    const HEIGHT: usize = 24;
    let most = numbers.iter().copied().max().unwrap_or(0).max(1);
    html! {
        svg .trend viewBox={ "0 0 " (numbers.len() * WIDTH) " " (HEIGHT) } role="img" aria-label=(about) {
            title { (about) }
            @for (n, number) in numbers.iter().enumerate() {
                @let height = (number * HEIGHT).div_ceil(most).max(1);
                rect .(if *number == 0 { "none" } else { "bad" })
                     x=(n * WIDTH) y=(HEIGHT - height) width=(WIDTH - 2) height=(height) {}
            }
        }
    }
}

/// Lines over time, one for each value of the points; the first is solid.
pub(crate) fn lines(points: &[Point], unit: Unit, zone: &TimeZone, about: &str) -> Markup {
    let known = points.iter().flat_map(|point| point.values.iter().flatten().copied());
    let ticks = axis::ticks(known.fold(0.0, f64::max), unit);
    let scale = Scale { steps: points.len(), top: ticks.last().map_or(1.0, |tick| tick.at) };
    let number = points.iter().map(|point| point.values.len()).max().unwrap_or(0);
    let times: Vec<_> = points.iter().map(|point| point.at).collect();
    let inside = html! {
        // A scale from 0 to 100, because a path has no percentages.
        svg viewBox={ "0 0 100 " (pixels(HEIGHT)) } preserveAspectRatio="none" width="100%"
            height=(pixels(HEIGHT)) {
            @for which in (0..number).rev() {
                path .line .second[which > 0] d=(path(&scale, points, which)) {}
            }
        }
        @for (n, point) in points.iter().enumerate() {
            (step(&scale, n, &point.title, &dots(&scale, points, n, point)))
        }
    };
    frame(about, &scale, &ticks, &times, zone, &inside)
}

/// A value between two gaps is drawn as a dot.
fn dots(scale: &Scale, points: &[Point], n: usize, point: &Point) -> Markup {
    let is_known = |n: Option<usize>, which: usize| {
        let value = n.and_then(|n| points.get(n)?.values.get(which).copied().flatten());
        value.is_some()
    };
    let is_alone = |which| !is_known(n.checked_sub(1), which) && !is_known(Some(n + 1), which);
    html! {
        @for (which, value) in point.values.iter().enumerate().filter(|(which, _)| is_alone(*which)) {
            @if let Some(value) = value {
                circle .dot .second[which > 0] cx=(percent(scale.middle(n)))
                       cy=(pixels(HEIGHT - scale.high(*value))) r="2" {}
            }
        }
    }
}

/// From value to value, interrupted by gaps.
fn path(scale: &Scale, points: &[Point], which: usize) -> String {
    let (mut path, mut is_drawing) = (String::new(), false);
    for (n, point) in points.iter().enumerate() {
        let value = point.values.get(which).copied().flatten();
        if let Some(value) = value {
            let (x, y) = (scale.middle(n), HEIGHT - scale.high(value));
            path.push_str(if is_drawing { "L" } else { "M" });
            path.push_str(&format!("{} {}", pixels(x), pixels(y)));
        }
        is_drawing = value.is_some();
    }
    path
}

/// One step with its tooltip.
fn step(scale: &Scale, n: usize, title: &str, inside: &Markup) -> Markup {
    html! {
        g {
            title { (title) }
            rect .hover x=(percent(scale.left(n))) width=(percent(scale.wide())) height="100%" {}
            (inside)
        }
    }
}

fn frame(
    about: &str,
    scale: &Scale,
    ticks: &[axis::Tick],
    times: &[Timestamp],
    zone: &TimeZone,
    inside: &Markup,
) -> Markup {
    html! {
        svg .chart .plot role="img" aria-label=(about) height=(pixels(HEIGHT)) width="100%" {
            @for tick in ticks {
                @let y = pixels(HEIGHT - scale.high(tick.at));
                line .axis x1="0" x2="100%" y1=(y) y2=(y) {}
                text .up x="-6" y=(y) dy="4" { (tick.label) }
            }
            (inside)
            @for (n, label) in axis::times(times, zone) {
                text .across x=(percent(scale.middle(n))) y=(pixels(HEIGHT)) dy="16" { (label) }
            }
        }
    }
}

/// Positions of steps and values.
struct Scale {
    steps: usize,
    /// The value at the top.
    top: f64,
}

impl Scale {
    fn wide(&self) -> f64 {
        100.0 / axis::as_f64(self.steps.max(1) as u64)
    }

    fn left(&self, n: usize) -> f64 {
        self.wide() * axis::as_f64(n as u64)
    }

    fn middle(&self, n: usize) -> f64 {
        self.left(n) + self.wide() / 2.0
    }

    fn high(&self, value: f64) -> f64 {
        (value / self.top).clamp(0.0, 1.0) * HEIGHT
    }
}

fn percent(value: f64) -> String {
    format!("{}%", pixels(value))
}

/// Two decimals are enough.
fn pixels(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests;
