//! Text for people, the same on a terminal and on a page.
//!
//! Names and errors of tasks are not escaped here: the caller escapes them for its output.

mod cancelled;
mod endings;
mod limits;
mod steps;
mod times;

use crate::progress::ProgressRow;
use crate::queue::BoundedCount;

pub use cancelled::{cancel_history_text, cancel_outcome_text};
pub use endings::{next_state_text, outcome_text};
pub use limits::{limit_key_text, limit_options_text, limit_target_text, rate_text, window_text};
pub use steps::{StepEntry, StepState, kept_signals, step_timeline};
pub use times::{clock, clock_and_relative, relative, span};

/// Returns a number with its noun: `1 task`, `2 tasks`, `3 classes`, `4 retries`.
#[must_use]
pub fn count(number: usize, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else if let Some(stem) = what.strip_suffix('y') {
        format!("{number} {stem}ies")
    } else if what.ends_with('s') {
        format!("{number} {what}es")
    } else {
        format!("{number} {what}s")
    }
}

/// Returns the text with a capital first letter.
#[must_use]
pub fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns a count like `12,345`, or `100,000+` if counting stopped at its limit.
#[must_use]
pub fn count_text(count: BoundedCount) -> String {
    let digits = count.counted.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if count.and_more { text + "+" } else { text }
}

/// Returns a word as a shell reads it, in quotes if it needs them.
#[must_use]
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns the progress of an attempt: `40 %, rendering`.
#[must_use]
pub fn progress_text(progress: &ProgressRow) -> String {
    let percent = format!("{:.1}", progress.percent);
    let percent = percent.strip_suffix(".0").unwrap_or(&percent);
    match progress.message.as_str() {
        "" => format!("{percent} %"),
        message => format!("{percent} %, {message}"),
    }
}

/// Returns the first line, cut to `chars_max` characters, with an ellipsis if it was cut.
#[must_use]
pub fn brief(text: &str, chars_max: usize) -> String {
    let mut lines = text.trim_start().lines();
    let first = lines.next().unwrap_or_default();
    if first.chars().count() <= chars_max && lines.next().is_none() {
        return first.to_owned();
    }
    let mut cut: String = first.chars().take(chars_max.saturating_sub(1)).collect();
    cut.truncate(cut.trim_end().len());
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn counts_show_their_limit() {
        let shown = |number, and_more| count_text(BoundedCount { counted: number, and_more });
        assert_eq!(shown(0, false), "0");
        assert_eq!(shown(1234, false), "1,234");
        assert_eq!(shown(100_000, true), "100,000+");
        assert_eq!((count(1, "task"), count(2, "task")), ("1 task".into(), "2 tasks".into()));
        assert_eq!(
            (count(0, "class"), count(4, "retry")),
            ("0 classes".into(), "4 retries".into())
        );
        assert_eq!((capitalize(""), capitalize("é a")), (String::new(), "É a".into()));
    }

    #[test]
    fn progress_has_one_decimal() {
        let text = |percent, message: &str| {
            let reported_at = Timestamp::UNIX_EPOCH;
            progress_text(&ProgressRow { percent, message: message.to_owned(), reported_at })
        };
        assert_eq!(text(100.0 / 3.0, "rendering"), "33.3 %, rendering");
        assert_eq!(text(50.0, ""), "50 %");
    }

    #[test]
    fn brief_keeps_one_line() {
        assert_eq!(brief("short", 10), "short");
        assert_eq!(brief("first\nsecond", 10), "first…");
        assert_eq!(brief("\n first", 10), "first");
        assert_eq!(brief("a long message", 7), "a long…");
        assert_eq!(brief("é".repeat(20).as_str(), 5), "éééé…");
    }
}
