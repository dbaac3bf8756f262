//! Progress and log lines of a running attempt.
//!
//! Only the engine that holds an attempt reports about it, and every claim has its
//! own attempt number. So the key (task, attempt, line) makes a report idempotent:
//! sending it again changes nothing.

use std::str::FromStr;
use std::time::Instant;

use jiff::Timestamp;
use serde::Serialize;

use crate::attempt::{AttemptId, clean};
use crate::parse_error::ParseError;

/// The most log lines of an attempt that are kept: the first and the last half of this number.
///
/// The lines between them are only counted.
pub const LINES_MAX: usize = 1000;
/// The most bytes of an attempt's log that are kept, one half for the first lines.
pub const LOG_BYTES_MAX: usize = 256 * 1024;
/// A longer line is cut.
pub const LINE_BYTES_MAX: usize = 8 * 1024;
/// A longer progress message is cut.
const PROGRESS_BYTES_MAX: usize = 1024;

/// The level of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// A detail for developers.
    Debug,
    /// A normal event; this is the default.
    #[default]
    Info,
    /// An unusual event, after which the task goes on.
    Warn,
    /// A failure of a part of the work.
    Error,
}

enum_tokens!(LogLevel { Debug = "debug", Info = "info", Warn = "warn", Error = "error" });

impl FromStr for LogLevel {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::from_token(text).ok_or_else(|| {
            ParseError(format!("unknown level {text:?}; use debug, info, warn or error"))
        })
    }
}

/// New progress and log lines of one attempt, to be written to the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Which attempt.
    pub id: AttemptId,
    /// Grows with each change, so that a report that arrives late, because a
    /// connection hung, does not replace a newer one.
    pub version: i64,
    /// How many lines it has logged in total.
    ///
    /// Numbers without a line were dropped.
    pub lines_total: i32,
    /// Its progress, if it reported any.
    pub progress: Option<ProgressReport>,
    /// The lines that are not stored yet, in order.
    pub lines: Vec<LogLine>,
}

/// The progress of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressReport {
    /// From 0 to 100.
    pub percent: f64,
    /// What it is doing.
    pub message: String,
    /// When it was reported, on the engine's monotonic clock.
    pub at: Instant,
}

impl ProgressReport {
    /// Creates a report of now.
    ///
    /// A percentage out of bounds becomes the nearest valid one.
    #[must_use]
    pub fn new(percent: f64, message: &str) -> Self {
        let percent = if percent.is_nan() { 0.0 } else { percent.clamp(0.0, 100.0) };
        Self { percent, message: clean(message, PROGRESS_BYTES_MAX), at: Instant::now() }
    }
}

/// One line of an attempt's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Its number, from 1.
    pub line: i32,
    /// How important it is.
    pub level: LogLevel,
    /// The text.
    pub message: String,
    /// When it was logged, on the engine's monotonic clock.
    pub at: Instant,
}

impl LogLine {
    /// Creates a line that is logged now.
    ///
    /// A longer message is cut, between characters.
    #[must_use]
    pub fn new(line: i32, level: LogLevel, message: &str) -> Self {
        Self { line, level, message: clean(message, LINE_BYTES_MAX), at: Instant::now() }
    }
}

/// The last reported progress of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgressRow {
    /// From 0 to 100.
    pub percent: f64,
    /// What it was doing.
    pub message: String,
    /// When it was reported.
    pub reported_at: Timestamp,
}

/// A stored log line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogRow {
    /// The attempt that logged it.
    pub attempt: i32,
    /// Its number, from 1.
    ///
    /// A missing number belongs to a line that was dropped.
    pub line: i32,
    /// When it was logged.
    pub logged_at: Timestamp,
    /// How important it is.
    pub level: LogLevel,
    /// The text.
    pub message: String,
}

/// A query for lines of a task's log.
///
/// They come in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogFilter {
    /// Only lines of this attempt.
    pub attempt: Option<i32>,
    /// Only lines after this attempt and line.
    pub after: Option<(i32, i32)>,
    /// Only lines before this attempt and line.
    pub before: Option<(i32, i32)>,
    /// If there are more than the limit: the newest instead of the oldest.
    pub newest: bool,
    /// How many at most.
    pub limit: u32,
}

impl LogFilter {
    /// Returns the range to read: after the first attempt and line, and before the second.
    #[must_use]
    pub fn bounds(&self) -> ((i32, i32), (i32, i32)) {
        let after = self.after.unwrap_or((0, 0));
        let before = self.before.unwrap_or((i32::MAX, i32::MAX));
        match self.attempt {
            Some(attempt) => {
                let next = (attempt.saturating_add(1), 0);
                (after.max((attempt, 0)), before.min(next))
            }
            None => (after, before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_made_storable() {
        let line = LogLine::new(1, LogLevel::Info, &format!("a\0{}", "é".repeat(LINE_BYTES_MAX)));
        assert!(line.message.starts_with("a\u{2400}é"), "{}", line.message);
        assert!(line.message.len() < LINE_BYTES_MAX + 50);
        assert!(line.message.ends_with("bytes in all)"), "{}", line.message);
        assert_eq!(ProgressReport::new(50.0, "half").percent, 50.0);
        for (percent, kept) in [(-1.0, 0.0), (1e9, 100.0), (f64::NAN, 0.0), (f64::INFINITY, 100.0)]
        {
            assert_eq!(ProgressReport::new(percent, "").percent, kept, "{percent}");
        }
        assert!(ProgressReport::new(1.0, &"x".repeat(5000)).message.len() < 1100);
    }

    #[test]
    fn filter_is_range_of_key() {
        let bounds = |attempt, after| LogFilter { attempt, after, ..LogFilter::default() }.bounds();
        let end = (i32::MAX, i32::MAX);
        assert_eq!(bounds(None, None), ((0, 0), end));
        assert_eq!(bounds(None, Some((2, 7))), ((2, 7), end));
        assert_eq!(bounds(Some(3), None), ((3, 0), (4, 0)));
        assert_eq!(bounds(Some(3), Some((3, 9))), ((3, 9), (4, 0)));
        assert_eq!(bounds(Some(3), Some((2, 9))), ((3, 0), (4, 0)));
        assert_eq!(bounds(Some(3), Some((4, 1))), ((4, 1), (4, 0)), "nothing is after that");
        let before = |attempt, before| {
            LogFilter { attempt, before: Some(before), ..LogFilter::default() }.bounds()
        };
        assert_eq!(before(None, (2, 7)), ((0, 0), (2, 7)));
        assert_eq!(before(Some(2), (2, 7)), ((2, 0), (2, 7)));
        assert_eq!(before(Some(2), (3, 7)), ((2, 0), (3, 0)));
    }
}
