//! Engines that die, or seem to, in the middle of durable tasks.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::Signal;
use task_engine::{NewTask, SignalStatus, Store, StoreError, Task as _, TaskId, TaskStatus};
use task_engine_core::queue::QueuePause;

use crate::durable::{CHILDREN, Part, Process, SIGNAL, SLEEP, STEPS};
use crate::harness::context::TestContext;
use crate::history::History;
use crate::producer::confirm;
use crate::registry::StoreKind;
use crate::step_witness::{SignalLine, SignalState, StepEvent, append, stop_file};

/// Longer than a sleep that waits in place.
const SUSPENDED_SLEEP_MS: u64 = 5200;

/// F41: engines are killed and suspended at random, and so is the sender of signals.
pub fn durable_kill_storm(ctx: &mut TestContext) {
    ctx.use_default_store();
    let names = ["a", "b", "c"];
    start(ctx, &names);
    let count = if ctx.soak { 200 } else { 36 };
    ctx.send_signals(count);
    let store = ctx.store();
    let mut storm = Storm::default();
    let mut created = 0;
    let over_at = Instant::now() + Duration::from_secs(if ctx.soak { 60 } else { 8 });
    let goes_on =
        |ctx: &TestContext| Instant::now() < over_at && ended_processes(ctx) < count * 3 / 4;
    while created < count || storm.spared_engines() || goes_on(ctx) {
        let batch = ctx.rng.usize(1..=8).min(count - created);
        if batch > 0 {
            let tasks: Vec<NewTask> = (0..batch).map(|_| random_process(&mut ctx.rng)).collect();
            if create(ctx, &*store, &tasks) {
                created += batch;
            }
        }
        ctx.sleep_random(50..500);
        storm.strike(ctx, &names, count);
    }
    storm.resume_all(ctx);
    ctx.note(format!(
        "{} engines killed and {} suspended, {} senders of signals killed",
        storm.killed, storm.suspended, storm.senders
    ));
    let history = ctx.settle_and_check();
    note_signals(ctx, &history);
}

/// Creates tasks, unless a suspended process keeps the lock of an SQLite file.
fn create(ctx: &TestContext, store: &dyn Store, tasks: &[NewTask]) -> bool {
    match ctx.block_on(store.create(tasks)) {
        Ok(ids) => {
            confirm(&ctx.path("acks"), &ids).expect("a file for what is confirmed");
            true
        }
        Err(StoreError::Unavailable(_)) => false,
        Err(error) => panic!("tasks are created: {error}"),
    }
}

/// Engines with workers for parents and for children.
fn start(ctx: &TestContext, names: &[&str]) {
    for name in names {
        let mut options = ctx.options(name);
        options.config.queues = [("processes", 20), ("parts", 5), ("default", 1)]
            .map(|(q, n)| (q.to_owned(), n))
            .into();
        ctx.engines.start(options);
    }
}

fn random_process(rng: &mut fastrand::Rng) -> NewTask {
    let process = Process {
        step_ms: rng.u64(..30),
        sleep_ms: if rng.u8(..5) == 0 { SUSPENDED_SLEEP_MS } else { rng.u64(..1000) },
        // A short one ends at about the time when its signal is sent.
        timeout_ms: if rng.bool() { rng.u64(..300) } else { 120_000 },
        stops: Vec::new(),
    };
    NewTask::of(&process).expect("plain numbers")
}

fn ended_processes(ctx: &TestContext) -> usize {
    let lines = ctx.step_lines();
    let ended = lines.iter().filter(|line| matches!(line.event, StepEvent::Result { .. }));
    ended.map(|line| line.task).collect::<std::collections::BTreeSet<_>>().len()
}

/// What was done to the processes.
#[derive(Default)]
struct Storm {
    killed: u32,
    suspended: u32,
    senders: u32,
    /// Suspended engines, and when they continue.
    stopped: Vec<(&'static str, Instant)>,
}

impl Storm {
    fn strike(&mut self, ctx: &mut TestContext, names: &[&'static str], count: usize) {
        let victim = *ctx.rng.choice(names).expect("names");
        let is_stopped = self.stopped.iter().any(|(name, _)| *name == victim);
        match ctx.rng.u8(..8) {
            0 => {
                ctx.kill_producer();
                ctx.send_signals(count);
                self.senders += 1;
            }
            // One at a time, so that the others can recover its tasks.
            1 | 2 if self.stopped.is_empty() && ctx.engines.signal(victim, Signal::STOP) => {
                let time = Duration::from_millis(ctx.rng.u64(1500..4000));
                self.stopped.push((victim, Instant::now() + time));
                self.suspended += 1;
            }
            3..=6 if !is_stopped => self.killed += u32::from(ctx.engines.kill(victim)),
            _ => {}
        }
        self.stopped.retain(|(name, until)| {
            let remains = Instant::now() < *until;
            if !remains {
                ctx.engines.signal(name, Signal::CONT);
            }
            remains
        });
    }

    fn spared_engines(&self) -> bool {
        self.killed == 0 || self.suspended == 0
    }

    fn resume_all(&mut self, ctx: &TestContext) {
        for (name, _) in self.stopped.drain(..) {
            ctx.engines.signal(name, Signal::CONT);
        }
    }
}

/// How many waits ended in each way.
fn note_signals(ctx: &mut TestContext, history: &History) {
    let lines = ctx.step_lines();
    let outcomes: std::collections::BTreeMap<i64, bool> = lines
        .iter()
        .filter_map(|line| match &line.event {
            StepEvent::Signal { payload } => Some((line.task, payload.is_some())),
            _ => None,
        })
        .collect();
    let received = outcomes.values().filter(|received| **received).count();
    ctx.note(format!(
        "{received} signals received, {} waits timed out, {} suspensions, {} attempts lost",
        outcomes.len() - received,
        history.count("Snoozed"),
        history.count("InstanceLost")
    ));
    assert!(received > 0, "no signal was received");
}

/// F42: the engine is killed right after each kind of write of a durable task.
pub fn killed_after_each_write(ctx: &mut TestContext) {
    ctx.use_default_store();
    pause(ctx, "parts");
    start(ctx, &["a"]);
    let mut run = KillPoints::begin(ctx);
    run.steps_and_sleep();
    run.wait_and_signal();
    run.call();
    run.children();
    run.stopped_at(run.process, "six");
    let KillPoints { process, killed, .. } = run;
    ctx.note(format!("killed {killed} times"));
    ctx.settle_and_check();
    for step in STEPS {
        let expected = if step == "one" { 2 } else { 1 };
        let started = StepEvent::CodeStarted { step: step.to_owned() };
        let lines = ctx.step_lines();
        let runs = lines.iter().filter(|line| line.task == process.0 && line.event == started);
        assert_eq!(runs.count(), expected, "runs of the code of step {step}");
    }
}

fn pause(ctx: &TestContext, queue: &str) {
    let pause = QueuePause::new(queue, None).expect("a name");
    ctx.block_on(ctx.store().pause_queue(&pause)).expect("a paused queue");
}

/// The tasks whose engine is killed after each of their writes.
struct KillPoints<'a> {
    ctx: &'a mut TestContext,
    store: std::sync::Arc<dyn Store>,
    /// It makes all writes but a timeout.
    process: TaskId,
    /// Its wait times out.
    impatient: TaskId,
    killed: u32,
}

impl<'a> KillPoints<'a> {
    fn begin(ctx: &'a mut TestContext) -> Self {
        let stops = |points: &[&str]| points.iter().map(|point| (*point).to_owned()).collect();
        let process = Process {
            sleep_ms: 1500,
            timeout_ms: 120_000,
            stops: stops(&["code of one", "one", "signal", "children", "six"]),
            ..Process::default()
        };
        let impatient = Process { timeout_ms: 100, stops: stops(&["signal"]), ..process.clone() };
        // It sleeps through most of the kills.
        let sleeper = Process {
            sleep_ms: SUSPENDED_SLEEP_MS,
            timeout_ms: 100,
            stops: Vec::new(),
            ..process.clone()
        };
        let tasks = [process, impatient, sleeper].map(|task| NewTask::of(&task).expect("a task"));
        let ids = ctx.create(&tasks);
        let store = ctx.store();
        Self { ctx, store, process: ids[0], impatient: ids[1], killed: 0 }
    }

    fn kill(&mut self) {
        let (ctx, mut killed) = (&*self.ctx, false);
        let process = ctx.engines.process("a");
        ctx.wait_until("the engine is killed", || {
            killed |= ctx.engines.kill("a");
            killed && ctx.engines.process("a") != process
        });
        self.killed += 1;
    }

    fn wait(&self, what: &str, mut is_met: impl FnMut(&Self) -> bool) {
        self.ctx.wait_until(what, || is_met(self));
    }

    /// Kills the engine while the code of a task stops at a point.
    fn stopped_at(&mut self, id: TaskId, point: &str) {
        let file = stop_file(&self.ctx.path("witness"), id.0, point);
        self.wait(point, |_| file.exists());
        self.kill();
    }

    fn has_step(&self, name: &str) -> bool {
        let stored = self.ctx.block_on(self.store.steps(self.process)).expect("an answer");
        stored.steps.iter().any(|step| step.name == name)
    }

    /// Whether the task is suspended: the last attempt has ended, and the next one is not due.
    fn is_suspended(&self) -> bool {
        let row = self.ctx.block_on(self.store.task(self.process)).expect("an answer");
        row.is_some_and(|task| {
            task.row.status == TaskStatus::Waiting
                && task.row.scheduled_at > Timestamp::now() + Duration::from_secs(60)
        })
    }

    /// PostgreSQL: keeps a row locked until the returned connection is dropped.
    fn lock(&self, statement: &str) -> Option<tokio_postgres::Client> {
        (self.ctx.kind == StoreKind::Postgres).then(|| {
            let client = self.ctx.sql();
            let statement = statement.replace("$1", &self.process.to_string());
            self.ctx
                .block_on(client.batch_execute(&format!("BEGIN; {statement}")))
                .expect("a lock");
            client
        })
    }

    /// Without the lock of the task, its suspension waits.
    fn prevent_suspension(&self) -> Option<tokio_postgres::Client> {
        self.lock("SELECT FROM task_engine.created_tasks WHERE id = $1 FOR NO KEY UPDATE")
    }

    fn steps_and_sleep(&mut self) {
        self.stopped_at(self.process, "code of one");
        self.stopped_at(self.process, "one");
        self.wait("the sleep has begun", |run| run.has_step(SLEEP));
        self.kill();
    }

    fn wait_and_signal(&mut self) {
        let lock = self.prevent_suspension();
        self.wait("the wait has begun", |run| run.has_step(SIGNAL));
        self.kill();
        drop(lock);
        self.wait("the task is suspended", Self::is_suspended);
        self.kill();
        // While the first task is suspended, so that no step of it is interrupted.
        self.stopped_at(self.impatient, "signal");
        self.send("first", SignalState::Accepted);
        self.send("second", SignalState::Refused);
        self.stopped_at(self.process, "signal");
    }

    fn send(&self, payload: &str, expected: SignalState) {
        let (ctx, file) = (&self.ctx, self.ctx.path("signals"));
        let json = task_engine::Json::encode(&payload).expect("text");
        let target = self.process.into();
        let report = ctx.block_on(self.store.signal(&target, SIGNAL, &json)).expect("an answer");
        let state = match report.status {
            SignalStatus::Delivered => SignalState::Accepted,
            _ => SignalState::Refused,
        };
        assert_eq!(state, expected, "{report:?}");
        let line = SignalLine { task: self.process.0, payload: payload.to_owned(), state };
        append(&file, &line).expect("a line");
    }

    fn call(&mut self) {
        let lock = self.prevent_suspension();
        self.wait("the children are created", |run| run.has_step(Part::CLASS));
        self.kill();
        drop(lock);
        self.wait("the parent is suspended", Self::is_suspended);
        self.kill();
    }

    fn children(&mut self) {
        // The parent is not claimed, so that the engine is killed right after its resumption.
        pause(self.ctx, "processes");
        let lock =
            self.lock("SELECT FROM task_engine.suspended_tasks WHERE task_id = $1 FOR UPDATE");
        self.ctx.block_on(self.store.resume_queue("parts")).expect("resumed");
        self.wait("the children have ended", |run| {
            let steps = run.ctx.block_on(run.store.steps(run.process)).expect("an answer");
            let call = steps.steps.iter().find(|step| step.name == Part::CLASS);
            let ids = call.map(task_engine_core::step::StepRow::children).unwrap_or_default();
            let ids: Vec<_> = ids.into_iter().map(|id| (id, None)).collect();
            let ended = run.ctx.block_on(run.store.child_outcomes(&ids)).expect("an answer");
            ended.iter().flatten().count() == CHILDREN
        });
        self.kill();
        drop(lock);
        self.wait("the parent is due", |run| !run.is_suspended());
        self.kill();
        self.ctx.block_on(self.store.resume_queue("processes")).expect("resumed");
        self.stopped_at(self.process, "children");
    }
}
