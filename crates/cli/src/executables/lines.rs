//! Persistent processes: one line of JSON a task, one line an answer.
//!
//! Each worker has a pool of processes, which are started on demand. The engine claims no more
//! tasks than there are slots. A task gets a slot of a process; its line goes in, its answer comes
//! out. A malformed answer fails only its task. If a process dies, or prints a line that belongs to
//! no task, all of its tasks fail with its last log lines. The next task gets a new process.
//!
//! A worker that connects over a socket has a pool of its own, with its connection in the
//! place of a process; it is never replaced.
//!
//! Durable calls of a task are served by its attempt, one after the other, so that the
//! reader of the process never waits for the store. If one suspends the task, its slot is
//! free at once, and the process stays.

mod process;

use std::collections::BTreeSet;
use std::fs::File;
use std::future::pending;
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use task_engine::{Context, Failure, LogLevel};
use task_engine_core::display::span;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::process::{
    AttemptResult, Process, SlotReceiver, StderrLog, TaskSlot, TaskSlots, lock, log, process_ended,
};
use super::announcement::Announcement;
use super::child::{self, ProcessControl, ProcessEnd};
use super::config::{Executable, Worker};
use super::dependencies;
use super::durable::{ClassOptions, DurableCalls};
use super::once::{end_text, not_started};
use super::protocol::{self, MalformedLine, TaskUpdate, WorkerLine};
use super::resources::{ShortageWait, shortage_of};

/// How much longer than a result its line may be.
pub(super) const ENVELOPE_BYTES: usize = 64 * 1024;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long to read the log after a process has ended.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);

/// The processes of a worker.
pub(super) struct ProcessPool {
    worker: Arc<Worker>,
    source: ProcessSource,
    /// Its classes.
    classes: BTreeSet<String>,
    /// The longest line that a process may print.
    line_bytes_max: usize,
    options: ClassOptions,
    state: Mutex<PoolState>,
    /// A slot is free, or a process may be started.
    changed: Notify,
    /// Set when a worker that has connected takes no more tasks.
    stopping: CancellationToken,
}

/// Where the processes of a pool come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessSource {
    /// The pool starts its program.
    Program,
    /// One process has connected.
    Connection,
}

#[derive(Default)]
struct PoolState {
    processes: Vec<Arc<Process>>,
    /// How many died in a row without an answer.
    deaths: u32,
    not_before: Option<Instant>,
}

impl ProcessPool {
    /// `classes` are those of the worker, `options` those of all classes.
    pub(super) fn new(
        worker: Arc<Worker>,
        source: ProcessSource,
        classes: &[&Executable],
        options: ClassOptions,
    ) -> Self {
        let result_bytes = classes.iter().map(|one| one.result_bytes).max().unwrap_or_default();
        Self {
            worker,
            source,
            classes: classes.iter().map(|one| one.class.clone()).collect(),
            line_bytes_max: result_bytes + ENVELOPE_BYTES,
            options,
            state: Mutex::default(),
            changed: Notify::new(),
            stopping: CancellationToken::new(),
        }
    }

    /// Waits until a worker that has connected takes no more tasks.
    pub(super) async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Runs one attempt. Its time limit starts when a process has it.
    pub(super) async fn run(
        self: Arc<Self>,
        executable: Arc<Executable>,
        parameters: Box<RawValue>,
        cx: Context<()>,
    ) -> Result<Box<RawValue>, Failure> {
        cx.keep_log_lines(executable.log_lines);
        let id = format!("{}.{}", cx.task_id(), cx.attempt());
        let ended = dependencies::read(&cx, dependencies::LINE_BYTES_MAX).await?;
        let (process, mut receiver) = tokio::select! {
            assigned = self.slot(&id, &executable, &cx) => assigned?,
            () = cx.cancelled() => return Err(Failure::named("NotBegun", "no process had started it yet")),
        };
        // From here on, dropping this attempt kills its process.
        let mut held =
            ProcessTaskGuard { process: &process, id: &id, pool: &self, answered: false };
        process.control.input(protocol::request(&id, &parameters, ended.as_deref(), &cx)?);
        let limit = executable.timeout;
        let time_is_over = async {
            match limit {
                Some(limit) => sleep(limit).await,
                None => pending().await,
            }
        };
        let calls = DurableCalls::new(&id, &cx, executable.result_bytes, &self.options);
        let mut serving = Box::pin(self.serve(&process, calls, &mut receiver));
        let timed_out = tokio::select! {
            answer = &mut serving => {
                held.answered = true;
                return answer;
            }
            () = time_is_over => true,
            () = cx.cancelled() => false,
        };
        process.control.input(protocol::cancel(&id));
        if !timed_out {
            // The engine drops this when the grace is over, and with it the process.
            let answer = serving.await;
            held.answered = true;
            return answer;
        }
        if timeout(executable.grace, &mut serving).await.is_err() {
            process.end("a task ended neither within its time limit nor when it was cancelled");
            // A durable call may wait for a store that cannot be reached.
            drop(serving);
            let _ = receiver.answer.await;
        }
        held.answered = true;
        let message = format!("not finished after {}", span(limit.unwrap_or_default()));
        Err(Failure::named("Timeout", message).with_trace(Vec::new()))
    }

    /// Serves the durable calls of a task until it is answered, or until one of them ends
    /// its attempt. Calls that came before the answer are served before it counts.
    async fn serve(
        &self,
        process: &Process,
        mut calls: DurableCalls<'_>,
        receiver: &mut SlotReceiver,
    ) -> AttemptResult {
        loop {
            let request = tokio::select! {
                biased;
                Some(request) = receiver.requests.recv() => request,
                answer = &mut receiver.answer => {
                    return answer.unwrap_or_else(|_| Err(no_answer()));
                }
            };
            match calls.serve(request).await {
                Ok(answer) => process.control.input(answer),
                Err(end) => {
                    process.control.input(calls.ended(&end));
                    return Err(end.with_trace(Vec::new()));
                }
            }
            lock(&self.state).deaths = 0;
        }
    }

    /// A free slot of a process, or of a new process.
    async fn slot(
        self: &Arc<Self>,
        id: &str,
        executable: &Arc<Executable>,
        cx: &Context<()>,
    ) -> Result<(Arc<Process>, SlotReceiver), Failure> {
        let mut shortage = ShortageWait::new();
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let next = {
                let mut state = lock(&self.state);
                let assigned = state.processes.iter().find_map(|p| p.take_slot(id, executable, cx));
                if let Some(assigned) = assigned {
                    return Ok(assigned);
                }
                let is_connection = self.source == ProcessSource::Connection;
                let is_over = self.stopping.is_cancelled() || state.processes.is_empty();
                if is_connection && is_over {
                    return Err(Failure::snooze_because(
                        Duration::ZERO,
                        "its worker had disconnected before it began",
                    ));
                }
                let may_start = !is_connection && state.processes.len() < self.worker.processes;
                match state.not_before.filter(|at| *at > Instant::now()) {
                    None if may_start => match self.start() {
                        Ok(process) => {
                            let assigned = process.take_slot(id, executable, cx);
                            state.processes.push(process);
                            match assigned {
                                Some(assigned) => return Ok(assigned),
                                None => continue,
                            }
                        }
                        Err(error) => NextStep::StartFailed(error),
                    },
                    pause => NextStep::At(pause.filter(|_| may_start)),
                }
            };
            match next {
                NextStep::At(Some(at)) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(at) => {}
                },
                NextStep::At(None) => changed.await,
                NextStep::StartFailed(error) => match shortage_of(&error) {
                    Some(why) => shortage.wait(&why, cx).await?,
                    None => return Err(not_started(executable, &error.to_string())),
                },
            }
        }
    }

    fn start(self: &Arc<Self>) -> std::io::Result<Arc<Process>> {
        let (control, stdout, stderr, waiting) = child::start(&self.worker.program, &[])?;
        // The runtime has made it non-blocking.
        let stderr = stderr.into_owned_fd()?;
        let stderr_log = StderrLog::new(Some(File::from(stderr.try_clone()?)));
        let slots = TaskSlots::new(self.worker.concurrency);
        let process =
            Arc::new(Process { control, stderr: Mutex::new(stderr_log), slots: Mutex::new(slots) });
        let stderr = pipe::Receiver::from_owned_fd(stderr)?;
        let logging = log(self.worker.name.clone(), process.clone(), stderr);
        let (pool, watched) = (self.clone(), process.clone());
        tokio::spawn(async move {
            pool.watch_process(watched, stdout, logging, waiting.ending(), pending()).await;
        });
        Ok(process)
    }

    /// Gives tasks to a worker that has connected, until its connection is closed, by
    /// either side. `closed` completes if it is closed by this one.
    pub(super) async fn serve_connection(
        self: Arc<Self>,
        control: ProcessControl,
        lines: impl AsyncRead + Send + Unpin,
        closed: impl Future<Output = ()> + Send,
    ) {
        let slots = Mutex::new(TaskSlots::new(self.worker.concurrency));
        let process = Process { control, stderr: Mutex::new(StderrLog::new(None)), slots };
        let process = Arc::new(process);
        lock(&self.state).processes.push(process.clone());
        self.changed.notify_waiters();
        let ending = std::future::ready(ProcessEnd::Disconnected);
        self.watch_process(process, lines, std::future::ready(()), ending, closed).await;
    }

    /// Reads from a process until it ends.
    async fn watch_process(
        self: Arc<Self>,
        process: Arc<Process>,
        stdout: impl AsyncRead + Send + Unpin,
        logging: impl Future<Output = ()> + Send + 'static,
        ending: impl Future<Output = ProcessEnd> + Send,
        closed: impl Future<Output = ()> + Send,
    ) {
        let logging = tokio::spawn(logging);
        let why = tokio::select! {
            why = self.read_answers(&process, stdout) => why,
            () = closed => "the engine closed its connection".to_owned(),
        };
        let why = lock(&process.slots).without_secrets(&why).into_owned();
        process.end(&why);
        let ended = ending.await;
        // Its last log lines belong to the errors of its tasks.
        let _ = timeout(LOG_TIMEOUT, logging).await;
        let (why, stopped) = {
            let slots = lock(&process.slots);
            (slots.over.clone().unwrap_or(why), slots.has_stopped())
        };
        {
            let mut state = lock(&self.state);
            state.processes.retain(|other| !Arc::ptr_eq(other, &process));
            if !stopped {
                let pause = FIRST_PAUSE.saturating_mul(1 << state.deaths.min(16));
                state.not_before = Some(Instant::now() + pause.min(LONGEST_PAUSE));
                state.deaths += 1;
            }
        }
        let name = &self.worker.name;
        if stopped {
            tracing::info!("Worker process {name} has stopped");
        } else {
            tracing::warn!("Worker process {name} ended ({}): {why}", end_text(&ended));
        }
        let taken: Vec<TaskSlot> =
            lock(&process.slots).taken.drain().map(|(_, slot)| slot).collect();
        let alone = taken.len() == 1;
        for slot in taken {
            let failure = process_ended(&slot, &ended, &why, alone, &lock(&process.stderr).tail);
            let _ = slot.answer.send(Err(failure));
        }
        self.changed.notify_waiters();
    }

    /// Handles the lines of a process. Returns why it ended: its output was closed, or
    /// a line belongs to no task.
    async fn read_answers(&self, process: &Process, stdout: impl AsyncRead + Unpin) -> String {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        loop {
            line.clear();
            let limit = u64::try_from(self.line_bytes_max).unwrap_or(u64::MAX);
            match (&mut reader).take(limit).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => {
                    return match self.source {
                        ProcessSource::Program => "it closed its standard output".to_owned(),
                        ProcessSource::Connection => "its connection was closed".to_owned(),
                    };
                }
                Ok(_) if line.last() != Some(&b'\n') && line.len() >= self.line_bytes_max => {
                    return format!("it printed a line of more than {} bytes", self.line_bytes_max);
                }
                Ok(_) if line.trim_ascii().is_empty() => {}
                Ok(_) => {
                    process.read_log(&self.worker.name, |file, buffer| file.read(buffer));
                    if let Err(why) = self.take(process, protocol::parse(&line)) {
                        return lock(&process.slots).without_secrets(&why).into_owned();
                    }
                }
            }
        }
    }

    /// Handles a line. An error ends the process: the line belongs to an unknown task,
    /// so every task might wait for it.
    fn take(
        &self,
        process: &Process,
        line: Result<WorkerLine, MalformedLine>,
    ) -> Result<(), String> {
        let update = match line {
            Ok(WorkerLine::Announcement(announcement)) => {
                self.check_classes(&announcement);
                if let Some(number) = announcement.concurrency {
                    self.set_concurrency(process, number);
                }
                return Ok(());
            }
            Ok(WorkerLine::Concurrency(number)) => {
                self.set_concurrency(process, number);
                return Ok(());
            }
            Ok(WorkerLine::Stopping) => {
                if self.source == ProcessSource::Connection {
                    self.stopping.cancel();
                }
                lock(&process.slots).stop(&process.control);
                self.changed.notify_waiters();
                return Ok(());
            }
            Ok(WorkerLine::Request(id, request)) => return process.take_request(&id, request),
            Ok(WorkerLine::Task(update)) => *update,
            Err(MalformedLine { id: None, why }) => return Err(why),
            Err(MalformedLine { id: Some(id), why }) => {
                let failure =
                    Failure::named("MalformedAnswer", format!("its process answered: {why}"));
                let answer = Some(protocol::TaskAnswer::Failed(failure.with_trace(Vec::new())));
                TaskUpdate { id, answer, ..TaskUpdate::default() }
            }
        };
        let mut slots = lock(&process.slots);
        let Some(slot) = slots.taken.get(&update.id) else {
            let is_late = update.answer.is_none() || slots.had(&update.id);
            return if is_late {
                Ok(())
            } else {
                Err(format!("it answered for {:?}, which it does not have", update.id))
            };
        };
        for line in &update.log {
            slot.cx.log(line);
        }
        if let Some((percent, message)) = update.progress {
            slot.cx.progress(percent, message);
        }
        for warning in update.warnings {
            slot.cx.log_at(LogLevel::Warn, warning);
        }
        let Some(answer) = update.answer else {
            return Ok(());
        };
        if let Some(slot) = slots.end(&update.id) {
            let answer = slot.checked(answer);
            let _ = slot.answer.send(answer);
        }
        drop(slots);
        lock(&self.state).deaths = 0;
        self.changed.notify_waiters();
        Ok(())
    }
}

impl ProcessPool {
    fn set_concurrency(&self, process: &Process, number: usize) {
        let known = self.worker.concurrency;
        if number > known {
            let name = &self.worker.name;
            tracing::warn!(
                "Worker process {name} takes {number} tasks at a time and gets {known}; write concurrency = {number} into task-engine.toml to use that"
            );
        }
        lock(&process.slots).all = number.min(known);
    }

    /// The classes of an engine are fixed when it starts; its worker may have changed since.
    fn check_classes(&self, announcement: &Announcement) {
        let now: BTreeSet<String> = announcement.classes.keys().cloned().collect();
        let list = |classes: Vec<&String>| {
            classes.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        };
        let (gone, new) = (
            list(self.classes.difference(&now).collect()),
            list(now.difference(&self.classes).collect()),
        );
        let name = &self.worker.name;
        if !gone.is_empty() {
            tracing::warn!(
                "Worker process {name} no longer has these classes, and their tasks fail: {gone}; restart the engine"
            );
        }
        if !new.is_empty() {
            tracing::warn!(
                "Worker process {name} has classes that this engine does not know: {new}; restart the engine to use them"
            );
        }
    }
}

/// What a task without a slot waits for.
enum NextStep {
    /// The end of another task, or this time.
    At(Option<Instant>),
    /// A process could not be started.
    StartFailed(std::io::Error),
}

/// A task that a process has. Dropped without an answer, it kills the process, so
/// that no attempt continues after its end.
struct ProcessTaskGuard<'a> {
    process: &'a Process,
    id: &'a str,
    pool: &'a ProcessPool,
    answered: bool,
}

impl Drop for ProcessTaskGuard<'_> {
    fn drop(&mut self) {
        let left = lock(&self.process.slots).end(self.id).is_some();
        if left && !self.answered {
            self.process.end("a task was cancelled and did not end");
        }
        self.pool.changed.notify_waiters();
    }
}

fn no_answer() -> Failure {
    Failure::named("ProcessEnded", "its process ended before it had answered")
}
