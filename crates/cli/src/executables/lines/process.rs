//! One process: its slots, its standard error, and the tasks that it has.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use task_engine::{Context, Failure};
use task_engine_core::display::count;
use tokio::net::unix::pipe;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::executables::child::{ProcessControl, ProcessEnd};
use crate::executables::config::Executable;
use crate::executables::durable::{self, DurableRequest};
use crate::executables::log::{LineSplitter, LogTail};
use crate::executables::once::{end_text, not_started};
use crate::executables::protocol;
use crate::executables::resources::{give_up, is_shortage};

/// How many ended tasks of a process are remembered.
const ENDED_MAX: usize = 1000;
/// How many durable calls of a task may wait for their answers.
const REQUESTS_MAX: usize = 100;
/// More than a pipe holds: enough for all that was logged before an answer.
const READS_MAX: usize = 64;

/// The result of an attempt.
pub(super) type AttemptResult = Result<Box<RawValue>, Failure>;
/// A durable call, or what is wrong with it.
pub(super) type ParsedRequest = Result<DurableRequest, String>;

pub(super) struct Process {
    pub(super) control: ProcessControl,
    /// Locked before the slots, if both are.
    pub(super) stderr: Mutex<StderrLog>,
    pub(super) slots: Mutex<TaskSlots>,
}

/// The standard error. It is read before an answer is handled, so that earlier lines
/// belong to the answered task, and not to the next one.
pub(super) struct StderrLog {
    /// A worker that connects has none.
    pub(super) file: Option<File>,
    pub(super) lines: LineSplitter,
    pub(super) tail: LogTail,
}

impl StderrLog {
    pub(super) fn new(file: Option<File>) -> Self {
        Self { file, lines: LineSplitter::default(), tail: LogTail::default() }
    }
}

pub(super) enum StderrState {
    Empty,
    Flooding,
    Closed,
}

pub(super) struct TaskSlots {
    pub(super) taken: HashMap<String, TaskSlot>,
    pub(super) all: usize,
    /// Set if it gets no more tasks and is killed: the reason.
    pub(super) over: Option<String>,
    /// Tasks that it had before: late answers for them are ignored.
    ended: VecDeque<String>,
    /// It takes no more tasks. Its input is closed when it has none.
    stopping: Option<ProcessControl>,
}

pub(super) struct TaskSlot {
    pub(super) answer: oneshot::Sender<AttemptResult>,
    pub(super) requests: mpsc::Sender<ParsedRequest>,
    pub(super) executable: Arc<Executable>,
    pub(super) cx: Context<()>,
}

/// What a process sends to the attempt that has a slot of it.
pub(super) struct SlotReceiver {
    pub(super) answer: oneshot::Receiver<AttemptResult>,
    pub(super) requests: mpsc::Receiver<ParsedRequest>,
}

impl TaskSlot {
    /// The answer, if it is within the limits of the class.
    pub(super) fn checked(&self, answer: protocol::TaskAnswer) -> AttemptResult {
        match answer {
            protocol::TaskAnswer::Result(result)
                if result.get().len() > self.executable.result_bytes =>
            {
                let limit = count(self.executable.result_bytes, "byte");
                let message = format!("its result is longer than {limit}");
                Err(Failure::named("ResultTooLong", message).with_trace(Vec::new()))
            }
            protocol::TaskAnswer::Result(result) => Ok(result),
            protocol::TaskAnswer::Failed(failure) => Err(failure),
            protocol::TaskAnswer::Snooze(time, reason) => {
                Err(Failure::snooze_because(time, reason))
            }
            protocol::TaskAnswer::RateLimited(time, reason) => {
                Err(Failure::rate_limited_because(time, reason))
            }
        }
    }
}

/// The failure of a task whose process ended without an answer. An uncaught exception
/// of the process belongs to the task if it was its only one.
pub(super) fn process_ended(
    slot: &TaskSlot,
    ended: &ProcessEnd,
    why: &str,
    alone: bool,
    tail: &LogTail,
) -> Failure {
    if let ProcessEnd::NotStarted(number, why) = ended {
        return if is_shortage(*number) {
            give_up(why)
        } else {
            not_started(&slot.executable, why)
        };
    }
    let uncaught = if *ended == ProcessEnd::Exited(1) { tail.uncaught() } else { None };
    match uncaught {
        Some(failure) if alone => failure,
        _ => {
            let last = tail.last_words();
            let how = end_text(ended);
            let message = format!("its process ended before it had answered ({how}): {why}{last}");
            tail.of(Failure::named("ProcessEnded", message))
        }
    }
}

impl TaskSlots {
    pub(super) fn new(all: usize) -> Self {
        let (taken, ended) = (HashMap::new(), VecDeque::new());
        Self { taken, all, over: None, ended, stopping: None }
    }

    /// Whether it had this task before.
    pub(super) fn had(&self, id: &str) -> bool {
        self.ended.iter().any(|ended| ended == id)
    }

    /// Whether it was stopping, and has answered all of its tasks.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopping.is_some() && self.taken.is_empty()
    }

    /// Assigns no more tasks.
    pub(super) fn stop(&mut self, control: &ProcessControl) {
        if self.taken.is_empty() {
            control.end_input();
        }
        self.stopping = Some(control.clone());
    }

    /// Frees the slot of a task.
    pub(super) fn end(&mut self, id: &str) -> Option<TaskSlot> {
        let slot = self.taken.remove(id)?;
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(id.to_owned());
        if let Some(control) = self.stopping.as_ref().filter(|_| self.taken.is_empty()) {
            control.end_input();
        }
        Some(slot)
    }

    /// A text of a process without the secrets of any task that it has.
    pub(super) fn without_secrets<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.taken.values().fold(Cow::Borrowed(text), |text, slot| {
            match slot.cx.without_secrets(&text) {
                Cow::Owned(shown) => Cow::Owned(shown),
                Cow::Borrowed(_) => text,
            }
        })
    }
}

impl Process {
    pub(super) fn take_slot(
        self: &Arc<Self>,
        id: &str,
        executable: &Arc<Executable>,
        cx: &Context<()>,
    ) -> Option<(Arc<Self>, SlotReceiver)> {
        let mut slots = lock(&self.slots);
        let takes_none = slots.over.is_some() || slots.stopping.is_some();
        if takes_none || slots.taken.len() >= slots.all {
            return None;
        }
        let (answer, answer_receiver) = oneshot::channel();
        let (requests, request_receiver) = mpsc::channel(REQUESTS_MAX);
        let (executable, cx) = (executable.clone(), cx.clone());
        slots.taken.insert(id.to_owned(), TaskSlot { answer, requests, executable, cx });
        let receiver = SlotReceiver { answer: answer_receiver, requests: request_receiver };
        Some((self.clone(), receiver))
    }

    /// Passes a durable call to the attempt that serves it. An error ends the process.
    pub(super) fn take_request(&self, id: &str, request: ParsedRequest) -> Result<(), String> {
        let mut slots = lock(&self.slots);
        let sent = slots.taken.get(id).map(|slot| slot.requests.try_send(request));
        match sent {
            Some(Ok(())) => {}
            Some(Err(TrySendError::Full(_))) => {
                let message = format!(
                    "its process sent more than {REQUESTS_MAX} requests that are not answered yet; wait for the answers"
                );
                let failure = Failure::named("MalformedRequest", message).with_trace(Vec::new());
                self.control.input(durable::ended(id, &failure));
                if let Some(slot) = slots.end(id) {
                    let _ = slot.answer.send(Err(failure));
                }
            }
            None if !slots.had(id) => {
                return Err(format!("it sent a request for {id:?}, which it does not have"));
            }
            Some(Err(TrySendError::Closed(_))) | None => {
                self.control.input(durable::ended_before(id));
            }
        }
        Ok(())
    }

    /// Reads the available standard error, without waiting.
    pub(super) fn read_log(
        &self,
        worker: &str,
        read: impl Fn(&mut File, &mut [u8]) -> std::io::Result<usize>,
    ) -> StderrState {
        let mut stderr = lock(&self.stderr);
        let StderrLog { file: Some(file), lines, tail } = &mut *stderr else {
            return StderrState::Closed;
        };
        let mut each = |line: &str| {
            let slots = lock(&self.slots);
            // Whosever they are, and before anything is cut off.
            let line = &*slots.without_secrets(line);
            tail.add(line);
            let mut taken = slots.taken.values();
            match (taken.next(), taken.next()) {
                (Some(slot), None) => slot.cx.log(line),
                // Its task is unknown.
                _ => tracing::info!("Worker process {worker}: {line}"),
            }
        };
        let mut buffer = [0; 16 * 1024];
        for _ in 0..READS_MAX {
            match read(file, &mut buffer) {
                Ok(read @ 1..) => lines.add(&buffer[..read], &mut each),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return StderrState::Empty,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    lines.end(&mut each);
                    return StderrState::Closed;
                }
            }
        }
        StderrState::Flooding
    }

    /// Assigns no more tasks to it, and kills it.
    pub(super) fn end(&self, why: &str) {
        lock(&self.slots).over.get_or_insert_with(|| why.to_owned());
        self.control.kill();
    }
}

/// Reads the standard error whenever it has data.
pub(super) async fn log(worker: String, process: Arc<Process>, stderr: pipe::Receiver) {
    while stderr.readable().await.is_ok() {
        match process.read_log(&worker, |_, buffer| stderr.try_read(buffer)) {
            StderrState::Empty => {}
            StderrState::Flooding => tokio::task::yield_now().await,
            StderrState::Closed => return,
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
