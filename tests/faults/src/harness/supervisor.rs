//! Engine processes, and a supervisor that restarts them, like a service manager.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::commands::{EngineConfig, ProgramCommand};
use crate::witness::now_us;

/// Delay before a restart.
const RESTART_AFTER: Duration = Duration::from_millis(300);

/// How an engine is started.
#[derive(Debug, Clone)]
pub struct EngineProcessOptions {
    /// Its configuration.
    pub config: EngineConfig,
    /// The program around it, with its arguments; empty for none.
    pub wrapper: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    /// Whether it is restarted after a crash or a kill.
    pub supervised: bool,
}

/// A process that runs, or has ended.
#[derive(Debug)]
struct EngineProcess {
    options: EngineProcessOptions,
    child: Option<Child>,
    ended: Option<Instant>,
    wanted: bool,
}

/// All processes of a run.
#[derive(Debug, Default)]
struct ProcessTable {
    engines: BTreeMap<String, EngineProcess>,
    dead: HashMap<u32, Option<i64>>,
    workers: HashMap<u32, usize>,
    /// When processes were suspended, and when they continued.
    suspended: HashMap<u32, Vec<(i64, i64)>>,
    /// Engines that ended without a stop.
    crashes: Vec<(String, ExitStatus)>,
}

/// All engines of a test.
#[derive(Debug, Clone)]
pub struct EngineSupervisor {
    program: PathBuf,
    folder: PathBuf,
    table: Arc<Mutex<ProcessTable>>,
    over: Arc<AtomicBool>,
}

impl EngineSupervisor {
    pub(crate) fn new(program: PathBuf, folder: PathBuf) -> Self {
        let engines =
            Self { program, folder, table: Arc::default(), over: Arc::new(AtomicBool::new(false)) };
        let watched = engines.clone();
        std::thread::spawn(move || {
            while !watched.over.load(Ordering::Relaxed) {
                watched.supervise();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        engines
    }

    fn table(&self) -> MutexGuard<'_, ProcessTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an engine with a new name.
    pub fn start(&self, options: EngineProcessOptions) {
        let name = options.config.instance.clone();
        let mut table = self.table();
        let engine = EngineProcess { options, child: None, ended: None, wanted: true };
        assert!(!table.engines.contains_key(&name), "engine {name} exists");
        table.engines.insert(name.clone(), engine);
        self.spawn(&mut table, &name);
    }

    fn spawn(&self, table: &mut ProcessTable, name: &str) {
        let engine = table.engines.get_mut(name).expect("an engine of this name");
        let options = &engine.options;
        let config =
            serde_json::to_string(&ProgramCommand::Run(options.config.clone())).expect("JSON");
        let mut command = self.command(&options.wrapper);
        command.arg(config).envs(options.environment.iter().map(|(name, value)| (name, value)));
        let child = command.stderr(self.log(name)).spawn().expect("the program runs");
        let pools = options.config.queues.iter().map(|(_, workers)| usize::from(*workers));
        let workers = if options.config.queues.is_empty() {
            usize::from(options.config.workers)
        } else {
            pools.sum()
        };
        table.workers.insert(child.id(), workers);
        engine.ended = None;
        engine.child = Some(child);
    }

    /// `fault-engine`, with another program around it.
    pub(crate) fn command(&self, wrapper: &[String]) -> Command {
        let mut command = match wrapper.split_first() {
            None => task_engine_test_harness::command(&self.program),
            Some((outer, arguments)) => {
                let mut command = task_engine_test_harness::command(outer);
                command.args(arguments).arg(&self.program);
                command
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::null()).current_dir(&self.folder);
        command.env("RUST_BACKTRACE", "0");
        command
    }

    pub(crate) fn log(&self, name: &str) -> File {
        let file = OpenOptions::new().create(true).append(true).open(self.log_path(name));
        file.expect("a file for the log")
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// The log of an engine, over all of its processes.
    #[must_use]
    pub fn logged(&self, name: &str) -> String {
        let log = std::fs::read(self.log_path(name)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// One round of the supervisor.
    fn supervise(&self) {
        let mut table = self.table();
        let names: Vec<String> = table.engines.keys().cloned().collect();
        for name in names {
            let ProcessTable { engines, dead, crashes, .. } = &mut *table;
            let engine = engines.get_mut(&name).expect("an engine of this name");
            if let Some(child) = &mut engine.child
                && let Ok(Some(status)) = child.try_wait()
            {
                dead.entry(child.id()).or_insert(None);
                if engine.wanted {
                    crashes.push((name.clone(), status));
                }
                engine.child = None;
                engine.ended = Some(Instant::now());
            }
            let rested = engine.ended.is_some_and(|ended| ended.elapsed() > RESTART_AFTER);
            if engine.wanted && engine.options.supervised && rested {
                self.spawn(&mut table, &name);
            }
        }
    }

    /// The process of an engine, if it runs.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<u32> {
        self.table().engines.get(name)?.child.as_ref().map(Child::id)
    }

    /// The names of all engines.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.table().engines.keys().cloned().collect()
    }

    /// Sends a signal; false if there is no process now.
    pub fn signal(&self, name: &str, signal: Signal) -> bool {
        let mut table = self.table();
        let ProcessTable { engines, dead, suspended, .. } = &mut *table;
        let Some(child) = engines.get(name).and_then(|engine| engine.child.as_ref()) else {
            return false;
        };
        if signal == Signal::KILL {
            // It runs at least until now.
            dead.insert(child.id(), Some(now_us()));
        }
        let pauses = suspended.entry(child.id()).or_default();
        if signal == Signal::STOP {
            // It runs at least until now.
            pauses.push((now_us(), i64::MAX));
        }
        if signal == Signal::CONT
            && let Some(pause) = pauses.last_mut()
        {
            pause.1 = now_us();
        }
        send(child.id(), signal)
    }

    /// Kills with -9. The supervisor restarts it if it is supervised.
    pub fn kill(&self, name: &str) -> bool {
        self.signal(name, Signal::KILL)
    }

    /// Stops an engine gracefully, and waits for its end.
    pub fn stop(&self, name: &str) {
        if let Some(engine) = self.table().engines.get_mut(name) {
            engine.wanted = false;
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Some(process) = self.process(name) {
            // Repeated: a new process may not have a handler yet.
            send(process, Signal::CONT);
            send(process, Signal::TERM);
            assert!(
                Instant::now() < deadline,
                "engine {name} does not stop:\n{}",
                self.logged(name)
            );
            // A second signal would force it.
            let pause = Instant::now() + Duration::from_secs(20);
            while self.process(name) == Some(process) && Instant::now() < pause {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Stops all engines.
    pub fn stop_all(&self) {
        for name in self.names() {
            self.stop(&name);
        }
    }

    /// Removes an engine; kills it if it runs.
    pub fn forget(&self, name: &str) {
        let mut table = self.table();
        if let Some(mut engine) = table.engines.remove(name)
            && let Some(mut child) = engine.child.take()
        {
            table.dead.insert(child.id(), Some(now_us()));
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn dead(&self) -> HashMap<u32, Option<i64>> {
        self.table().dead.clone()
    }

    pub(crate) fn suspended(&self) -> HashMap<u32, Vec<(i64, i64)>> {
        self.table().suspended.clone()
    }

    pub(crate) fn workers(&self) -> HashMap<u32, usize> {
        self.table().workers.clone()
    }

    /// Engines that ended without a stop, and how.
    #[must_use]
    pub fn crashes(&self) -> Vec<(String, ExitStatus)> {
        self.table().crashes.clone()
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        for name in self.names() {
            self.forget(&name);
        }
    }

    /// The folder of the logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Sends a signal to a process; false if it does not exist.
pub(crate) fn send(process: u32, signal: Signal) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}
