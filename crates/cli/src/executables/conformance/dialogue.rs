//! A worker that is checked, and the lines that it sends.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};
use task_engine_core::display::{brief, span};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::ChildStdout;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::executables::announcement::{self, Announcement};
use crate::executables::child::{self, ProcessControl, ProcessEnd};
use crate::executables::config::Worker;
use crate::executables::lines::ENVELOPE_BYTES;
use crate::executables::log::{LogTail, for_each_line};

/// How long a worker may take for its next line.
const LINE_TIMEOUT: Duration = Duration::from_secs(10);
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// A result, as JSON, and the rest of its line.
const LINE_BYTES_MAX: usize = task_engine_core::json::BYTES_MAX + ENVELOPE_BYTES;
const SHOWN_CHARS: usize = 200;
/// How many lines are read before they are wanted. A worker that sends without end waits.
const LINES_AHEAD: usize = 1000;
/// How many lines may come before an answer, or about other tasks meanwhile.
const LINES_MAX: usize = 50_000;

/// A running worker.
pub(super) struct Dialogue {
    control: ProcessControl,
    lines: Receiver<Result<Value, String>>,
    ending: Option<JoinHandle<ProcessEnd>>,
    log: JoinHandle<LogTail>,
    /// Lines about other tasks than the one that was waited for.
    waiting: VecDeque<Value>,
    /// Attempts that have ended: nothing more may come for them.
    ended: BTreeSet<String>,
    tasks: i64,
    /// How many tasks it takes at a time.
    pub(super) concurrency: usize,
    over: bool,
}

impl Dialogue {
    pub(super) async fn start(worker: &Worker) -> Result<(Self, Announcement), String> {
        let started = child::start(&worker.program, &[]);
        let (control, stdout, stderr, waiting) =
            started.map_err(|error| format!("it cannot be started: {error}"))?;
        let log = tokio::spawn(async move {
            let mut tail = LogTail::default();
            for_each_line(stderr, |line| tail.add(line)).await;
            tail
        });
        let mut output = BufReader::new(stdout);
        let announced = timeout(ANNOUNCEMENT_TIMEOUT, announcement::read(&mut output)).await;
        let (send, lines) = mpsc::channel(LINES_AHEAD);
        let mut dialogue = Self {
            control,
            lines,
            ending: Some(tokio::spawn(waiting.ending())),
            log,
            waiting: VecDeque::new(),
            ended: BTreeSet::new(),
            tasks: 0,
            concurrency: 1,
            over: false,
        };
        match announced {
            Ok(Ok(Some(announcement))) => {
                tokio::spawn(read_lines(output, send));
                dialogue.concurrency = announcement.concurrency.unwrap_or(1);
                Ok((dialogue, announcement))
            }
            Ok(Ok(None)) => Err(dialogue.end_text("before it had announced its classes").await),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(format!(
                "it sent no announcement within {}; its first line is {{\"protocol\": 1, \"classes\": […]}}",
                span(ANNOUNCEMENT_TIMEOUT)
            )),
        }
    }

    /// Whether it can be used for another case.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn kill(&mut self) {
        self.over = true;
        self.control.kill();
    }

    pub(super) fn send(&self, line: &Value) {
        self.control.input(format!("{line}\n").into_bytes());
    }

    /// Gives it a task, and returns the id of the attempt.
    pub(super) fn task(&mut self, class: &str, parameters: &Value) -> String {
        self.task_with(class, parameters, &json!({}))
    }

    /// Gives it a task with more fields.
    pub(super) fn task_with(&mut self, class: &str, parameters: &Value, more: &Value) -> String {
        self.tasks += 1;
        let id = format!("{}.1", self.tasks);
        let mut line = json!({
            "id": id,
            "task_id": self.tasks,
            "attempt": 1,
            "retry_number": 0,
            "class": class,
            "correlation_id": format!("check {}", self.tasks),
            "parameters": parameters,
            "field_of_a_later_version": [true],
        });
        if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
            line.extend(more.clone());
        }
        self.send(&line);
        id
    }

    /// The next line about an attempt.
    pub(super) async fn next(&mut self, id: &str) -> Result<Value, String> {
        if let Some(at) = self.waiting.iter().position(|line| line["id"] == id) {
            return Ok(self.waiting.remove(at).unwrap_or_default());
        }
        for _ in 0..LINES_MAX {
            let line = self.line().await?.ok_or_else(|| "it closed its standard output".to_owned());
            let line = match line {
                Ok(line) => line,
                Err(why) => return Err(self.end_text(&why).await),
            };
            match line["id"].as_str() {
                Some(of) if of == id => return Ok(line),
                Some(of) if self.ended.contains(of) => {
                    return Err(format!(
                        "it sent a line about an attempt that has ended: {}",
                        shown(&line)
                    ));
                }
                Some(of) if !self.has_given(of) => {
                    return Err(format!("it sent a line about {of:?}, which it does not have"));
                }
                Some(_) if self.waiting.len() == LINES_MAX => return Err(too_many_lines()),
                Some(_) => self.waiting.push_back(line),
                // Its concurrency, for example.
                None => {}
            }
        }
        Err(too_many_lines())
    }

    fn has_given(&self, id: &str) -> bool {
        let number = id.strip_suffix(".1").and_then(|number| number.parse::<i64>().ok());
        number.is_some_and(|number| (1..=self.tasks).contains(&number))
    }

    /// The answer of an attempt, after its log and progress lines, which are returned, too.
    pub(super) async fn answer(&mut self, id: &str) -> Result<(Value, Vec<Value>), String> {
        let mut before = Vec::new();
        loop {
            let line = self.next(id).await?;
            let has = |key: &str| line.get(key).is_some();
            if ["step", "sleep", "wait", "call"].into_iter().any(has) {
                return Err(format!("it sent a request instead of an answer: {}", shown(&line)));
            }
            if ["result", "error", "snooze", "rate_limited"].into_iter().any(has) {
                self.ended.insert(id.to_owned());
                return Ok((line, before));
            }
            if !has("log") && !has("progress") {
                return Err(format!("it sent a line without a meaning: {}", shown(&line)));
            }
            if before.len() == LINES_MAX {
                return Err(too_many_lines());
            }
            before.push(line);
        }
    }

    /// The result of an attempt that must succeed.
    pub(super) async fn result(&mut self, id: &str) -> Result<Value, String> {
        let (answer, _) = self.answer(id).await?;
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(format!("it answered without a result: {}", shown(&answer))),
        }
    }

    /// Ends an attempt: nothing more may come for it.
    pub(super) fn end(&mut self, id: &str, ended: &str, message: &str) {
        self.send(&json!({ "id": id, "ended": ended, "message": message }));
        self.ended.insert(id.to_owned());
    }

    /// Closes its standard input.
    pub(super) fn end_input(&mut self) {
        self.over = true;
        self.control.end_input();
    }

    /// Waits until it has ended, and sent nothing more than what was waited for.
    pub(super) async fn ending(&mut self) -> Result<ProcessEnd, String> {
        self.over = true;
        if let Some(line) = self.line().await? {
            return Err(format!("it sent one more line: {}", shown(&line)));
        }
        let Some(ending) = self.ending.take() else {
            return Err("it has ended".to_owned());
        };
        match timeout(LINE_TIMEOUT, ending).await {
            Ok(ended) => ended.map_err(|error| error.to_string()),
            Err(_) => Err(format!("it still runs after {}", span(LINE_TIMEOUT))),
        }
    }

    /// The next line; `None` after the last.
    async fn line(&mut self) -> Result<Option<Value>, String> {
        match timeout(LINE_TIMEOUT, self.lines.recv()).await {
            Ok(None) => Ok(None),
            Ok(Some(line)) => line.map(Some),
            Err(_) => Err(format!("it sent no line within {}", span(LINE_TIMEOUT))),
        }
    }

    /// How it ended, with the last line of its standard error.
    async fn end_text(&mut self, when: &str) -> String {
        self.kill();
        let tail = timeout(Duration::from_secs(2), &mut self.log).await;
        let tail = tail.ok().and_then(Result::ok).unwrap_or_default();
        let last = tail.last().map_or_else(String::new, |last| {
            format!("; the last line of its standard error: {}", brief(last, SHOWN_CHARS))
        });
        format!("it ended {when}{last}")
    }
}

fn too_many_lines() -> String {
    format!("it sent more than {LINES_MAX} lines instead of an answer")
}

pub(super) fn shown(line: &Value) -> String {
    brief(&line.to_string(), SHOWN_CHARS)
}

async fn read_lines(mut output: BufReader<ChildStdout>, send: Sender<Result<Value, String>>) {
    loop {
        let mut line = Vec::new();
        let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
        let read = (&mut output).take(limit).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) {
            return;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let value = if line.ends_with(b"\n") {
            serde_json::from_slice(&line).ok().filter(Value::is_object).ok_or_else(|| {
                let text = String::from_utf8_lossy(&line);
                format!(
                    "it printed a line that is not a JSON object: {:?}",
                    brief(&text, SHOWN_CHARS)
                )
            })
        } else {
            Err(format!("it sent a line without an end, or of more than {LINE_BYTES_MAX} bytes"))
        };
        if send.send(value).await.is_err() {
            return;
        }
    }
}
