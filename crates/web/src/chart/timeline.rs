//! Bars over time, in rows.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};
use task_engine_core::display::span;

use super::{percent, pixels};

const ROW: f64 = 22.0;
const BAR: f64 = 14.0;
/// Short bars stay visible, in percent of the width.
const BAR_WIDTH_MIN: f64 = 0.25;

/// One bar.
#[derive(Debug, PartialEq)]
pub(crate) struct TimelineBar {
    pub(crate) row: usize,
    /// A class of the style sheet.
    pub(crate) class: &'static str,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) label: &'static str,
}

/// The bars, with the labels of the rows.
pub(crate) fn timeline(
    bars: &[TimelineBar],
    rows: &[String],
    zone: &TimeZone,
    about: &str,
) -> Markup {
    let (Some(begin), Some(end)) =
        (bars.iter().map(|bar| bar.from).min(), bars.iter().map(|bar| bar.until).max())
    else {
        return html! {};
    };
    let secs = end.duration_since(begin).as_secs_f64().max(0.001);
    let x = |at: Timestamp| at.duration_since(begin).as_secs_f64() / secs * 100.0;
    let height = pixels(ROW * rows.len() as f64);
    let clock = |at: Timestamp| at.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string();
    html! {
        svg .chart .plot role="img" aria-label=(about) height=(height) width="100%" {
            // Few enough for narrow windows.
            @for tick in 0..=2_u32 {
                @let at = percent(f64::from(tick) * 50.0);
                line .axis x1=(at) x2=(at) y1="0" y2=(height) {}
                text .across .end[tick == 2] x=(at) y=(height) dy="16" {
                    @if tick == 0 { (clock(begin)) }
                    @else { "+" (span(Duration::from_secs_f64(secs * f64::from(tick) / 2.0))) }
                }
            }
            @for (row, label) in rows.iter().enumerate() {
                text .up x="-6" y=(pixels(ROW * row as f64 + BAR)) { (label) }
            }
            @for bar in bars {
                @let width = (x(bar.until) - x(bar.from)).max(BAR_WIDTH_MIN);
                rect .(bar.class) x=(percent(x(bar.from).min(100.0 - width)))
                     y=(pixels(ROW * bar.row as f64 + 3.0)) width=(percent(width)) height=(BAR) rx="2" {
                    title {
                        (bar.label) ": " (span(bar.until.duration_since(bar.from).unsigned_abs()))
                        ", from " (clock(bar.from))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stay_inside_the_chart() {
        let at = |secs: i64| Timestamp::from_second(1_700_000_000 + secs).unwrap();
        let bar = |from, until| {
            let (from, until) = (at(from), at(until));
            TimelineBar { row: 0, class: "run", from, until, label: "ran" }
        };
        let rows = ["#1".to_owned()];
        let draw = |bars: &[TimelineBar]| timeline(bars, &rows, &TimeZone::UTC, "x").into_string();
        let svg = draw(&[bar(0, 10), bar(40, 40)]);
        assert!(svg.contains(r#"x="0%" y="3" width="25%""#), "{svg}");
        assert!(svg.contains(r#"x="99.75%" y="3" width="0.25%""#), "{svg}");
        assert!(!draw(&[bar(0, 0)]).contains("NaN"));
        assert_eq!(draw(&[]), "");
    }
}
