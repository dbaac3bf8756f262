//! The summary of a demo, and commands to try next.

use std::io::{self, Write};
use std::time::Duration;

use jiff::Zoned;
use task_engine::{TaskId, TaskStatus};
use task_engine_core::display::{count, relative, span};
use task_engine_core::task::TaskRow;

use crate::console::{Console, program};
use crate::database::Database;
use crate::escape::{escape, summary};

pub(super) struct DemoSummary {
    /// The demo's tasks, oldest first.
    pub(super) rows: Vec<TaskRow>,
    pub(super) took: Duration,
    pub(super) workers: u16,
    pub(super) scheduled: TaskId,
    pub(super) lateness: Option<Duration>,
    pub(super) now: Zoned,
}

impl DemoSummary {
    pub(super) fn print(
        &self,
        console: &Console,
        database: &Database,
        mut out: impl Write,
    ) -> io::Result<()> {
        self.numbers(&mut out)?;
        self.failures(&mut out)?;
        self.schedule(&mut out)?;
        if !console.is_quiet() {
            self.next(database, &mut out)?;
        }
        out.flush()
    }

    fn numbers(&self, out: &mut impl Write) -> io::Result<()> {
        let number =
            |wanted: &dyn Fn(&TaskRow) -> bool| self.rows.iter().filter(|row| wanted(row)).count();
        let stopped = number(&|row| row.status == TaskStatus::Stopped);
        let retried = number(&waits_for_a_retry);
        let failed = number(&|row| row.status == TaskStatus::Failed);
        let open = self.rows.len() - stopped - retried - failed;
        writeln!(
            out,
            "\n{} in {} with {}:",
            count(self.rows.len(), "task"),
            span(self.took),
            count(usize::from(self.workers), "worker")
        )?;
        for (number, what) in [
            (stopped, "succeeded (stopped)"),
            (retried, "failed and wait for a retry (waiting)"),
            (failed, "failed for good (failed)"),
            (open, "have not been executed; the next engine on this database executes them"),
        ] {
            if number > 0 {
                writeln!(out, "{number:5} {what}")?;
            }
        }
        Ok(())
    }

    fn failures(&self, out: &mut impl Write) -> io::Result<()> {
        let failed: Vec<_> = self
            .rows
            .iter()
            .filter(|row| waits_for_a_retry(row) || row.status == TaskStatus::Failed)
            .collect();
        if failed.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nFailed tasks, and what comes next:")?;
        for row in failed {
            let error = row.error.as_ref().map(|error| summary(&error.to_string(), 100));
            writeln!(
                out,
                "  task {} {}: {}",
                row.id,
                escape(&row.class),
                error.unwrap_or_default()
            )?;
            writeln!(out, "    {}", self.next_state_text(row))?;
        }
        if self.rows.iter().any(waits_for_a_retry) {
            writeln!(out, "  The default rule: ten retries, after 1, 2, 4, … 512 minutes.")?;
        }
        Ok(())
    }

    fn next_state_text(&self, row: &TaskRow) -> String {
        if waits_for_a_retry(row) {
            let time = row.scheduled_at.to_zoned(self.now.time_zone().clone());
            return format!(
                "retry {} of 10 {}, at {}",
                row.retry_number,
                relative(row.scheduled_at, self.now.timestamp()),
                time.strftime("%H:%M:%S")
            );
        }
        let why = match row.class.as_str() {
            "FailingNotRetryTask" => "its class has no retries",
            "FailingNotRetryExceptionTask" => "its error forbids retries",
            _ => "all retries were used",
        };
        format!("not retried: {why}")
    }

    fn schedule(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(late) = self.lateness else {
            return Ok(());
        };
        writeln!(
            out,
            "\nTask {} was scheduled 5 s ahead, and started {} late.",
            self.scheduled,
            span(late)
        )
    }

    fn next(&self, database: &Database, out: &mut impl Write) -> io::Result<()> {
        let Database::File(_) = database else {
            return Ok(());
        };
        let failing = self.rows.iter().find(|row| waits_for_a_retry(row)).map(|row| row.id);
        let shown = failing.unwrap_or(self.scheduled);
        let (program, option) = (program(), database.as_option());
        let width = program.len() + option.len() + "start --samples ".len();
        writeln!(out, "\nTry next:")?;
        for (command, what) in [
            Some(("tasks".to_owned(), "all tasks, newest first")),
            Some((format!("show {shown}"), "one of them, with all its attempts")),
            Some(("start --samples".to_owned(), "an engine that runs until Ctrl-C")),
            failing.map(|id| (format!("retry {id}"), "in a second terminal: it runs now")),
        ]
        .into_iter()
        .flatten()
        {
            let command = format!("{program} {command}{option}");
            writeln!(out, "  {command:width$}  # {what}")?;
        }
        Ok(())
    }
}

fn waits_for_a_retry(row: &TaskRow) -> bool {
    row.status == TaskStatus::Waiting && row.retry_number > 0
}
