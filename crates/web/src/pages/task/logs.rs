//! The log of a task, newest page first.

use maud::{Markup, html};
use task_engine_core::display::count;
use task_engine_core::progress::{LogFilter, LogRow};
use task_engine_core::task::TaskDetails;

use crate::app::App;
use crate::error::ApiError;
use crate::pages::operations::FormFields;
use task_engine_operations::redaction::RedactedTask;

/// Lines per page.
const LINES: u32 = 200;

/// A page of the log.
pub(super) struct ShownLog {
    rows: Vec<LogRow>,
    /// Whether it is the newest page.
    newest: bool,
}

/// The end of a page: `3` is the end of attempt 3, `3.801` is before its line 801.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogCursor {
    attempt: i32,
    before: Option<i32>,
}

impl LogCursor {
    fn read(text: &str) -> Option<Self> {
        let (attempt, before) = match text.split_once('.') {
            Some((attempt, before)) => (attempt, Some(before.parse().ok()?)),
            None => (text, None),
        };
        let attempt = attempt.parse().ok().filter(|attempt| *attempt > 0)?;
        Some(Self { attempt, before })
    }

    fn filter(self) -> LogFilter {
        LogFilter {
            attempt: Some(self.attempt),
            before: self.before.map(|line| (self.attempt, line)),
            newest: true,
            limit: LINES,
            ..LogFilter::default()
        }
    }

    /// The position of the older page.
    fn older_than(first: &LogRow) -> Option<String> {
        match (first.attempt, first.line) {
            (attempt, line) if line > 1 => Some(format!("{attempt}.{line}")),
            (attempt, _) if attempt > 1 => Some((attempt - 1).to_string()),
            _ => None,
        }
    }
}

pub(super) async fn read(
    app: &App,
    task: &RedactedTask,
    fields: &FormFields,
) -> Result<ShownLog, ApiError> {
    let newest = LogFilter { newest: true, limit: LINES, ..LogFilter::default() };
    let position = match fields.get("log") {
        None => None,
        Some(text) => Some(LogCursor::read(text).ok_or_else(|| {
            ApiError::field(
                "/log",
                format!("{text:?} is not a position in a log; write 3 or 3.801."),
            )
        })?),
    };
    let filter = position.map_or(newest, LogCursor::filter);
    let rows = app.logs(task, &filter).await?;
    Ok(ShownLog { rows, newest: position.is_none() })
}

pub(super) fn show(app: &App, task: &TaskDetails, log: &ShownLog) -> Markup {
    let lines: i32 = task.executions.iter().map(|execution| execution.log_lines).sum();
    if lines == 0 && log.rows.is_empty() {
        return html! { section #log data-live {} };
    }
    let to = |position: &str| app.path(&format!("/tasks/{}?log={position}#log", task.row.id));
    let older = log.rows.first().and_then(LogCursor::older_than);
    html! {
        section #log .card data-live {
            h2 { "Log" }
            @if older.is_some() || !log.newest { div .row .paging {
                @if let Some(older) = older { a href=(to(&older)) { "Older lines" } }
                @if !log.newest { a href=(app.path(&format!("/tasks/{}#log", task.row.id))) { "Newest lines" } }
            } }
            @if log.rows.is_empty() { p .soft { "No lines." } }
            ol .log {
                @for (at, row) in log.rows.iter().enumerate() {
                    @if let Some(gap) = at.checked_sub(1).and_then(|at| gap(&log.rows[at], row)) {
                        li .gap { (gap) }
                    }
                    (line(app, row))
                }
            }
        }
    }
}

/// The number of dropped lines between two lines.
fn gap(one: &LogRow, next: &LogRow) -> Option<String> {
    let missing = next.line - one.line - 1;
    (one.attempt == next.attempt && missing > 0).then(|| {
        let lines = count(usize::try_from(missing).unwrap_or(0), "line");
        format!("… {lines} not kept ({} to {})", one.line + 1, next.line - 1)
    })
}

fn line(app: &App, row: &LogRow) -> Markup {
    let time = row.logged_at.to_zoned(app.zone.clone()).strftime("%H:%M:%S%.3f").to_string();
    html! {
        li .(row.level.as_str()) {
            time datetime=(row.logged_at) title=(crate::parts::exact(app, row.logged_at)) { (time) }
            span .attempt title="Attempt and line" { "#" (row.attempt) "." (row.line) }
            span .level { (row.level) }
            span .message { (row.message) }
        }
    }
}

#[cfg(test)]
mod tests {
    use task_engine_core::progress::LogLevel;

    use super::*;

    fn row(attempt: i32, line: i32) -> LogRow {
        let (logged_at, level) = (jiff::Timestamp::UNIX_EPOCH, LogLevel::Info);
        LogRow { attempt, line, logged_at, level, message: String::new() }
    }

    #[test]
    fn pages_follow_each_other_to_the_first_line() {
        assert_eq!(LogCursor::older_than(&row(3, 801)).as_deref(), Some("3.801"));
        let position = LogCursor::read("3.801").unwrap();
        assert_eq!(position.filter().before, Some((3, 801)));
        assert_eq!(LogCursor::older_than(&row(3, 1)).as_deref(), Some("2"));
        assert_eq!(LogCursor::older_than(&row(1, 1)), None);
        assert_eq!(LogCursor::read("2").unwrap().filter().before, None);
        for odd in ["", "0", "-1", "x", "1.x", "1.2.3"] {
            assert_eq!(LogCursor::read(odd), None, "{odd}");
        }
    }

    #[test]
    fn gap_between_lines_is_numbered() {
        let text = gap(&row(1, 500), &row(1, 199_501));
        assert_eq!(text.as_deref(), Some("… 199000 lines not kept (501 to 199500)"));
        assert_eq!(gap(&row(1, 500), &row(1, 501)), None);
        assert_eq!(gap(&row(1, 500), &row(2, 7)), None);
    }
}
