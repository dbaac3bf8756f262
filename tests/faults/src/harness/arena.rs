//! One run of one fault: a store, engines, producers, and the final account.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use task_engine::{NewTask, Store, StoreError, TaskId, TaskStatus};
use task_engine_conformance::TestServer;
use task_engine_core::task::TaskFilter;
use tempfile::TempDir;

use crate::check::{Evidence, broken};
use crate::engine::open;
use crate::harness::bounds::Window;
use crate::harness::fleet::{EnginePlan, Fleet};
use crate::history::History;
use crate::orders::{Duty, EngineOrder, Order, ProducerOrder};
use crate::producer::confirm;
use crate::registry::Kind;
use crate::witness::Witness;

/// Nothing takes this long, unless it is lost.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// What a scenario works with.
#[derive(Debug)]
pub struct Arena {
    /// Which store.
    pub kind: Kind,
    /// Chance, by the seed of this run.
    pub chance: fastrand::Rng,
    /// The engines.
    pub fleet: Fleet,
    /// More and longer, if nobody waits.
    pub soak: bool,
    /// What was seen, for the table.
    pub notes: Vec<String>,
    /// The URL or file that engines and producers are given.
    pub database: String,
    /// The one that the account is made by: past any proxy.
    pub direct: String,
    folder: TempDir,
    runtime: tokio::runtime::Runtime,
    evidence: Evidence,
    producers: Vec<Child>,
}

impl Arena {
    /// An empty store, and no engine yet.
    #[must_use]
    pub fn new(kind: Kind, program: &Path, seed: u64, soak: bool) -> Self {
        let folder = tempfile::Builder::new().prefix("task-engine-faults-").tempdir();
        let folder = folder.expect("a temporary folder");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let fleet = Fleet::new(program.to_owned(), folder.path().to_owned());
        let database = folder.path().join("tasks.db").display().to_string();
        Self {
            kind,
            chance: fastrand::Rng::with_seed(seed),
            fleet,
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

    /// A database of the shared server, or a file; with its tables.
    pub fn on_usual_store(&mut self) -> &mut Self {
        if self.kind == Kind::Postgres {
            return self.on_server(TestServer::shared());
        }
        self.migrate();
        self
    }

    /// A new database of this server, with its tables.
    pub fn on_server(&mut self, server: &TestServer) -> &mut Self {
        let url = self.runtime.block_on(server.create_database());
        self.on_database(&url)
    }

    /// A database that is there, and gets its tables.
    pub fn on_database(&mut self, url: &str) -> &mut Self {
        // By this name, bounds are measured.
        self.database = format!("{url}?application_name=task-engine-fault");
        url.clone_into(&mut self.direct);
        self.migrate();
        self
    }

    fn migrate(&self) {
        let store = self.store();
        self.wait(store.migrate()).expect("tables");
    }

    /// A file in the folder of this run.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits for a future.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// The runtime of this run.
    #[must_use]
    pub fn handle(&self) -> tokio::runtime::Handle {
        self.runtime.handle().clone()
    }

    /// The store, by the direct way.
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

    /// A connection to the server, by the direct way.
    #[must_use]
    pub fn sql(&self) -> tokio_postgres::Client {
        self.try_sql(&self.direct).expect("the server takes connections")
    }

    /// The same to any URL, if it can be had.
    pub fn try_sql(&self, url: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        self.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            Ok(client)
        })
    }

    /// An engine with a short lease, to be changed and started.
    #[must_use]
    pub fn plan(&self, name: &str) -> EnginePlan {
        let order = EngineOrder {
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
        EnginePlan { order, around: Vec::new(), environment: Vec::new(), supervised: true }
    }

    /// Starts engines that are as usual.
    pub fn start(&self, names: &[&str]) {
        for name in names {
            self.fleet.start(self.plan(name));
        }
    }

    /// Creates tasks, which are confirmed by that.
    pub fn create(&self, tasks: &[NewTask]) -> Vec<TaskId> {
        let store = self.store();
        let ids = self.wait(store.create(tasks)).expect("tasks are created");
        confirm(&self.path("acks"), &ids).expect("a file for what is confirmed");
        ids
    }

    /// Creates so many equal tasks.
    pub fn create_many(&self, count: usize, duty: &Duty) -> Vec<TaskId> {
        self.create(&vec![duty.task(); count])
    }

    /// Starts a producer.
    pub fn produce(&mut self, count: usize, batch: usize, pause_ms: u64, duty: Duty) {
        let (database, acks) = (self.database.clone(), self.path("acks"));
        let keys = None;
        self.produce_as(ProducerOrder { database, acks, count, batch, pause_ms, duty, keys });
    }

    /// Starts a producer of tasks that are unique by one of a few keys.
    pub fn produce_unique(&mut self, count: usize, keys: u64, duty: Duty) {
        let (database, acks) = (self.database.clone(), self.path("acks_unique"));
        let (batch, pause_ms, keys) = (1, 10, Some(keys));
        self.produce_as(ProducerOrder { database, acks, count, batch, pause_ms, duty, keys });
    }

    fn produce_as(&mut self, order: ProducerOrder) {
        let order = serde_json::to_string(&Order::Produce(order)).expect("an order");
        let mut command = self.fleet.command(&[]);
        let child = command.arg(order).stderr(self.fleet.log("producer")).spawn();
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

    /// What tasks have written so far.
    #[must_use]
    pub fn witness(&self) -> Witness {
        Witness::read(&std::fs::read_to_string(self.path("witness")).unwrap_or_default())
    }

    /// How many attempts have been seen to end so far.
    #[must_use]
    pub fn done(&self) -> usize {
        self.witness().seen.values().filter(|seen| seen.ended.is_some()).count()
    }

    /// How many attempts have been seen to begin so far.
    #[must_use]
    pub fn begun(&self) -> usize {
        self.witness().seen.len()
    }

    /// Waits until something is so.
    pub fn until(&self, what: impl Display, is_so: impl FnMut() -> bool) -> Duration {
        self.until_within(self.timeout(), what, is_so)
    }

    /// Each attempt of a hundred thousand is written to a disk by the witness, too.
    fn timeout(&self) -> Duration {
        if self.soak { TIMEOUT * 6 } else { TIMEOUT }
    }

    /// The same with less timeout.
    pub fn until_within(
        &self,
        timeout: Duration,
        what: impl Display,
        mut is_so: impl FnMut() -> bool,
    ) -> Duration {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < timeout, "not within {timeout:?}: {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
        begun.elapsed()
    }

    /// Waits until an engine has registered and is alive.
    pub fn until_alive(&self, names: &[&str]) {
        let store = self.store();
        self.until(format_args!("{names:?} are alive"), || {
            names.iter().all(|name| {
                let rows = self.wait(store.instances(Some(name))).unwrap_or_default();
                rows.iter().any(|row| row.is_alive())
            })
        });
    }

    /// Lets time pass while the fault lasts.
    pub fn endure(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Lets some time pass, by chance.
    pub fn endure_some(&mut self, milliseconds: std::ops::Range<u64>) {
        let time = Duration::from_millis(self.chance.u64(milliseconds));
        self.endure(time);
    }

    /// Begins to measure what engines use.
    #[must_use]
    pub fn window(&self) -> Window {
        Window::open(self.fleet.clone(), self.kind, &self.direct)
    }

    /// The ends of all logs, for whoever reads a failure.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut all = String::new();
        for name in self.fleet.names().into_iter().chain(["producer".to_owned()]) {
            let log = self.fleet.logged(&name);
            let lines: Vec<&str> = log.lines().rev().take(8).collect();
            all += &format!("--- {name}, {} lines\n", log.lines().count());
            all.extend(lines.into_iter().rev().map(|line| format!("{line}\n")));
        }
        all
    }

    /// Says something for the table.
    pub fn note(&mut self, words: impl Into<String>) {
        self.notes.push(words.into());
    }

    /// Keeps what the store says now: what has ended must not change later.
    pub fn remember(&mut self) {
        let store = self.store();
        if let Ok(history) = self.wait(History::read(&*store)) {
            self.evidence.before.push(history);
        }
    }

    /// An operator has sent this task back to run.
    pub fn sent_back(&mut self, id: TaskId) {
        *self.evidence.sent_back.entry(id.0).or_default() += 1;
    }

    /// Waits for producers, then until no task waits or runs (I8).
    pub fn settle(&mut self) -> Duration {
        let begun = Instant::now();
        let mut producers = std::mem::take(&mut self.producers);
        self.until("producers are done", || {
            producers.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
            producers.is_empty()
        });
        self.settle_only();
        begun.elapsed()
    }

    /// Waits until no task waits or runs.
    pub fn settle_only(&self) -> Duration {
        let store = self.store();
        self.until("no task is open", || self.wait(nothing_open(&*store)).unwrap_or(false))
    }

    /// Settles, stops the engines, and checks everything. Returns the history.
    pub fn account(&mut self) -> History {
        let settled = self.settle();
        self.fleet.stop_all();
        self.note(format!("settled {:.1} s after it was healed", settled.as_secs_f64()));
        self.reckon()
    }

    /// Checks everything as it is now; no engine runs.
    pub fn reckon(&mut self) -> History {
        let (history, broken) = self.reckon_up();
        let shown: Vec<&String> = broken.iter().take(10).collect();
        assert!(broken.is_empty(), "{} promises broken: {shown:#?}\n{}", broken.len(), self.logs());
        history
    }

    /// The same, for a fault that breaks some promises: what was broken.
    pub fn reckon_up(&mut self) -> (History, Vec<String>) {
        let store = self.store();
        let mut evidence = std::mem::take(&mut self.evidence);
        evidence.history = self.wait(History::read(&*store)).expect("the history is read");
        evidence.verify = self.wait(store.verify()).expect("the store is verified");
        let acks = ["acks", "acks_unique"]
            .map(|file| std::fs::read_to_string(self.path(file)).unwrap_or_default())
            .concat();
        let whole = acks.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        evidence.acks = whole.filter_map(|line| line.trim_end().parse().ok()).collect();
        evidence.witness = self.witness();
        evidence.dead = self.fleet.dead();
        evidence.workers = self.fleet.workers();
        let broken = broken(&evidence);
        let again = evidence.history.executions().filter(|(_, e)| e.attempt > 1).count();
        self.note(format!(
            "{} tasks confirmed, {} on record, {again} attempts repeated, {} late results",
            evidence.acks.len(),
            evidence.history.tasks.len(),
            evidence.history.late()
        ));
        (evidence.history, broken)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.fleet.end();
        while !self.producers.is_empty() {
            self.kill_producer();
        }
    }
}

async fn nothing_open(store: &dyn Store) -> Result<bool, StoreError> {
    for status in [TaskStatus::Running, TaskStatus::Waiting] {
        let filter = TaskFilter { status: Some(status), limit: 1, ..TaskFilter::default() };
        if !store.tasks(&filter).await?.is_empty() {
            return Ok(false);
        }
    }
    // A task that has moved meanwhile was seen in neither place.
    let counted = store.inventory().await?;
    Ok(counted.waiting == 0 && counted.running == 0)
}
