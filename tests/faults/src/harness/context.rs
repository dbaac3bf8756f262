//! One run of one fault: a store, engines, producers, and the final check.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use task_engine::{NewTask, Store, StoreError, Task as _, TaskId, TaskStatus};
use task_engine_core::task::TaskListQuery;
use task_engine_test_harness::{TestServer, wait_within};
use tempfile::TempDir;

use crate::check::{DurableEvidence, Evidence, broken};
use crate::commands::{EngineConfig, ProducerConfig, ProgramCommand, SignallerConfig, TaskSpec};
use crate::durable::{Part, Process};
use crate::engine::open;
use crate::harness::supervisor::{EngineProcessOptions, EngineSupervisor};
use crate::harness::usage::UsageMonitor;
use crate::history::History;
use crate::limits::limits;
use crate::producer::confirm;
use crate::registry::StoreKind;
use crate::step_witness::{StepLine, read_lines, steps_file};
use crate::witness::Witness;

/// Generous, for loaded machines. Only a hang takes this long.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// The context of a scenario.
#[derive(Debug)]
pub struct TestContext {
    /// Which store.
    pub kind: StoreKind,
    /// Random numbers by the seed of this run.
    pub rng: fastrand::Rng,
    /// The engines.
    pub engines: EngineSupervisor,
    /// Whether this is a soak run: more and longer.
    pub soak: bool,
    /// Notes for the table.
    pub notes: Vec<String>,
    /// The URL or file that engines and producers are given.
    pub database: String,
    /// The same without a proxy, for the final check.
    pub direct: String,
    folder: TempDir,
    runtime: tokio::runtime::Runtime,
    evidence: Evidence,
    producers: Vec<Child>,
}

impl TestContext {
    /// An empty store without an engine.
    #[must_use]
    pub fn new(kind: StoreKind, program: &Path, seed: u64, soak: bool) -> Self {
        let folder = tempfile::Builder::new().prefix("task-engine-faults-").tempdir();
        let folder = folder.expect("a temporary folder");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let engines = EngineSupervisor::new(program.to_owned(), folder.path().to_owned());
        let database = folder.path().join("tasks.db").display().to_string();
        Self {
            kind,
            rng: fastrand::Rng::with_seed(seed),
            engines,
            soak,
            notes: Vec::new(),
            direct: database.clone(),
            database,
            folder,
            runtime,
            evidence: Evidence::default(),
            producers: Vec::new(),
        }
    }

    /// Uses a database of the shared server, or a file.
    pub fn use_default_store(&mut self) -> &mut Self {
        if self.kind == StoreKind::Postgres {
            return self.use_server(TestServer::shared());
        }
        self.migrate();
        self
    }

    /// Uses a new database of this server.
    pub fn use_server(&mut self, server: &TestServer) -> &mut Self {
        let url = self.runtime.block_on(server.create_database());
        self.use_database(&url)
    }

    /// Uses an existing database.
    pub fn use_database(&mut self, url: &str) -> &mut Self {
        // Connections are counted by this name.
        self.database = format!("{url}?application_name=task-engine-fault");
        url.clone_into(&mut self.direct);
        self.migrate();
        self
    }

    fn migrate(&self) {
        let store = self.store();
        self.block_on(store.migrate()).expect("tables");
    }

    /// A file in the folder of this run.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits for a future.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// The runtime of this run.
    #[must_use]
    pub fn handle(&self) -> tokio::runtime::Handle {
        self.runtime.handle().clone()
    }

    /// The store, without a proxy.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        let begun = Instant::now();
        loop {
            match self.runtime.block_on(open(&self.direct)) {
                Ok(store) => return store,
                Err(error) => assert!(begun.elapsed() < TIMEOUT, "{}: {error}", self.direct),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// A connection to the server, without a proxy.
    #[must_use]
    pub fn sql(&self) -> tokio_postgres::Client {
        self.try_sql(&self.direct).expect("the server takes connections")
    }

    /// A connection to any URL.
    pub fn try_sql(&self, url: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        self.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            Ok(client)
        })
    }

    /// Options of an engine with a short lease.
    #[must_use]
    pub fn options(&self, name: &str) -> EngineProcessOptions {
        let config = EngineConfig {
            database: self.database.clone(),
            instance: name.to_owned(),
            witness: self.path("witness"),
            workers: 5,
            queues: Vec::new(),
            heartbeat_ms: 200,
            lease_ms: 1500,
            poll_ms: 1000,
            schedule: None,
        };
        EngineProcessOptions {
            config,
            wrapper: Vec::new(),
            environment: Vec::new(),
            supervised: true,
        }
    }

    /// Starts engines with default options.
    pub fn start(&self, names: &[&str]) {
        for name in names {
            self.engines.start(self.options(name));
        }
    }

    /// Creates tasks, and confirms them.
    pub fn create(&self, tasks: &[NewTask]) -> Vec<TaskId> {
        let store = self.store();
        let ids = self.block_on(store.create(tasks)).expect("tasks are created");
        confirm(&self.path("acks"), &ids).expect("a file for what is confirmed");
        ids
    }

    /// Creates this many equal tasks.
    pub fn create_many(&self, count: usize, spec: &TaskSpec) -> Vec<TaskId> {
        self.create(&vec![spec.task(); count])
    }

    /// Starts a producer.
    pub fn produce(&mut self, count: usize, batch: usize, pause_ms: u64, spec: TaskSpec) {
        let (database, acks) = (self.database.clone(), self.path("acks"));
        self.produce_as(ProducerConfig {
            database,
            acks,
            count,
            batch,
            pause_ms,
            spec,
            keys: None,
            limited: self.evidence.limited,
        });
    }

    /// Sets the limits of [`crate::limits`]. Producers create tasks that have them.
    pub fn limit_tasks(&mut self) {
        let store = self.store();
        for limit in limits() {
            self.block_on(store.set_limit(&limit)).expect("a limit is set");
        }
        self.evidence.limited = true;
    }

    /// Starts a producer of tasks that are unique by one of a few keys.
    pub fn produce_unique(&mut self, count: usize, keys: u64, spec: TaskSpec) {
        let (database, acks) = (self.database.clone(), self.path("acks_unique"));
        self.produce_as(ProducerConfig {
            database,
            acks,
            count,
            batch: 1,
            pause_ms: 10,
            spec,
            keys: Some(keys),
            limited: false,
        });
    }

    fn produce_as(&mut self, config: ProducerConfig) {
        self.run_producer(&ProgramCommand::Produce(config));
    }

    /// Starts a sender of signals to this many durable tasks; it counts as a producer.
    pub fn send_signals(&mut self, count: usize) {
        let (acks, signals) = (self.path("acks"), self.path("signals"));
        let database = self.database.clone();
        self.run_producer(&ProgramCommand::Signal(SignallerConfig {
            database,
            acks,
            signals,
            count,
        }));
    }

    fn run_producer(&mut self, command: &ProgramCommand) {
        let config = serde_json::to_string(command).expect("JSON");
        let mut command = self.engines.command(&[]);
        let child = command.arg(config).stderr(self.engines.log("producer")).spawn();
        self.producers.push(child.expect("a producer"));
    }

    /// Kills a producer, if there is one.
    pub fn kill_producer(&mut self) {
        if let Some(mut child) = self.producers.pop() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// How many tasks are confirmed so far.
    #[must_use]
    pub fn confirmed(&self) -> usize {
        std::fs::read_to_string(self.path("acks")).unwrap_or_default().lines().count()
    }

    /// The lines of tasks so far.
    #[must_use]
    pub fn witness(&self) -> Witness {
        Witness::read(&std::fs::read_to_string(self.path("witness")).unwrap_or_default())
    }

    /// The lines of durable tasks so far.
    #[must_use]
    pub fn step_lines(&self) -> Vec<StepLine> {
        read_lines(&steps_file(&self.path("witness")))
    }

    fn durable_evidence(&self, store: &dyn Store, history: &History) -> DurableEvidence {
        let classes = [Process::CLASS, Part::CLASS];
        let tasks = history.tasks.values().filter(|task| classes.contains(&task.class.as_str()));
        let stored = tasks.map(|task| {
            let steps = self.block_on(store.steps(TaskId(task.id)));
            (task.id, steps.expect("the steps are read"))
        });
        DurableEvidence {
            stored: stored.collect(),
            steps: self.step_lines(),
            signals: read_lines(&self.path("signals")),
        }
    }

    /// How many attempts have ended so far.
    #[must_use]
    pub fn finished(&self) -> usize {
        self.witness().attempts.values().filter(|seen| seen.ended.is_some()).count()
    }

    /// How many attempts have started so far.
    #[must_use]
    pub fn started(&self) -> usize {
        self.witness().attempts.len()
    }

    /// Waits until a condition holds.
    pub fn wait_until(&self, what: impl Display, is_met: impl FnMut() -> bool) -> Duration {
        self.wait_within(self.timeout(), what, is_met)
    }

    /// A soak run writes a hundred thousand attempts to disk.
    fn timeout(&self) -> Duration {
        if self.soak { TIMEOUT * 6 } else { TIMEOUT }
    }

    /// The same with another time limit.
    pub fn wait_within(
        &self,
        timeout: Duration,
        what: impl Display,
        is_met: impl FnMut() -> bool,
    ) -> Duration {
        wait_within(timeout, what, is_met, || self.logs())
    }

    /// Waits until these engines are alive.
    pub fn wait_alive(&self, names: &[&str]) {
        let store = self.store();
        self.wait_until(format_args!("{names:?} are alive"), || {
            names.iter().all(|name| {
                let rows = self.block_on(store.instances(Some(name))).unwrap_or_default();
                rows.iter().any(|row| row.is_alive())
            })
        });
    }

    /// Lets the fault last.
    pub fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Sleeps for a random time.
    pub fn sleep_random(&mut self, milliseconds: std::ops::Range<u64>) {
        let time = Duration::from_millis(self.rng.u64(milliseconds));
        self.sleep(time);
    }

    /// Starts to measure resource usage.
    #[must_use]
    pub fn monitor_usage(&self) -> UsageMonitor {
        UsageMonitor::open(self.engines.clone(), self.kind, &self.direct)
    }

    /// The last lines of all logs, for failure messages.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut all = String::new();
        for name in self.engines.names().into_iter().chain(["producer".to_owned()]) {
            let log = self.engines.logged(&name);
            let lines: Vec<&str> = log.lines().rev().take(8).collect();
            all += &format!("--- {name}, {} lines\n", log.lines().count());
            all.extend(lines.into_iter().rev().map(|line| format!("{line}\n")));
        }
        all
    }

    /// Adds a note to the table.
    pub fn note(&mut self, words: impl Into<String>) {
        self.notes.push(words.into());
    }

    /// Keeps the current history: ends must not change later.
    pub fn snapshot(&mut self) {
        let store = self.store();
        if let Ok(history) = self.block_on(History::read(&*store)) {
            self.evidence.before.push(history);
        }
    }

    /// An operator has retried this task.
    pub fn requeued(&mut self, id: TaskId) {
        *self.evidence.requeued.entry(id.0).or_default() += 1;
    }

    /// Waits for producers, then until no task waits or runs (I8).
    pub fn settle(&mut self) -> Duration {
        let begun = Instant::now();
        let mut producers = std::mem::take(&mut self.producers);
        self.wait_until("producers are done", || {
            producers.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
            producers.is_empty()
        });
        self.settle_only();
        begun.elapsed()
    }

    /// Waits until no task waits or runs.
    pub fn settle_only(&self) -> Duration {
        let store = self.store();
        self.wait_until("no task is open", || self.block_on(nothing_open(&*store)).unwrap_or(false))
    }

    /// Settles, stops the engines, and checks all promises. Returns the history.
    pub fn settle_and_check(&mut self) -> History {
        let settled = self.settle();
        self.engines.stop_all();
        self.note(format!("settled {:.1} s after the fault", settled.as_secs_f64()));
        self.check()
    }

    /// Checks all promises; no engine runs.
    pub fn check(&mut self) -> History {
        let (history, broken) = self.collect_violations();
        let shown: Vec<&String> = broken.iter().take(10).collect();
        assert!(broken.is_empty(), "{} promises broken: {shown:#?}\n{}", broken.len(), self.logs());
        history
    }

    /// Returns the broken promises, for a fault that breaks some.
    pub fn collect_violations(&mut self) -> (History, Vec<String>) {
        let store = self.store();
        let mut evidence = std::mem::take(&mut self.evidence);
        evidence.history = self.block_on(History::read(&*store)).expect("the history is read");
        let violations = self.block_on(store.verify()).expect("the store is verified");
        evidence.verify = violations.iter().map(ToString::to_string).collect();
        let acks = ["acks", "acks_unique"]
            .map(|file| std::fs::read_to_string(self.path(file)).unwrap_or_default())
            .concat();
        let whole = acks.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        evidence.acks = whole.filter_map(|line| line.trim_end().parse().ok()).collect();
        evidence.witness = self.witness();
        evidence.durable = self.durable_evidence(&*store, &evidence.history);
        evidence.dead = self.engines.dead();
        evidence.suspended = self.engines.suspended();
        evidence.workers = self.engines.workers();
        let broken = broken(&evidence);
        let again = evidence.history.executions().filter(|(_, e)| e.attempt > 1).count();
        self.note(format!(
            "{} tasks confirmed, {} recorded, {again} attempts repeated, {} late results",
            evidence.acks.len(),
            evidence.history.tasks.len(),
            evidence.history.late()
        ));
        (evidence.history, broken)
    }
}

impl Drop for TestContext {
    fn drop(&mut self) {
        self.engines.end();
        while !self.producers.is_empty() {
            self.kill_producer();
        }
    }
}

async fn nothing_open(store: &dyn Store) -> Result<bool, StoreError> {
    for status in [TaskStatus::Running, TaskStatus::Waiting] {
        let filter = TaskListQuery { status: Some(status), limit: 1, ..TaskListQuery::default() };
        if !store.tasks(&filter).await?.is_empty() {
            return Ok(false);
        }
    }
    // A task that changed its status in between was in neither list.
    let counted = store.inventory().await?;
    Ok(counted.waiting == 0 && counted.running == 0)
}
