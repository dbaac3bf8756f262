//! Charts as SVG, without a library: lines over time, and histograms.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 48.0;
const BARS: usize = 40;

/// One line a series, each a list of points.
pub(super) fn lines(series: &[Vec<(f64, f64)>], x_words: &str, y_words: &str) -> String {
    let points = || series.iter().flatten();
    let x_max = points().map(|(x, _)| *x).fold(0.0, f64::max);
    let y_max = points().map(|(_, y)| *y).fold(0.0, f64::max);
    let axes = Axes::new(x_max, y_max);
    let mut svg = axes.begin(x_words, y_words);
    for (at, line) in series.iter().enumerate() {
        if let [(x, y)] = line[..] {
            // A line of one point would not be seen.
            let (x, y) = (axes.x(x), axes.y(y));
            let _ =
                write!(svg, r#"<circle class="dot s{}" cx="{x:.1}" cy="{y:.1}" r="3"/>"#, at % 3);
            continue;
        }
        let path: Vec<_> =
            line.iter().map(|(x, y)| format!("{:.1},{:.1}", axes.x(*x), axes.y(*y))).collect();
        let _ = write!(
            svg,
            r#"<polyline class="line s{}" points="{}"><title>repeat {}</title></polyline>"#,
            at % 3,
            path.join(" "),
            at + 1
        );
    }
    svg.push_str("</svg>");
    svg
}

/// How many samples are how large. The last bar holds all beyond its edge, so
/// that one outlier does not press everything else into the first bar.
pub(super) fn histogram(samples: &[f64], edge: f64, x_words: &str) -> String {
    let edge = edge.max(f64::MIN_POSITIVE);
    let mut counts = [0_u32; BARS];
    for sample in samples {
        let at = (sample.max(0.0) / edge * BARS as f64) as usize;
        counts[at.min(BARS - 1)] += 1;
    }
    let tallest = counts.iter().copied().max().unwrap_or(0);
    let axes = Axes::new(edge, f64::from(tallest));
    let mut svg = axes.begin(x_words, "samples");
    let width = edge / BARS as f64;
    for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (from, to) = (at as f64 * width, (at + 1) as f64 * width);
        let range = if at + 1 == BARS {
            format!("{from:.2} and more")
        } else {
            format!("{from:.2} to {to:.2}")
        };
        let (x, y) = (axes.x(from), axes.y(f64::from(*count)));
        let _ = write!(
            svg,
            r#"<rect class="bar" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{:.1}"><title>{count}: {range}</title></rect>"#,
            (axes.x(to) - x - 1.0).max(1.0),
            axes.y(0.0) - y
        );
    }
    svg.push_str("</svg>");
    svg
}

/// From zero to round numbers.
struct Axes {
    x_ticks: Vec<f64>,
    y_ticks: Vec<f64>,
    x_max: f64,
    y_max: f64,
}

impl Axes {
    fn new(x_max: f64, y_max: f64) -> Self {
        let (x_ticks, y_ticks) = (ticks(x_max, 8), ticks(y_max, 5));
        // The x axis ends where the data does, the y axis at a round number.
        let top = y_ticks.last().copied().unwrap_or(1.0);
        Self { x_max: if x_max > 0.0 { x_max } else { 1.0 }, y_max: top, x_ticks, y_ticks }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + value / self.x_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.y_max * (HEIGHT - TOP - BOTTOM)
    }

    fn begin(&self, x_words: &str, y_words: &str) -> String {
        let mut svg = format!(
            r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{y_words} over {x_words}">"#
        );
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in &self.y_ticks {
            let (y, label) = (self.y(*tick), label(*tick));
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}"/><text x="{:.1}" y="{:.1}" text-anchor="end">{label}</text>"#,
                LEFT - 8.0,
                y + 4.0
            );
        }
        for tick in self.x_ticks.iter().filter(|tick| **tick <= self.x_max) {
            let (x, label) = (self.x(*tick), label(*tick));
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{x:.1}" y1="{bottom}" x2="{x:.1}" y2="{:.1}"/><text x="{x:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
                bottom + 5.0,
                bottom + 19.0
            );
        }
        let _ = write!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{x_words}</text><text transform="translate(14 {:.1}) rotate(-90)" text-anchor="middle">{y_words}</text>"#,
            f64::midpoint(LEFT, right),
            HEIGHT - 8.0,
            f64::midpoint(TOP, bottom)
        );
        svg
    }
}

/// Round numbers from 0 to just above the largest value: steps of 1, 2 or 5.
fn ticks(max: f64, wanted: u32) -> Vec<f64> {
    if !max.is_finite() || max <= 0.0 {
        return vec![0.0, 1.0];
    }
    let rough = max / f64::from(wanted);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|step| *step >= rough * 0.999_999).unwrap_or(power * 10.0);
    let steps = (max / step).ceil() as u32;
    (0..=steps).map(|at| f64::from(at) * step).collect()
}

/// `12k`, `3`, `0.25`: as short as it is exact.
fn label(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e4 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let text = format!("{value:.4}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_everything() {
        assert_eq!(ticks(43_000.0, 5), [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0, 50_000.0]);
        assert_eq!(ticks(1.0, 5).last(), Some(&1.0));
        assert_eq!(ticks(0.0, 5), [0.0, 1.0]);
        assert_eq!(ticks(f64::NAN, 5), [0.0, 1.0]);
    }

    #[test]
    fn labels_are_short() {
        for (value, shown) in
            [(0.0, "0"), (0.25, "0.25"), (2000.0, "2000"), (20_000.0, "20k"), (1.5e6, "1.5M")]
        {
            assert_eq!(label(value), shown);
        }
    }

    #[test]
    fn charts_hold_no_nonsense() {
        for svg in [
            lines(&[], "s", "tasks/s"),
            lines(&[vec![(0.0, 5.0)], vec![]], "s", "tasks/s"),
            histogram(&[], 1.0, "ms"),
            histogram(&[0.0, 1.0, 99.0], 0.0, "ms"),
        ] {
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
