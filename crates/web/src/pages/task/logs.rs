//! What a task has said, the newest lines; older ones page by page.

use maud::{Markup, html};
use task_engine_core::display::count;
use task_engine_core::report::{LogFilter, LogRow};
use task_engine_core::task::TaskDetails;

use crate::app::App;
use crate::pages::actions::Fields;
use crate::problem::Problem;
use crate::shown;
use task_engine_operations::redaction::RedactedTask;

/// So many lines at a time.
const LINES: u32 = 200;

/// Some lines of a log.
pub(super) struct Log {
    rows: Vec<LogRow>,
    /// Whether these are the newest of all.
    newest: bool,
}

/// Where a page of the log ends: `3` is the end of attempt 3, `3.801` before its
/// line 801.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    attempt: i32,
    before: Option<i32>,
}

impl Place {
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

    /// What comes before these lines.
    fn older_than(first: &LogRow) -> Option<String> {
        match (first.attempt, first.line) {
            (attempt, line) if line > 1 => Some(format!("{attempt}.{line}")),
            (attempt, _) if attempt > 1 => Some((attempt - 1).to_string()),
            _ => None,
        }
    }
}

pub(super) async fn read(app: &App, seen: &RedactedTask, fields: &Fields) -> Result<Log, Problem> {
    let newest = LogFilter { newest: true, limit: LINES, ..LogFilter::default() };
    let place = match fields.get("log") {
        None => None,
        Some(text) => Some(Place::read(text).ok_or_else(|| {
            Problem::field(
                "/log",
                format!("{text:?} is no place in a log; it looks like 3 or 3.801."),
            )
        })?),
    };
    let filter = place.map_or(newest, Place::filter);
    let rows = app.logs(seen, &filter).await?;
    Ok(Log { rows, newest: place.is_none() })
}

pub(super) fn show(app: &App, task: &TaskDetails, log: &Log) -> Markup {
    let said: i32 = task.executions.iter().map(|execution| execution.log_lines).sum();
    if said == 0 && log.rows.is_empty() {
        return html! { section #log data-live {} };
    }
    let to = |place: &str| app.path(&format!("/tasks/{}?log={place}#log", task.row.id));
    let older = log.rows.first().and_then(Place::older_than);
    html! {
        section #log .card data-live {
            h2 { "Log" }
            @if older.is_some() || !log.newest { div .row .paging {
                @if let Some(older) = older { a href=(to(&older)) { "Older lines" } }
                @if !log.newest { a href=(app.path(&format!("/tasks/{}#log", task.row.id))) { "Newest lines" } }
            } }
            @if log.rows.is_empty() { p .soft { "There are no lines here." } }
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

/// What is missing between two lines that follow each other here.
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
            span .said { (shown::log_message(row)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use task_engine_core::report::LogLevel;

    use super::*;

    fn row(attempt: i32, line: i32) -> LogRow {
        let (logged_at, level) = (jiff::Timestamp::UNIX_EPOCH, LogLevel::Info);
        LogRow { attempt, line, logged_at, level, message: String::new() }
    }

    #[test]
    fn pages_follow_each_other_to_the_first_line() {
        assert_eq!(Place::older_than(&row(3, 801)).as_deref(), Some("3.801"));
        let place = Place::read("3.801").unwrap();
        assert_eq!(place.filter().before, Some((3, 801)));
        assert_eq!(Place::older_than(&row(3, 1)).as_deref(), Some("2"));
        assert_eq!(Place::older_than(&row(1, 1)), None);
        assert_eq!(Place::read("2").unwrap().filter().before, None);
        for odd in ["", "0", "-1", "x", "1.x", "1.2.3"] {
            assert_eq!(Place::read(odd), None, "{odd}");
        }
    }

    #[test]
    fn gap_between_lines_is_numbered() {
        let words = gap(&row(1, 500), &row(1, 199_501));
        assert_eq!(words.as_deref(), Some("… 199000 lines not kept (501 to 199500)"));
        assert_eq!(gap(&row(1, 500), &row(1, 501)), None);
        assert_eq!(gap(&row(1, 500), &row(2, 7)), None);
    }
}
