//! Engines under measurement: processes that report events on a pipe.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::database::BenchDatabase;
use crate::error::BenchError;
use crate::event::{CLAIM_COMMAND, Event, now_us};
use crate::options::URL_VARIABLE;
use crate::proc;

/// How engines are started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineOptions {
    pub(crate) engines: u16,
    pub(crate) workers: u16,
    pub(crate) poll: Duration,
    /// Claim at once instead of waiting for the command.
    pub(crate) at_once: bool,
}

impl EngineOptions {
    /// The default poll of an engine.
    const POLL: Duration = Duration::from_secs(10);

    pub(crate) fn new(engines: u16, workers: u16) -> Self {
        Self { engines, workers, poll: Self::POLL, at_once: false }
    }
}

/// Running engines. Dropping this kills them.
#[derive(Debug)]
pub(crate) struct Engines {
    processes: Vec<EngineProcess>,
    events: UnboundedReceiver<(usize, Option<Event>)>,
    registered: usize,
    /// Attempts recorded by all engines, over time.
    curve: Vec<(i64, u64)>,
    began: VecDeque<(i64, i64)>,
    suspended: VecDeque<i64>,
    replays_us: VecDeque<i64>,
    called_us: Option<i64>,
}

#[derive(Debug)]
struct EngineProcess {
    child: Child,
    commands: ChildStdin,
    pid: u32,
    recorded: u64,
}

/// No step of an engine takes this long.
const TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

impl Engines {
    pub(crate) fn start(
        database: &BenchDatabase,
        options: EngineOptions,
    ) -> Result<Self, BenchError> {
        let (sender, events) = unbounded_channel();
        let mut processes = Vec::new();
        for at in 0..usize::from(options.engines) {
            processes.push(EngineProcess::start(database, options, at, sender.clone())?);
        }
        Ok(Self {
            processes,
            events,
            registered: 0,
            curve: Vec::new(),
            began: VecDeque::new(),
            suspended: VecDeque::new(),
            replays_us: VecDeque::new(),
            called_us: None,
        })
    }

    /// Starts engines and lets them claim when all have registered.
    pub(crate) async fn start_claiming(
        database: &BenchDatabase,
        options: EngineOptions,
    ) -> Result<Self, BenchError> {
        let mut engines = Self::start(database, options)?;
        engines.wait_registered().await?;
        engines.release().await?;
        Ok(engines)
    }

    pub(crate) async fn wait_registered(&mut self) -> Result<(), BenchError> {
        while self.registered < self.processes.len() {
            self.next("register").await?;
        }
        Ok(())
    }

    /// Lets the engines claim tasks; returns the time.
    pub(crate) async fn release(&mut self) -> Result<i64, BenchError> {
        let at_us = now_us();
        for engine in &mut self.processes {
            let command = format!("{CLAIM_COMMAND}\n");
            let sent = engine.commands.write_all(command.as_bytes()).await;
            sent.map_err(|error| {
                BenchError::Failure(format!("cannot command an engine: {error}"))
            })?;
        }
        Ok(at_us)
    }

    /// Waits until this many attempts are recorded; returns the time of the last.
    pub(crate) async fn recorded(&mut self, count: u64) -> Result<i64, BenchError> {
        loop {
            if let Some((at_us, _)) = self.curve.last().filter(|(_, total)| *total >= count) {
                return Ok(*at_us);
            }
            self.next("record a task").await?;
        }
    }

    /// How many attempts are recorded, according to the events so far.
    pub(crate) fn recorded_now(&mut self) -> Result<u64, BenchError> {
        while let Ok(event) = self.events.try_recv() {
            self.apply(event)?;
        }
        Ok(self.curve.last().map_or(0, |(_, total)| *total))
    }

    /// The id and start time of the next task that started.
    pub(crate) async fn began(&mut self) -> Result<(i64, i64), BenchError> {
        loop {
            if let Some(first) = self.began.pop_front() {
                return Ok(first);
            }
            self.next("begin a task").await?;
        }
    }

    /// The id of the next task that waits for a signal.
    pub(crate) async fn suspended(&mut self) -> Result<i64, BenchError> {
        loop {
            if let Some(first) = self.suspended.pop_front() {
                return Ok(first);
            }
            self.next("suspend a task").await?;
        }
    }

    /// When the last task that did so had created its children.
    pub(crate) fn called_us(&self) -> Option<i64> {
        self.called_us
    }

    /// The microseconds of the next replay.
    pub(crate) async fn replayed(&mut self) -> Result<i64, BenchError> {
        loop {
            if let Some(first) = self.replays_us.pop_front() {
                return Ok(first);
            }
            self.next("replay a task").await?;
        }
    }

    /// Recorded attempts over time.
    pub(crate) fn curve(&self) -> &[(i64, u64)] {
        &self.curve
    }

    /// Processor time of all engines together.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        self.processes.iter().map(|engine| proc::cpu(engine.pid)).sum()
    }

    /// The largest peak memory of an engine, in megabytes.
    pub(crate) fn memory_mb(&self) -> Option<f64> {
        let peaks: Option<Vec<u64>> =
            self.processes.iter().map(|engine| proc::memory_peak(engine.pid)).collect();
        Some(peaks?.into_iter().max()? as f64 / 1e6)
    }

    /// Stops all engines gracefully.
    pub(crate) async fn stop(self) -> Result<(), BenchError> {
        let children: Vec<Child> =
            self.processes.into_iter().map(|EngineProcess { child, .. }| child).collect();
        for mut child in children {
            match tokio::time::timeout(STOP_TIMEOUT, child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => {
                    return Err(BenchError::Failure(format!("an engine failed: {status}")));
                }
                Ok(Err(error)) => {
                    return Err(BenchError::Failure(format!("cannot wait for an engine: {error}")));
                }
                Err(_) => {
                    return Err(BenchError::Failure(format!(
                        "an engine did not stop within {STOP_TIMEOUT:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    async fn next(&mut self, awaited: &str) -> Result<(), BenchError> {
        match tokio::time::timeout(TIMEOUT, self.events.recv()).await {
            Ok(Some(event)) => self.apply(event),
            Ok(None) => Err(engine_exited()),
            Err(_) => {
                Err(BenchError::Failure(format!("no engine could {awaited} within {TIMEOUT:?}")))
            }
        }
    }

    fn apply(&mut self, (engine, event): (usize, Option<Event>)) -> Result<(), BenchError> {
        match event {
            Some(Event::Registered) => self.registered += 1,
            Some(Event::Began { task_id, at_us }) => self.began.push_back((task_id, at_us)),
            Some(Event::Suspended { task_id }) => self.suspended.push_back(task_id),
            Some(Event::Called { at_us }) => self.called_us = Some(at_us),
            Some(Event::Replayed { took_us }) => self.replays_us.push_back(took_us),
            Some(Event::Recorded { count, at_us }) => {
                self.processes[engine].recorded = count;
                let total = self.processes.iter().map(|engine| engine.recorded).sum();
                // Events of two engines may arrive in another order.
                let last_us = self.curve.last().map_or(at_us, |(last_us, _)| *last_us);
                self.curve.push((at_us.max(last_us), total));
            }
            None => return Err(engine_exited()),
        }
        Ok(())
    }
}

fn engine_exited() -> BenchError {
    BenchError::Failure("an engine exited early; see above".to_owned())
}

impl EngineProcess {
    fn start(
        database: &BenchDatabase,
        options: EngineOptions,
        at: usize,
        sender: UnboundedSender<(usize, Option<Event>)>,
    ) -> Result<Self, BenchError> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let failed = |error| BenchError::Failure(format!("cannot start an engine: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .arg("engine")
            .args(["--instance", &format!("bench-{}-{number}", std::process::id())])
            .args(["--workers", &options.workers.to_string()])
            .args(["--poll", &format!("{}ms", options.poll.as_millis())])
            .args(database.schema_option())
            .args(options.at_once.then_some("--at-once"))
            // Not as an argument: arguments are public on this machine.
            .env(URL_VARIABLE, database.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the benchmark, which then stops its engines.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let missing = || failed(std::io::Error::other("no pipes"));
        let commands = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let pid = child.id().ok_or_else(missing)?;
        tokio::spawn(forward_events(output, at, sender));
        Ok(Self { child, commands, pid, recorded: 0 })
    }
}

/// Forwards events, and `None` at the end of the output.
async fn forward_events(
    output: ChildStdout,
    at: usize,
    sender: UnboundedSender<(usize, Option<Event>)>,
) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match line.parse() {
            Ok(event) => drop(sender.send((at, Some(event)))),
            Err(error) => eprintln!("{error}"),
        }
    }
    let _ = sender.send((at, None));
}
