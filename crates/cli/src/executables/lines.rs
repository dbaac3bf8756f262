//! Processes that stay: one line of JSON a task, one line an answer.
//!
//! Each class has a pool of processes, which are started when tasks want them.
//! A task gets a seat at one of them; its line goes in, its answer comes out. A
//! process that dies, or says what nobody understands, takes the tasks that it
//! has with it: they fail with its last words, and the next task gets a new one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use task_engine::model::words::span;
use task_engine::{Failure, Run};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::ChildStdout;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::child::{self, Control, Waiting};
use super::config::{Executable, Mode};
use super::log::{Lines, Tail};
use super::once::{not_started, said, wait};

/// How much longer than a result its line may be.
const ENVELOPE_BYTES: usize = 64 * 1024;
const CONCURRENCY_MAX: usize = 10_000;
/// More than a pipe holds: enough for all that was said before an answer.
const READS_MAX: usize = 64;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// When a process has ended, all that could write has; this is for the rest.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// A task, as a process reads it.
#[derive(Serialize)]
struct Request<'a> {
    id: &'a str,
    task_id: i64,
    attempt: i32,
    retry_number: u32,
    class: &'a str,
    correlation_id: &'a str,
    parameters: &'a RawValue,
}

/// What a process says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    id: Option<String>,
    /// How many tasks it takes at a time; without an id.
    concurrency: Option<usize>,
    #[serde(default, deserialize_with = "there")]
    result: Option<Box<RawValue>>,
    error: Option<Complaint>,
    /// `false` for never; seconds or a text like "30s" for later.
    retry: Option<serde_json::Value>,
    log: Option<String>,
    progress: Option<f64>,
    message: Option<String>,
}

/// `null` is a result, too.
fn there<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(value).map(Some)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Complaint {
    Message(String),
    Whole {
        message: String,
        #[serde(default)]
        exception: Option<String>,
        #[serde(default)]
        backtrace: Vec<String>,
    },
}

/// What becomes of a task.
type Answer = Result<Box<RawValue>, Failure>;

/// The processes of a class.
pub(super) struct Pool {
    executable: Arc<Executable>,
    processes: usize,
    concurrency: Option<usize>,
    state: Mutex<State>,
    /// A seat is free, or a process may be started.
    changed: Notify,
}

#[derive(Default)]
struct State {
    processes: Vec<Arc<Process>>,
    /// How many died in a row without having answered anything.
    deaths: u32,
    not_before: Option<Instant>,
}

struct Process {
    control: Control,
    /// Locked before the seats, if both are.
    stderr: Mutex<Stderr>,
    seats: Mutex<Seats>,
}

/// The standard error. It is read before an answer counts, so that what was said
/// before it belongs to its task, and not to the next one.
struct Stderr {
    file: File,
    lines: Lines,
    tail: Tail,
}

enum LogIs {
    Empty,
    Flooding,
    Over,
}

struct Seats {
    taken: HashMap<String, Seat>,
    all: usize,
    /// Why it gets no more tasks, and why it is killed.
    over: Option<String>,
}

struct Seat {
    answer: oneshot::Sender<Answer>,
    run: Run<()>,
}

impl Pool {
    pub(super) fn new(executable: Arc<Executable>) -> Self {
        let (processes, concurrency) = match executable.mode {
            Mode::Lines { processes, concurrency } => (processes, concurrency),
            Mode::Once => (1, None),
        };
        let state = Mutex::default();
        Self { executable, processes, concurrency, state, changed: Notify::new() }
    }

    /// Runs one attempt. Its time begins when a process has it.
    pub(super) async fn run(
        self: Arc<Self>,
        parameters: Box<RawValue>,
        run: Run<()>,
    ) -> Result<Box<RawValue>, Failure> {
        let id = format!("{}.{}", run.task_id(), run.attempt());
        let (process, mut answer) = tokio::select! {
            seated = self.seat(&id, &run) => seated?,
            () = run.cancelled() => return Err(Failure::named("NotBegun", "no process had it yet")),
        };
        // From here on, whoever drops this attempt drops its process, too.
        let mut held = Held { process: &process, id: &id, pool: &self, answered: false };
        process.control.input(request(&id, &parameters, &run)?);
        let limit = self.executable.timeout;
        let time_is_over = async {
            match limit {
                Some(limit) => sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let timed_out = tokio::select! {
            answer = &mut answer => {
                held.answered = true;
                return answer.unwrap_or_else(|_| Err(nobody_answers()));
            }
            () = time_is_over => true,
            () = run.cancelled() => false,
        };
        process.control.input(format!("{}\n", serde_json::json!({ "cancel": id })).into_bytes());
        if !timed_out {
            // The engine drops this when the grace is over, and with it the process.
            let answer = answer.await;
            held.answered = true;
            return answer.unwrap_or_else(|_| Err(nobody_answers()));
        }
        if timeout(self.executable.grace, &mut answer).await.is_err() {
            process.end("a task did not end in its time, nor when it was told to");
            let _ = answer.await;
        }
        held.answered = true;
        let message = format!("not finished after {}", span(limit.unwrap_or_default()));
        Err(Failure::named("Timeout", message).with_trace(Vec::new()))
    }

    /// A seat at a process that has one free, or at a new process.
    async fn seat(
        self: &Arc<Self>,
        id: &str,
        run: &Run<()>,
    ) -> Result<(Arc<Process>, oneshot::Receiver<Answer>), Failure> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let not_before = {
                let mut state = lock(&self.state);
                if let Some(seated) = state.processes.iter().find_map(|p| p.take_seat(id, run)) {
                    return Ok(seated);
                }
                let may_start = state.processes.len() < self.processes;
                match state.not_before.filter(|at| *at > Instant::now()) {
                    None if may_start => {
                        let process = self.start()?;
                        let seated = process.take_seat(id, run);
                        state.processes.push(process);
                        match seated {
                            Some(seated) => return Ok(seated),
                            None => continue,
                        }
                    }
                    pause => pause.filter(|_| may_start),
                }
            };
            match not_before {
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    fn start(self: &Arc<Self>) -> Result<Arc<Process>, Failure> {
        let (control, stdout, stderr, waiting) = child::start(&self.executable, &[])
            .map_err(|error| not_started(&self.executable, &error.to_string()))?;
        let seats = Seats { taken: HashMap::new(), all: self.concurrency.unwrap_or(1), over: None };
        // The runtime has made it one that never blocks.
        let stderr = stderr.into_owned_fd()?;
        let file = File::from(stderr.try_clone()?);
        let log = Stderr { file, lines: Lines::default(), tail: Tail::default() };
        let (stderr_lock, seats) = (Mutex::new(log), Mutex::new(seats));
        let process = Arc::new(Process { control, stderr: stderr_lock, seats });
        let stderr = pipe::Receiver::from_owned_fd(stderr)?;
        tokio::spawn(self.clone().attend(process.clone(), stdout, stderr, waiting));
        Ok(process)
    }

    /// Listens to a process until its end.
    async fn attend(
        self: Arc<Self>,
        process: Arc<Process>,
        stdout: ChildStdout,
        stderr: pipe::Receiver,
        waiting: Waiting,
    ) {
        let logging = tokio::spawn(log(self.executable.class.clone(), process.clone(), stderr));
        let why = self.listen(&process, stdout).await;
        let why = lock(&process.seats).without_secrets(&why).into_owned();
        process.end(&why);
        let ended = waiting.ending().await;
        // Its last words belong to the errors of its tasks.
        let _ = timeout(LOG_PATIENCE, logging).await;
        let why = lock(&process.seats).over.clone().unwrap_or(why);
        let message = format!("its process ended before it had answered ({}): {why}", said(&ended));
        {
            let mut state = lock(&self.state);
            state.processes.retain(|other| !Arc::ptr_eq(other, &process));
            let pause = FIRST_PAUSE.saturating_mul(1 << state.deaths.min(16)).min(LONGEST_PAUSE);
            state.not_before = Some(Instant::now() + pause);
            state.deaths += 1;
        }
        tracing::warn!(
            "Class {}: a process ended ({}): {why}",
            self.executable.class,
            said(&ended)
        );
        let taken: Vec<Seat> = lock(&process.seats).taken.drain().map(|(_, seat)| seat).collect();
        for seat in taken {
            let failure = Failure::named("ProcessEnded", message.clone());
            let _ = seat.answer.send(Err(lock(&process.stderr).tail.of(failure)));
        }
        self.changed.notify_waiters();
    }

    /// Takes what a process says, until it says no more or nonsense: why it is over.
    async fn listen(&self, process: &Process, stdout: ChildStdout) -> String {
        let most = self.executable.result_bytes + ENVELOPE_BYTES;
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        loop {
            line.clear();
            let limit = u64::try_from(most).unwrap_or(u64::MAX);
            match (&mut reader).take(limit).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return "it closed its standard output".to_owned(),
                Ok(_) if line.last() != Some(&b'\n') && line.len() >= most => {
                    return format!("it said a line of more than {most} bytes");
                }
                Ok(_) if line.trim_ascii().is_empty() => {}
                Ok(_) => match serde_json::from_slice::<Said>(&line) {
                    Ok(said) => {
                        process.read_log(&self.executable.class, |file, buffer| file.read(buffer));
                        if let Err(why) = self.take(process, said) {
                            return why;
                        }
                    }
                    Err(error) => {
                        let text = String::from_utf8_lossy(line.trim_ascii());
                        let text = lock(&process.seats).without_secrets(&text).into_owned();
                        let first: String = text.chars().take(100).collect();
                        return format!("it said what is no answer ({error}): {first:?}");
                    }
                },
            }
        }
    }

    fn take(&self, process: &Process, said: Said) -> Result<(), String> {
        let Some(id) = said.id else {
            return match said.concurrency {
                Some(number @ 1..=CONCURRENCY_MAX) => {
                    if self.concurrency.is_none() {
                        lock(&process.seats).all = number;
                        self.changed.notify_waiters();
                    }
                    Ok(())
                }
                Some(_) => Err(format!("its concurrency is not from 1 to {CONCURRENCY_MAX}")),
                None => Err("it answered without an id".to_owned()),
            };
        };
        let mut seats = lock(&process.seats);
        let Some(seat) = seats.taken.get(&id) else {
            if said.result.is_none() && said.error.is_none() {
                return Ok(()); // Words that come late do no harm.
            }
            return Err(format!("it answered for {id:?}, which it does not have"));
        };
        if let Some(line) = &said.log {
            seat.run.log(line);
        }
        if let Some(percent) = said.progress {
            seat.run.progress(percent, said.message.as_deref().unwrap_or_default());
        }
        let answer = match (said.result, said.error) {
            (Some(_), Some(_)) => return Err(format!("{id:?} has a result and an error")),
            (None, Some(error)) => Err(failure(error, said.retry.as_ref())),
            (Some(result), None) => Ok(result),
            (None, None) if said.log.is_some() || said.progress.is_some() => return Ok(()),
            (None, None) => return Err(format!("{id:?} has neither a result nor an error")),
        };
        if let Some(seat) = seats.taken.remove(&id) {
            let _ = seat.answer.send(answer);
        }
        drop(seats);
        lock(&self.state).deaths = 0;
        self.changed.notify_waiters();
        Ok(())
    }
}

impl Seats {
    /// A text of a process without the secrets of any task that it has.
    fn without_secrets<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.taken.values().fold(Cow::Borrowed(text), |text, seat| {
            match seat.run.without_secrets(&text) {
                Cow::Owned(shown) => Cow::Owned(shown),
                Cow::Borrowed(_) => text,
            }
        })
    }
}

impl Process {
    fn take_seat(
        self: &Arc<Self>,
        id: &str,
        run: &Run<()>,
    ) -> Option<(Arc<Self>, oneshot::Receiver<Answer>)> {
        let mut seats = lock(&self.seats);
        if seats.over.is_some() || seats.taken.len() >= seats.all {
            return None;
        }
        let (answer, receiver) = oneshot::channel();
        seats.taken.insert(id.to_owned(), Seat { answer, run: run.clone() });
        Some((self.clone(), receiver))
    }

    /// Takes what is there of the standard error, without waiting.
    fn read_log(
        &self,
        class: &str,
        read: impl Fn(&mut File, &mut [u8]) -> std::io::Result<usize>,
    ) -> LogIs {
        let mut stderr = lock(&self.stderr);
        let Stderr { file, lines, tail } = &mut *stderr;
        let mut each = |line: &str| {
            let seats = lock(&self.seats);
            // Whosever they are, and before anything is cut off.
            let line = &*seats.without_secrets(line);
            tail.add(line);
            let mut taken = seats.taken.values();
            match (taken.next(), taken.next()) {
                (Some(seat), None) => seat.run.log(line),
                // Nobody can tell whose it is.
                _ => tracing::info!("Class {class}: {line}"),
            }
        };
        let mut buffer = [0; 16 * 1024];
        for _ in 0..READS_MAX {
            match read(file, &mut buffer) {
                Ok(read @ 1..) => lines.add(&buffer[..read], &mut each),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return LogIs::Empty,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    lines.end(&mut each);
                    return LogIs::Over;
                }
            }
        }
        LogIs::Flooding
    }

    /// It gets no more tasks, and is killed.
    fn end(&self, why: &str) {
        lock(&self.seats).over.get_or_insert_with(|| why.to_owned());
        self.control.kill();
    }
}

/// A task that a process has. If it is dropped without an answer, the process
/// still works on it: it is killed, so that no attempt goes on after its end.
struct Held<'a> {
    process: &'a Process,
    id: &'a str,
    pool: &'a Pool,
    answered: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let left = lock(&self.process.seats).taken.remove(self.id).is_some();
        if left && !self.answered {
            self.process.end("a task was told to end and did not");
        }
        self.pool.changed.notify_waiters();
    }
}

/// Reads the standard error whenever there is something.
async fn log(class: String, process: Arc<Process>, stderr: pipe::Receiver) {
    while stderr.readable().await.is_ok() {
        match process.read_log(&class, |_, buffer| stderr.try_read(buffer)) {
            LogIs::Empty => {}
            LogIs::Flooding => tokio::task::yield_now().await,
            LogIs::Over => return,
        }
    }
}

fn nobody_answers() -> Failure {
    Failure::named("ProcessEnded", "its process ended before it had answered")
}

fn request(id: &str, parameters: &RawValue, run: &Run<()>) -> Result<Vec<u8>, Failure> {
    let request = Request {
        id,
        task_id: run.task_id().0,
        attempt: run.attempt(),
        retry_number: run.retry_number(),
        class: run.class(),
        correlation_id: run.correlation_id(),
        parameters,
    };
    let mut line = serde_json::to_vec(&request)?;
    // Between the values of a JSON text, a line break is a space.
    for byte in &mut line {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.push(b'\n');
    Ok(line)
}

fn failure(error: Complaint, retry: Option<&serde_json::Value>) -> Failure {
    let failure = match error {
        Complaint::Message(message) => Failure::named("Failure", message).with_trace(Vec::new()),
        Complaint::Whole { message, exception, backtrace } => {
            Failure::named(exception.unwrap_or_else(|| "Failure".to_owned()), message)
                .with_trace(backtrace)
        }
    };
    match retry {
        Some(serde_json::Value::Bool(false)) => Failure::no_retry(failure),
        Some(later) => match wait(later) {
            Some(wait) => Failure::retry_after(failure, wait),
            None => failure,
        },
        None => failure,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
