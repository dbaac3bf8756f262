//! The log and the progress of a task, as they come.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use task_engine::{Store, TaskId, TaskStatus};
use task_engine_core::display;
use task_engine_core::display::count;
use task_engine_core::progress::{LogFilter, LogRow, ProgressRow};
use task_engine_core::secret::Redactor;
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::{ExecutionRow, TaskDetails};

use crate::error::CliError;
use crate::escape::escape;
use crate::json_output::write_json_line;

/// How often the log of a running task is read.
const POLL_EVERY: Duration = Duration::from_millis(250);
const PAGE: u32 = 1000;

/// A line of the log, lines that are missing, or progress.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum LogEvent {
    Line(LogRow),
    /// Lines that were dropped here: how many, and the number of the first.
    Dropped {
        attempt: i32,
        dropped: i32,
        first: i32,
    },
    Progress {
        attempt: i32,
        progress: ProgressRow,
    },
}

impl LogEvent {
    fn attempt(&self) -> i32 {
        match self {
            Self::Line(line) => line.attempt,
            Self::Dropped { attempt, .. } | Self::Progress { attempt, .. } => *attempt,
        }
    }

    fn redact(&mut self, secrets: &Redactor) {
        match self {
            Self::Line(line) => secrets.log(std::slice::from_mut(line)),
            Self::Progress { progress, .. } => {
                progress.message = secrets.text(&progress.message).into_owned();
            }
            Self::Dropped { .. } => {}
        }
    }
}

/// Reads a task's log from a position on.
#[derive(Debug)]
pub(crate) struct LogReader {
    id: TaskId,
    only: Option<i32>,
    /// The attempt and the number of the line that was read last.
    at: (i32, i32),
    /// Only later progress is new; `None` to leave progress out.
    progress_since: Option<Timestamp>,
}

impl LogReader {
    /// From the beginning, of all attempts or only one.
    pub(crate) fn new(id: TaskId, only: Option<i32>) -> Self {
        Self { id, only, at: (0, 0), progress_since: None }
    }

    /// From after the shown lines on, with progress that is newer than the task's.
    pub(crate) fn after(task: &TaskDetails, shown: &[LogRow]) -> Self {
        let at = shown.last().map_or((0, 0), |line| (line.attempt, line.line));
        let last = task.executions.iter().filter_map(|execution| execution.progress.as_ref());
        let last = last.map(|progress| progress.reported_at).max();
        Self {
            at,
            progress_since: Some(last.unwrap_or(Timestamp::MIN)),
            ..Self::new(task.row.id, None)
        }
    }

    /// Reads and prints all new events. Returns the task as it was read before them:
    /// if it had ended, its log is complete.
    pub(crate) async fn read(
        &mut self,
        store: &dyn Store,
        print: &mut dyn FnMut(LogEvent) -> io::Result<()>,
    ) -> Result<Option<TaskDetails>, CliError> {
        let Some(task) = store.task(self.id).await? else {
            return Ok(None);
        };
        let mut rows: BTreeMap<i32, Vec<LogRow>> = BTreeMap::new();
        let mut after = self.at;
        loop {
            let filter = LogFilter {
                attempt: self.only,
                after: Some(after),
                before: None,
                newest: false,
                limit: PAGE,
            };
            let page = store.logs(self.id, &filter).await?;
            let is_last = page.len() < PAGE as usize;
            for row in page {
                after = (row.attempt, row.line);
                rows.entry(row.attempt).or_default().push(row);
            }
            if is_last {
                break;
            }
        }
        for event in self.in_order(&task.executions, rows) {
            print(event)?;
        }
        Ok(Some(task))
    }

    /// Repeats this until the task has ended.
    pub(crate) async fn follow(
        &mut self,
        store: &dyn Store,
        print: &mut dyn FnMut(LogEvent) -> io::Result<()>,
    ) -> Result<Option<TaskDetails>, CliError> {
        self.progress_since.get_or_insert(Timestamp::MIN);
        loop {
            let task = self.read(store, print).await?;
            match task.as_ref().map(|task| task.row.status) {
                Some(TaskStatus::Waiting | TaskStatus::Running) => {}
                _ => return Ok(task),
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// The new events, attempt by attempt. Numbers without a line were dropped; at
    /// the end of an attempt, its number of lines tells how many.
    fn in_order(
        &mut self,
        executions: &[ExecutionRow],
        mut rows: BTreeMap<i32, Vec<LogRow>>,
    ) -> Vec<LogEvent> {
        let mut all = Vec::new();
        for execution in executions {
            let attempt = execution.attempt;
            if attempt < self.at.0 || self.only.is_some_and(|only| only != attempt) {
                continue;
            }
            let mut line = if attempt == self.at.0 { self.at.1 } else { 0 };
            for row in rows.remove(&attempt).unwrap_or_default() {
                all.extend(dropped(attempt, line, row.line - 1));
                line = row.line;
                all.push(LogEvent::Line(row));
            }
            if execution.status != ExecutionStatus::Running {
                all.extend(dropped(attempt, line, execution.log_lines));
                line = line.max(execution.log_lines);
            }
            self.at = (attempt, line);
            if let (Some(progress), Some(since)) = (&execution.progress, self.progress_since)
                && progress.reported_at > since
            {
                self.progress_since = Some(progress.reported_at);
                all.push(LogEvent::Progress { attempt, progress: progress.clone() });
            }
        }
        all
    }
}

fn dropped(attempt: i32, after: i32, up_to: i32) -> Option<LogEvent> {
    (up_to > after).then(|| LogEvent::Dropped { attempt, dropped: up_to - after, first: after + 1 })
}

/// Prints events, each attempt under its own heading.
pub(crate) struct LogPrinter<W> {
    out: W,
    zone: TimeZone,
    attempt: Option<i32>,
    json: bool,
    secrets: Redactor,
}

impl<W: Write> LogPrinter<W> {
    pub(crate) fn new(out: W, zone: TimeZone, json: bool, secrets: Redactor) -> Self {
        Self { out, zone, attempt: None, json, secrets }
    }

    /// Prints and flushes one event.
    pub(crate) fn print(&mut self, mut event: LogEvent) -> io::Result<()> {
        event.redact(&self.secrets);
        let event = &event;
        if self.json {
            write_json_line(&mut self.out, event)?;
            return self.out.flush();
        }
        if self.attempt.replace(event.attempt()) != Some(event.attempt()) {
            writeln!(self.out, "Attempt {}:", event.attempt())?;
        }
        writeln!(self.out, "  {}", event_text(event, &self.zone))?;
        self.out.flush()
    }
}

/// Lines, with a `Dropped` where some are missing. `after` is the number of the line
/// before the first.
pub(crate) fn with_gaps(rows: &[&LogRow], after: i32) -> Vec<LogEvent> {
    let (mut all, mut last) = (Vec::new(), after);
    for row in rows {
        all.extend(dropped(row.attempt, last, row.line - 1));
        last = row.line;
        all.push(LogEvent::Line((*row).clone()));
    }
    all
}

/// One line, safe for a terminal.
pub(crate) fn event_text(event: &LogEvent, zone: &TimeZone) -> String {
    match event {
        LogEvent::Line(row) => {
            format!("{}  {:5}  {}", time(row.logged_at, zone), row.level, escape(&row.message))
        }
        LogEvent::Dropped { dropped, first, .. } => {
            let lines = count(usize::try_from(*dropped).unwrap_or(0), "line");
            format!("… {lines} not kept ({first} to {})", first + dropped - 1)
        }
        LogEvent::Progress { progress, .. } => {
            let progress_text = progress_text(progress);
            format!("{}  {:5}  {progress_text}", time(progress.reported_at, zone), "at")
        }
    }
}

/// `40 %, rendering`, safe for a terminal.
pub(crate) fn progress_text(progress: &ProgressRow) -> String {
    escape(&display::progress_text(progress)).into_owned()
}

fn time(time: Timestamp, zone: &TimeZone) -> String {
    time.to_zoned(zone.clone()).strftime("%H:%M:%S.%3f").to_string()
}

#[cfg(test)]
mod tests;
