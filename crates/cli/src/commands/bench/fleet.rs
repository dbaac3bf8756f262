//! Engines under measurement, as the bench sees them: processes of their own
//! that tell what happens in them.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::arena::Arena;
use super::event::{Event, GO, now_us};
use super::proc;
use crate::database::URL_VARIABLE;
use crate::error::CliError;

/// How engines are started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crew {
    pub(super) engines: u16,
    pub(super) workers: u16,
    pub(super) poll: Duration,
    /// Claim as soon as they can, not when they are told to.
    pub(super) at_once: bool,
}

impl Crew {
    /// The default poll of an engine.
    const POLL: Duration = Duration::from_secs(10);

    pub(super) fn new(engines: u16, workers: u16) -> Self {
        Self { engines, workers, poll: Self::POLL, at_once: false }
    }
}

/// Engines at work. They are killed if this is dropped before it is stopped.
#[derive(Debug)]
pub(super) struct Fleet {
    engines: Vec<EngineProcess>,
    events: UnboundedReceiver<(usize, Option<Event>)>,
    alive: usize,
    /// How many endings are on record, after each word about it: the curve of
    /// the whole fleet.
    curve: Vec<(i64, u64)>,
    began: VecDeque<(i64, i64)>,
}

#[derive(Debug)]
struct EngineProcess {
    child: Child,
    orders: ChildStdin,
    pid: u32,
    recorded: u64,
}

/// Nothing that an engine does here takes this long.
const TIMEOUT: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(20);

impl Fleet {
    pub(super) fn start(arena: &Arena, crew: Crew) -> Result<Self, CliError> {
        let (tell, events) = unbounded_channel();
        let mut engines = Vec::new();
        for at in 0..usize::from(crew.engines) {
            engines.push(EngineProcess::start(arena, crew, at, tell.clone())?);
        }
        Ok(Self { engines, events, alive: 0, curve: Vec::new(), began: VecDeque::new() })
    }

    /// Starts engines and lets them claim as soon as all of them are alive.
    pub(super) async fn at_work(arena: &Arena, crew: Crew) -> Result<Self, CliError> {
        let mut fleet = Self::start(arena, crew)?;
        fleet.all_alive().await?;
        fleet.go().await?;
        Ok(fleet)
    }

    pub(super) async fn all_alive(&mut self) -> Result<(), CliError> {
        while self.alive < self.engines.len() {
            self.next("register").await?;
        }
        Ok(())
    }

    /// Lets them claim tasks; returns when that was.
    pub(super) async fn go(&mut self) -> Result<i64, CliError> {
        let at_us = now_us();
        for engine in &mut self.engines {
            let order = format!("{GO}\n");
            let told = engine.orders.write_all(order.as_bytes()).await;
            told.map_err(|error| CliError::Failure(format!("an engine cannot be told: {error}")))?;
        }
        Ok(at_us)
    }

    /// Waits until this many endings are on record; returns since when.
    pub(super) async fn recorded(&mut self, count: u64) -> Result<i64, CliError> {
        loop {
            if let Some((at_us, _)) = self.curve.last().filter(|(_, total)| *total >= count) {
                return Ok(*at_us);
            }
            self.next("record a task").await?;
        }
    }

    /// How many endings are on record, as far as it has been told.
    pub(super) fn recorded_so_far(&mut self) -> Result<u64, CliError> {
        while let Ok(event) = self.events.try_recv() {
            self.hear(event)?;
        }
        Ok(self.curve.last().map_or(0, |(_, total)| *total))
    }

    /// The next task that has begun: its id, and when.
    pub(super) async fn began(&mut self) -> Result<(i64, i64), CliError> {
        loop {
            if let Some(first) = self.began.pop_front() {
                return Ok(first);
            }
            self.next("begin a task").await?;
        }
    }

    /// Endings on record over time.
    pub(super) fn curve(&self) -> &[(i64, u64)] {
        &self.curve
    }

    /// Processor time of all engines together.
    pub(super) fn cpu(&self) -> Option<Duration> {
        self.engines.iter().map(|engine| proc::cpu(engine.pid)).sum()
    }

    /// The most memory that any one of them has had, in megabytes.
    pub(super) fn memory_mb(&self) -> Option<f64> {
        let peaks: Option<Vec<u64>> =
            self.engines.iter().map(|engine| proc::memory_peak(engine.pid)).collect();
        Some(peaks?.into_iter().max()? as f64 / 1e6)
    }

    /// Ends all of them in good order.
    pub(super) async fn stop(self) -> Result<(), CliError> {
        let children: Vec<Child> =
            self.engines.into_iter().map(|EngineProcess { child, .. }| child).collect();
        for mut child in children {
            match tokio::time::timeout(STOP_PATIENCE, child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => return Err(CliError::Failure(format!("an engine ended: {status}"))),
                Ok(Err(error)) => {
                    return Err(CliError::Failure(format!("an engine is lost: {error}")));
                }
                Err(_) => {
                    return Err(CliError::Failure(format!(
                        "an engine has not stopped within {STOP_PATIENCE:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    async fn next(&mut self, awaited: &str) -> Result<(), CliError> {
        match tokio::time::timeout(TIMEOUT, self.events.recv()).await {
            Ok(Some(event)) => self.hear(event),
            Ok(None) => Err(gone()),
            Err(_) => Err(CliError::Failure(format!(
                "within {TIMEOUT:?} no engine has said that it could {awaited}"
            ))),
        }
    }

    fn hear(&mut self, (engine, event): (usize, Option<Event>)) -> Result<(), CliError> {
        match event {
            Some(Event::Alive) => self.alive += 1,
            Some(Event::Began { task_id, at_us }) => self.began.push_back((task_id, at_us)),
            Some(Event::Recorded { count, at_us }) => {
                self.engines[engine].recorded = count;
                let total = self.engines.iter().map(|engine| engine.recorded).sum();
                // Words of two engines may arrive in another order than they were said.
                let last_us = self.curve.last().map_or(at_us, |(last_us, _)| *last_us);
                self.curve.push((at_us.max(last_us), total));
            }
            None => return Err(gone()),
        }
        Ok(())
    }
}

fn gone() -> CliError {
    CliError::Failure("an engine of the bench has ended before its time; see above".to_owned())
}

impl EngineProcess {
    fn start(
        arena: &Arena,
        crew: Crew,
        at: usize,
        tell: UnboundedSender<(usize, Option<Event>)>,
    ) -> Result<Self, CliError> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let failed = |error| CliError::Failure(format!("no engine can be started: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .arg("bench-engine")
            .args(["--instance", &format!("bench-{}-{number}", std::process::id())])
            .args(["--workers", &crew.workers.to_string()])
            .args(["--poll", &format!("{}ms", crew.poll.as_millis())])
            .args(arena.schema_option())
            .args(crew.at_once.then_some("--at-once"))
            // Not as an argument, which everybody on this machine can read.
            .env(URL_VARIABLE, arena.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the bench, which then ends its engines.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let missing = || failed(std::io::Error::other("it has no pipes"));
        let orders = child.stdin.take().ok_or_else(missing)?;
        let words = child.stdout.take().ok_or_else(missing)?;
        let pid = child.id().ok_or_else(missing)?;
        tokio::spawn(listen(words, at, tell));
        Ok(Self { child, orders, pid, recorded: 0 })
    }
}

/// Passes on what an engine says, and last that it says no more.
async fn listen(words: ChildStdout, at: usize, tell: UnboundedSender<(usize, Option<Event>)>) {
    let mut lines = BufReader::new(words).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match line.parse() {
            Ok(event) => drop(tell.send((at, Some(event)))),
            Err(why) => tracing::warn!("{why}"),
        }
    }
    let _ = tell.send((at, None));
}
