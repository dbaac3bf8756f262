//! A file of lines, read and checked.

use std::fmt;
use std::io::BufRead;

use jiff::Timestamp;
use serde::Deserialize;

use super::{ExportCounts, ExportHeader, ExportLine, FORMAT};

/// A line that is longer holds more than any task can have.
const LINE_BYTES_MAX: usize = 1 << 30;

/// The error of a file that cannot be imported, with the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct InvalidLine {
    /// The number of the line.
    pub line: u64,
    /// The column in it, if it is known.
    pub column: Option<usize>,
    /// The reason.
    pub why: String,
}

impl fmt::Display for InvalidLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(column) = self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// A file that is read line by line and checked.
///
/// Ends with an error unless the file is complete.
pub struct ExportFile {
    header: ExportHeader,
    input: Box<dyn BufRead + Send>,
    line: u64,
    seen: ExportCounts,
    last_ids: (i64, i64, i64),
    done: bool,
}

impl fmt::Debug for ExportFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("header", &self.header).finish_non_exhaustive()
    }
}

impl ExportFile {
    /// Reads the header.
    pub fn open(input: Box<dyn BufRead + Send>) -> Result<Self, InvalidLine> {
        let header = ExportHeader {
            task_engine_export: FORMAT,
            version: String::new(),
            exported_at: Timestamp::UNIX_EPOCH,
            from: String::new(),
            statuses: Vec::new(),
            last_task_id: 0,
            last_instance_id: 0,
            last_schedule_id: 0,
        };
        let (seen, last_ids) = (ExportCounts::default(), (0, 0, 0));
        let mut file = Self { header, input, line: 0, seen, last_ids, done: false };
        let Some(text) = file.text()? else {
            return Err(file.bad("the file is empty".to_owned()));
        };
        file.check_format(&text)?;
        match file.parse(&text)? {
            ExportLine::Header(header) => {
                let ids = [header.last_task_id, header.last_instance_id, header.last_schedule_id];
                if ids.iter().any(|id| *id < 0) {
                    return Err(file.bad("an id is below zero".to_owned()));
                }
                file.header = header;
                Ok(file)
            }
            _ => Err(file.bad("the header is missing; is this the file of an export?".to_owned())),
        }
    }

    /// Returns the header of the file.
    #[must_use]
    pub fn header(&self) -> &ExportHeader {
        &self.header
    }

    /// Returns the number of the line that was read last.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Returns how many lines of each kind were read so far.
    #[must_use]
    pub fn seen(&self) -> ExportCounts {
        self.seen
    }

    /// Another format may have another header, so the version is checked first.
    fn check_format(&self, text: &str) -> Result<(), InvalidLine> {
        #[derive(Deserialize)]
        struct VersionedLine {
            header: Version,
        }
        #[derive(Deserialize)]
        struct Version {
            task_engine_export: u32,
        }
        match serde_json::from_str::<VersionedLine>(text) {
            Ok(line) if line.header.task_engine_export != FORMAT => Err(self.bad(format!(
                "the file has format {}, this program knows format {FORMAT}; use the version of task-engine that it is for",
                line.header.task_engine_export
            ))),
            Ok(_) => Ok(()),
            Err(_) => Err(self.bad(
                "this is not the file of an export: the first line is {\"header\": {\"task_engine_export\": 1, …}}".to_owned(),
            )),
        }
    }

    fn text(&mut self) -> Result<Option<String>, InvalidLine> {
        let mut text = Vec::new();
        self.line += 1;
        let mut limited = std::io::Read::take(&mut self.input, LINE_BYTES_MAX as u64);
        match limited.read_until(b'\n', &mut text) {
            Ok(0) => return Ok(None),
            Ok(_) if text.last() == Some(&b'\n') => {}
            Ok(_) => return Err(self.bad("the line is cut off: the file is not whole".to_owned())),
            Err(error) => return Err(self.bad(format!("it cannot be read: {error}"))),
        }
        let text = String::from_utf8(text);
        text.map(Some).map_err(|_| self.bad("this is not text (UTF-8)".to_owned()))
    }

    fn parse(&self, text: &str) -> Result<ExportLine, InvalidLine> {
        serde_json::from_str(text).map_err(|error| {
            let why = error.to_string();
            let why = why.split(" at line ").next().unwrap_or_default().to_owned();
            let why = match task_id_in(text) {
                Some(id) => format!("task {id}: {why}"),
                None => why,
            };
            InvalidLine { line: self.line, column: Some(error.column()), why }
        })
    }

    fn bad(&self, why: String) -> InvalidLine {
        InvalidLine { line: self.line, column: None, why }
    }

    fn read(&mut self) -> Result<Option<ExportLine>, InvalidLine> {
        let Some(text) = self.text()? else {
            return Err(self.bad("the last line is missing: the file is not whole".to_owned()));
        };
        let line = self.parse(&text)?;
        self.in_order(&line).map_err(|why| self.bad(why))?;
        if let ExportLine::End(end) = line {
            if end != self.seen {
                return Err(self.bad(format!(
                    "lines are missing: {} were written, {} are there",
                    words(end),
                    words(self.seen)
                )));
            }
            self.line += 1;
            let mut rest = Vec::new();
            return match std::io::Read::read_to_end(
                &mut std::io::Read::take(&mut self.input, 1),
                &mut rest,
            ) {
                Ok(0) => Ok(None),
                _ => Err(self.bad("something follows the last line".to_owned())),
            };
        }
        self.seen.count(&line);
        Ok(Some(line))
    }

    fn in_order(&mut self, line: &ExportLine) -> Result<(), String> {
        let (what, id, last, highest) = match line {
            ExportLine::Header(_) => return Err("a second header".to_owned()),
            ExportLine::Instance(i) => {
                if i.name.is_empty() {
                    return Err("an instance has a name".to_owned());
                }
                ("instance", i.id, &mut self.last_ids.0, self.header.last_instance_id)
            }
            ExportLine::Task(task) => {
                task.check()?;
                let known = 1..=self.header.last_instance_id;
                let sessions = task.executions.iter().filter_map(|e| e.instance_id);
                let mut sessions = sessions.chain(task.running.map(|r| r.instance_id));
                if let Some(id) = sessions.find(|id| !known.contains(id)) {
                    return Err(format!("task {}: there is no instance {id}", task.id));
                }
                let known = 1..=self.header.last_task_id;
                if let Some(id) = task.named_tasks().find(|id| !known.contains(id)) {
                    return Err(format!(
                        "task {}: it depends on task {id}, but the header names {} as the last one",
                        task.id, self.header.last_task_id
                    ));
                }
                ("task", task.id, &mut self.last_ids.1, self.header.last_task_id)
            }
            ExportLine::Schedule(s) => {
                task_engine_core::task::check_name("schedule", s.name.clone())
                    .map_err(|e| e.to_string())?;
                ("schedule", s.id, &mut self.last_ids.2, self.header.last_schedule_id)
            }
            ExportLine::PausedQueue(paused) => {
                return task_engine_core::queue::check_queue_name(&paused.queue)
                    .map_err(|e| e.to_string());
            }
            ExportLine::Limit(limit) => return limit.check(),
            ExportLine::Flow(flow) => return flow.check(),
            ExportLine::SkippedTask(_) | ExportLine::End(_) => return Ok(()),
        };
        if id <= *last {
            return Err(format!(
                "{what} {id} comes after {what} {last}; each is there once, in the order of their ids"
            ));
        }
        if id > highest {
            return Err(format!(
                "{what} {id} is beyond the last one, {highest}, that the header names"
            ));
        }
        *last = id;
        Ok(())
    }
}

/// The task that a line is about that could not be read as a whole.
fn task_id_in(text: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct LineOfTask {
        task: Id,
    }
    #[derive(Deserialize)]
    struct Id {
        id: i64,
    }
    serde_json::from_str::<LineOfTask>(text).ok().map(|line| line.task.id)
}

impl Iterator for ExportFile {
    type Item = Result<ExportLine, InvalidLine>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let line = self.read().transpose();
        self.done = !matches!(line, Some(Ok(_)));
        line
    }
}

fn words(end: ExportCounts) -> String {
    let ExportCounts { instances, paused_queues, limits, flows, tasks, schedules } = end;
    format!(
        "{tasks} tasks, {flows} flows, {schedules} schedules, {paused_queues} paused queues, {limits} limits, {instances} instances"
    )
}
