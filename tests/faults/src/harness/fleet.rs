//! Engines as processes, and a supervisor that starts them again, as a service
//! manager would.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::orders::{EngineOrder, Order};
use crate::witness::now_us;

/// How long after its end an engine is started again.
const RESTART_AFTER: Duration = Duration::from_millis(300);

/// How an engine is started.
#[derive(Debug, Clone)]
pub struct EnginePlan {
    /// What it is told.
    pub order: EngineOrder,
    /// The program around it, with its arguments; empty for none.
    pub around: Vec<String>,
    /// Its environment, beside the usual.
    pub environment: Vec<(String, String)>,
    /// Whether it is started again when it has ended by itself, or was killed.
    pub supervised: bool,
}

/// A process that runs, or has run.
#[derive(Debug)]
struct Engine {
    plan: EnginePlan,
    child: Option<Child>,
    ended: Option<Instant>,
    wanted: bool,
}

/// What is known of the processes that have run.
#[derive(Debug, Default)]
struct Ledger {
    engines: BTreeMap<String, Engine>,
    dead: HashMap<u32, Option<i64>>,
    workers: HashMap<u32, usize>,
    /// Engines that ended without having been told to.
    crashes: Vec<(String, ExitStatus)>,
}

/// All engines of a test.
#[derive(Debug, Clone)]
pub struct Fleet {
    program: PathBuf,
    folder: PathBuf,
    ledger: Arc<Mutex<Ledger>>,
    over: Arc<AtomicBool>,
}

impl Fleet {
    pub(crate) fn new(program: PathBuf, folder: PathBuf) -> Self {
        let fleet = Self {
            program,
            folder,
            ledger: Arc::default(),
            over: Arc::new(AtomicBool::new(false)),
        };
        let watched = fleet.clone();
        std::thread::spawn(move || {
            while !watched.over.load(Ordering::Relaxed) {
                watched.look_after();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        fleet
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an engine; one of this name must not be there.
    pub fn start(&self, plan: EnginePlan) {
        let name = plan.order.instance.clone();
        let mut ledger = self.ledger();
        let engine = Engine { plan, child: None, ended: None, wanted: true };
        assert!(!ledger.engines.contains_key(&name), "there is an engine {name}");
        ledger.engines.insert(name.clone(), engine);
        self.spawn(&mut ledger, &name);
    }

    fn spawn(&self, ledger: &mut Ledger, name: &str) {
        let engine = ledger.engines.get_mut(name).expect("an engine of this name");
        let plan = &engine.plan;
        let order = serde_json::to_string(&Order::Run(plan.order.clone())).expect("an order");
        let mut command = self.command(&plan.around);
        command.arg(order).envs(plan.environment.iter().map(|(name, value)| (name, value)));
        let child = command.stderr(self.log(name)).spawn().expect("the program runs");
        let pools = plan.order.queues.iter().map(|(_, workers)| usize::from(*workers));
        let workers = if plan.order.queues.is_empty() {
            usize::from(plan.order.workers)
        } else {
            pools.sum()
        };
        ledger.workers.insert(child.id(), workers);
        engine.ended = None;
        engine.child = Some(child);
    }

    /// `fault-engine`, with another program around it.
    pub(crate) fn command(&self, around: &[String]) -> Command {
        let mut command = match around.split_first() {
            None => Command::new(&self.program),
            Some((outer, arguments)) => {
                let mut command = Command::new(outer);
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

    /// What an engine has logged, in all of its lives.
    #[must_use]
    pub fn logged(&self, name: &str) -> String {
        let log = std::fs::read(self.log_path(name)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// One turn of the supervisor.
    fn look_after(&self) {
        let mut ledger = self.ledger();
        let names: Vec<String> = ledger.engines.keys().cloned().collect();
        for name in names {
            let Ledger { engines, dead, crashes, .. } = &mut *ledger;
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
            if engine.wanted && engine.plan.supervised && rested {
                self.spawn(&mut ledger, &name);
            }
        }
    }

    /// The process of an engine, if it runs.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<u32> {
        self.ledger().engines.get(name)?.child.as_ref().map(Child::id)
    }

    /// The names of all engines.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.ledger().engines.keys().cloned().collect()
    }

    /// Sends a signal; false if there is no process now.
    pub fn signal(&self, name: &str, signal: Signal) -> bool {
        let mut ledger = self.ledger();
        let Ledger { engines, dead, .. } = &mut *ledger;
        let Some(child) = engines.get(name).and_then(|engine| engine.child.as_ref()) else {
            return false;
        };
        if signal == Signal::KILL {
            // It still runs now; this is the least that can be said.
            dead.insert(child.id(), Some(now_us()));
        }
        send(child.id(), signal)
    }

    /// Kills with -9. The supervisor starts it again, if it may.
    pub fn kill(&self, name: &str) -> bool {
        self.signal(name, Signal::KILL)
    }

    /// Tells an engine to stop in good order, and waits for it.
    pub fn stop(&self, name: &str) {
        if let Some(engine) = self.ledger().engines.get_mut(name) {
            engine.wanted = false;
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Some(process) = self.process(name) {
            // Again and again: one that has just begun may not have heard the first.
            send(process, Signal::CONT);
            send(process, Signal::TERM);
            assert!(
                Instant::now() < deadline,
                "engine {name} does not stop:\n{}",
                self.logged(name)
            );
            // The second signal would stop it by force.
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

    /// Forgets an engine that is not there any more.
    pub fn forget(&self, name: &str) {
        let mut ledger = self.ledger();
        if let Some(mut engine) = ledger.engines.remove(name)
            && let Some(mut child) = engine.child.take()
        {
            ledger.dead.insert(child.id(), Some(now_us()));
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn dead(&self) -> HashMap<u32, Option<i64>> {
        self.ledger().dead.clone()
    }

    pub(crate) fn workers(&self) -> HashMap<u32, usize> {
        self.ledger().workers.clone()
    }

    /// Engines that ended without having been told to, and how.
    #[must_use]
    pub fn crashes(&self) -> Vec<(String, ExitStatus)> {
        self.ledger().crashes.clone()
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        for name in self.names() {
            self.forget(&name);
        }
    }

    /// Where logs are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Sends a signal to a process; false if it is gone.
pub(crate) fn send(process: u32, signal: Signal) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}
