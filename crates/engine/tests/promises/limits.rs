//! Limits hold for all engines: running attempts of a key, starts in a window, order, and keys
//! that are closed by the code of a task.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use task_engine::core::attempt::TaskError;
use task_engine::core::claim::ClaimId;
use task_engine::core::instance::NewInstance;
use task_engine::core::queue::{Lanes, QueuePause};
use task_engine::core::task::TaskDetails;
use task_engine::limit::{Limit, LimitOptions, Rate};
use task_engine::{
    Context, Creation, Engine, EngineError, Failure, NewTask, OnConflict, RetryRule, Schedule,
    Task, TaskEngine, TaskId, TaskOptions, TaskStatus, Unique,
};
use tokio::sync::Semaphore;

use crate::store::{Fresh, TIMEOUT, on_every_store, start, task};

on_every_store! {
    two_engines_never_exceed_max
    two_engines_never_exceed_rate
    rate_limited_task_closes_key
    rate_limited_without_limits_is_a_snooze
    failing_head_blocks_its_key
    lowered_limit_applies_at_once
    limit_of_queue_counts_all_classes
    named_limit_counts_tasks_that_name_it
    unknown_limit_is_refused
    unique_task_waits_for_its_key
    priority_decides_which_task_gets_key
    paused_queue_starts_no_limited_task
    schedule_names_limit
    task_waiting_for_retry_holds_no_key
    sleeping_task_holds_no_key
    sleeping_task_in_order_holds_its_key
    dead_engine_frees_its_keys
    late_start_is_released
    freed_key_wakes_other_engine
    suspended_task_wakes_next_of_its_key
    signalled_task_waits_for_its_key
    called_child_gets_key_of_its_parent
    retry_is_start_of_rate
    limit_that_is_no_longer_declared_is_removed
    last_declaration_applies
    invalid_limits_refuse_the_start
}

const HOUR: Duration = Duration::from_secs(3600);

/// The poll is every 10 s; what starts sooner was woken for. The bound is wide because the
/// machine may be busy.
const SOON: Duration = Duration::from_secs(5);

/// What the code of the tasks has seen, in all engines of a test.
struct Witness {
    seen: Mutex<Seen>,
    /// A permit ends one held attempt.
    gate: Semaphore,
}

#[derive(Default)]
struct Seen {
    running: HashMap<String, usize>,
    /// The most attempts of each key at a time.
    peak: BTreeMap<String, usize>,
    /// The labels of the attempts, and when they started.
    starts: Vec<(String, Instant)>,
}

type State = Arc<Witness>;

impl Witness {
    fn new() -> State {
        Arc::new(Self { seen: Mutex::default(), gate: Semaphore::new(0) })
    }

    fn begin(&self, key: &str, label: &str) {
        let now = Instant::now();
        let seen = &mut *self.seen.lock().unwrap();
        seen.starts.push((label.to_owned(), now));
        let running = seen.running.entry(key.to_owned()).or_default();
        *running += 1;
        let peak = seen.peak.entry(key.to_owned()).or_default();
        *peak = (*peak).max(*running);
    }

    fn end(&self, key: &str) {
        *self.seen.lock().unwrap().running.get_mut(key).unwrap() -= 1;
    }

    fn running(&self, key: &str) -> usize {
        self.seen.lock().unwrap().running.get(key).copied().unwrap_or_default()
    }

    fn labels(&self) -> Vec<String> {
        self.seen.lock().unwrap().starts.iter().map(|(label, _)| label.clone()).collect()
    }

    fn peaks(&self) -> BTreeMap<String, usize> {
        self.seen.lock().unwrap().peak.clone()
    }

    fn started_at(&self, label: &str) -> Instant {
        let seen = self.seen.lock().unwrap();
        seen.starts.iter().find(|(started, _)| started == label).expect("it has started").1
    }

    async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !wanted(self) {
            assert!(begun.elapsed() < TIMEOUT, "{what}: {:?}", self.seen.lock().unwrap().starts);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A task of the class `sync` that another one calls.
#[derive(Serialize, Deserialize, Task)]
#[task(class = "sync")]
struct Child {
    key: String,
    label: String,
}

/// The code of all tasks here, by their parameters: `key`, `label`, and what to do.
async fn work(parameters: Value, cx: Context<State>) -> Result<(), Failure> {
    let text = |name: &str| parameters[name].as_str().unwrap_or_default().to_owned();
    let (key, label) = (text("key"), text("label"));
    cx.state().begin(&key, &label);
    let ended = match parameters["then"].as_str() {
        Some("hold") => {
            cx.state().gate.acquire().await.unwrap().forget();
            Ok(())
        }
        Some("hold, then rate limited") if cx.attempt() == 1 => {
            cx.state().gate.acquire().await.unwrap().forget();
            Err(Failure::rate_limited(Duration::from_secs(1)))
        }
        Some("wait") => {
            cx.state().gate.acquire().await.unwrap().forget();
            cx.state().end(&key);
            let _: Option<Value> = cx.wait_for("never", HOUR).await?;
            return Ok(());
        }
        Some("wait for signal") => {
            cx.state().end(&key);
            let _: Option<Value> = cx.wait_for("go", HOUR).await?;
            cx.state().begin(&key, "signalled");
            Ok(())
        }
        Some("call") => {
            cx.state().end(&key);
            let child = Child { key: key.clone(), label: "child".to_owned() };
            let _: Value = cx.call(child).await?;
            cx.state().begin(&key, "called");
            Ok(())
        }
        Some("fail twice") if cx.attempt() < 3 => Err(Failure::named("Closed", "not yet")),
        Some("fail") if cx.attempt() == 1 => {
            Err(Failure::retry_after(Failure::named("Closed", "not yet"), HOUR))
        }
        Some("rate limited") if cx.attempt() == 1 => {
            Err(Failure::rate_limited(Duration::from_secs(1)))
        }
        Some("sleep") => {
            cx.state().end(&key);
            cx.sleep("long", HOUR).await;
            return Ok(());
        }
        _ => {
            tokio::time::sleep(Duration::from_millis(3)).await;
            Ok(())
        }
    };
    cx.state().end(&key);
    ended
}

struct Scene {
    fresh: Fresh,
    witness: State,
    tasks: TaskEngine,
}

impl Scene {
    fn new(fresh: Fresh) -> Self {
        let tasks = TaskEngine::new(fresh.store.clone());
        Self { fresh, witness: Witness::new(), tasks }
    }

    /// An engine with a handler for the class `sync`.
    fn engine(&self, name: &str, options: TaskOptions) -> Engine<State> {
        let options = options.retry(RetryRule::every(Duration::from_millis(20), 5));
        let engine = self.tasks.engine(self.witness.clone()).instance(name);
        engine.handle_class("sync", options, work)
    }

    /// Starts an engine, and waits until it has declared its limits.
    async fn started(&self, limit: LimitOptions) -> task_engine::RunningEngine {
        self.engine("test", TaskOptions::default().limit(limit)).start().await.unwrap()
    }

    async fn create(&self, key: &str, label: &str, then: &str) -> TaskId {
        self.fresh.create_task(sync(key, label, then)).await
    }

    async fn stopped(&self, id: TaskId) -> TaskDetails {
        self.fresh.until_status(id, TaskStatus::Stopped).await
    }

    /// Creates a task that runs until the gate lets it end, and waits until it runs.
    async fn hold(&self, key: &str) -> TaskId {
        let held = self.witness.running(key);
        let id = self.create(key, "held", "hold").await;
        self.witness.until("held", |witness| witness.running(key) == held + 1).await;
        id
    }

    async fn assert_waiting(&self, id: TaskId) {
        let details = self.fresh.details(id).await;
        assert_eq!(details.row.status, TaskStatus::Waiting, "{details:#?}");
    }
}

fn sync(key: &str, label: &str, then: &str) -> NewTask {
    task("sync", json!({"key": key, "label": label, "then": then}))
}

async fn end(engine: task_engine::RunningEngine) {
    engine.stop();
    engine.join().await.unwrap();
}

async fn two_engines_never_exceed_max(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let limit = || TaskOptions::default().limit(LimitOptions::max(2).key("key"));
    let engines = ["a", "b"].map(|name| start(scene.engine(name, limit()).workers(5)));
    let keys = ["acme", "globex", "initech"];
    let tasks: Vec<NewTask> =
        (0..60).map(|n| sync(keys[n % keys.len()], &n.to_string(), "")).collect();
    for id in scene.fresh.store.create(&tasks).await.unwrap() {
        scene.stopped(id).await;
    }
    for engine in engines {
        engine.stop().await;
    }
    let peaks = scene.witness.peaks();
    assert_eq!(peaks.keys().collect::<Vec<_>>(), keys);
    assert!(peaks.values().all(|peak| *peak <= 2), "{peaks:?}");
    scene.fresh.assert_sound().await;
}

async fn two_engines_never_exceed_rate(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let per = Duration::from_secs(1);
    let limit = || TaskOptions::default().rate(Rate::new(8, per));
    let first = scene.engine("a", limit()).workers(5).start().await.unwrap();
    let other = scene.engine("b", limit()).workers(5).start().await.unwrap();
    let tasks: Vec<NewTask> = (0..24).map(|n| sync("", &n.to_string(), "")).collect();
    for id in scene.fresh.store.create(&tasks).await.unwrap() {
        scene.stopped(id).await;
    }
    end(first).await;
    end(other).await;
    let mut starts: Vec<Instant> =
        scene.witness.seen.lock().unwrap().starts.iter().map(|(_, at)| *at).collect();
    starts.sort();
    assert_eq!(starts.len(), 24, "an attempt that was released has not started");
    // The handler looks at the clock a moment after its start.
    let least = per - Duration::from_millis(20);
    for window in starts.windows(9) {
        let lasted = window[8] - window[0];
        assert!(lasted >= least, "9 starts within {lasted:?}");
    }
    scene.fresh.assert_sound().await;
}

async fn rate_limited_task_closes_key(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let engine = scene.started(LimitOptions::max(5).key("key")).await;
    let first = scene.create("acme", "first", "rate limited").await;
    let snoozed = scene.fresh.until_requeued(first).await;
    assert_eq!(snoozed.executions[0].error.as_ref().unwrap().exception, TaskError::SNOOZED);
    end(engine).await;
    let options = TaskOptions::default().limit(LimitOptions::max(5).key("key"));
    let other = scene.engine("other", options).start().await.unwrap();
    let same = scene.create("acme", "same key", "").await;
    let free = scene.create("globex", "other key", "").await;
    scene.stopped(free).await;
    scene.assert_waiting(same).await;
    scene.stopped(same).await;
    let first = scene.stopped(first).await;
    assert_eq!(first.executions[1].retry_number, 0, "no retry was used");
    let witness = &scene.witness;
    let closed = witness.started_at("same key") - witness.started_at("first");
    assert!(closed >= Duration::from_secs(1), "{closed:?}");
    end(other).await;
    scene.fresh.assert_sound().await;
}

async fn rate_limited_without_limits_is_a_snooze(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let engine = scene.engine("test", TaskOptions::default()).start().await.unwrap();
    let first = scene.create("acme", "first", "rate limited").await;
    scene.fresh.until_requeued(first).await;
    let other = scene.create("acme", "other", "").await;
    scene.stopped(other).await;
    scene.assert_waiting(first).await;
    assert_eq!(scene.stopped(first).await.executions[1].retry_number, 0);
    end(engine).await;
}

async fn failing_head_blocks_its_key(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let tasks = [
        sync("a", "a1", "fail twice"),
        sync("a", "a2", ""),
        sync("a", "a3", ""),
        sync("b", "b1", ""),
    ];
    let engine = scene.started(LimitOptions::in_order().key("key")).await;
    for id in scene.fresh.store.create(&tasks).await.unwrap() {
        scene.stopped(id).await;
    }
    end(engine).await;
    let mut labels = scene.witness.labels();
    labels.retain(|label| label != "b1");
    assert_eq!(labels, ["a1", "a1", "a1", "a2", "a3"]);
    assert!(scene.witness.peaks().values().all(|peak| *peak == 1));
    scene.fresh.assert_sound().await;
}

async fn lowered_limit_applies_at_once(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let engine = scene.started(LimitOptions::max(3)).await;
    let tasks: Vec<NewTask> = (0..8).map(|n| sync("", &n.to_string(), "hold")).collect();
    let ids = scene.fresh.store.create(&tasks).await.unwrap();
    scene.witness.until("three run", |witness| witness.running("") == 3).await;
    let lower = Limit::of_class("sync", "sync", LimitOptions::max(1)).unwrap();
    scene.fresh.store.set_limit(&lower).await.unwrap();
    // Two of three end: the one that is left fills the limit.
    scene.witness.gate.add_permits(2);
    scene.witness.until("one runs", |witness| witness.running("") == 1).await;
    scene.witness.seen.lock().unwrap().peak.clear();
    scene.witness.gate.add_permits(6);
    for id in ids {
        scene.stopped(id).await;
    }
    assert_eq!(scene.witness.peaks()[""], 1);
    assert_eq!(scene.witness.labels().len(), 8);
    end(engine).await;
    scene.fresh.assert_sound().await;
}

async fn limit_of_queue_counts_all_classes(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let limit = Limit::of_queue("mail", "mail", LimitOptions::max(1)).unwrap();
    let engine = scene
        .engine("test", TaskOptions::default())
        .handle_class("other", TaskOptions::default(), work)
        .queues(["default", "mail"])
        .limit(limit);
    let engine = engine.start().await.unwrap();
    let in_mail = |task: NewTask| task.queue("mail").unwrap();
    let held = scene.fresh.create_task(in_mail(sync("", "held", "hold"))).await;
    scene.witness.until("held", |witness| witness.running("") == 1).await;
    let other = task("other", json!({"key": "", "label": "other"}));
    let other = scene.fresh.create_task(in_mail(other)).await;
    let default = scene.create("", "default", "").await;
    scene.stopped(default).await;
    scene.assert_waiting(other).await;
    scene.witness.gate.add_permits(1);
    scene.stopped(held).await;
    scene.stopped(other).await;
    end(engine).await;
    scene.fresh.assert_sound().await;
}

async fn named_limit_counts_tasks_that_name_it(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let limit = Limit::named("api", LimitOptions::max(1)).unwrap();
    let engine = scene.engine("test", TaskOptions::default()).limit(limit);
    let engine = engine.start().await.unwrap();
    let named =
        |key: &str, label: &str, then: &str| sync("", label, then).limit("api", key).unwrap();
    let held = scene.fresh.create_task(named("acme", "held", "hold")).await;
    scene.witness.until("held", |witness| witness.running("") == 1).await;
    let same = scene.fresh.create_task(named("acme", "same", "")).await;
    let other = scene.fresh.create_task(named("globex", "other", "")).await;
    let plain = scene.create("", "plain", "").await;
    scene.stopped(other).await;
    scene.stopped(plain).await;
    scene.assert_waiting(same).await;
    scene.witness.gate.add_permits(1);
    scene.stopped(held).await;
    scene.stopped(same).await;
    end(engine).await;
    scene.fresh.assert_sound().await;
}

async fn unknown_limit_is_refused(fresh: Fresh) {
    let task = sync("", "", "").limit("nope", "acme").unwrap();
    let error = fresh.store.create(&[task]).await.unwrap_err().to_string();
    assert!(error.contains("limit \"nope\" does not exist"), "{error}");
    fresh.assert_sound().await;
}

async fn unique_task_waits_for_its_key(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let engine = scene.started(LimitOptions::max(1).key("key")).await;
    let held = scene.hold("acme").await;
    let unique = |label: &str, on_conflict: OnConflict| {
        let unique = Unique::by("one").on_conflict(on_conflict);
        sync("acme", label, "").unique(unique).unwrap()
    };
    let create = async |task| scene.fresh.store.create_each(&[task]).await.unwrap()[0];
    let first = create(unique("first", OnConflict::Keep)).await;
    let Creation::Created(id) = first else { panic!("{first:?}") };
    // It has the time to be moved into the lane of its key.
    let other = scene.create("globex", "other", "").await;
    scene.stopped(other).await;
    assert_eq!(create(unique("second", OnConflict::Keep)).await, Creation::Kept(id));
    assert_eq!(create(unique("third", OnConflict::Replace)).await, Creation::Replaced(id));
    scene.assert_waiting(id).await;
    scene.witness.gate.add_permits(1);
    scene.stopped(held).await;
    scene.stopped(id).await;
    assert_eq!(scene.witness.labels(), ["held", "other", "third"]);
    end(engine).await;
    scene.fresh.assert_sound().await;
}

/// A claim that is under way when a key becomes free has tried the higher priorities before,
/// so each attempt is held until no claim is.
async fn priority_decides_which_task_gets_key(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let engine = scene.started(LimitOptions::max(1)).await;
    scene.hold("").await;
    let mut ids = Vec::new();
    for (label, priority) in [("low", 0), ("high", 5), ("highest", 9)] {
        let held = sync("", label, "hold").priority(priority);
        ids.push(scene.fresh.create_task(held).await);
    }
    for started in 1..=4 {
        scene.witness.until("the next", |witness| witness.labels().len() == started).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        scene.witness.gate.add_permits(1);
    }
    for id in ids {
        scene.stopped(id).await;
    }
    assert_eq!(scene.witness.labels(), ["held", "highest", "high", "low"]);
    end(engine).await;
    scene.fresh.assert_sound().await;
}

async fn paused_queue_starts_no_limited_task(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let options = TaskOptions::default().limit(LimitOptions::max(1).key("key"));
    let engine = scene.engine("test", options).queues(["default", "mail"]);
    let engine = engine.start().await.unwrap();
    let in_mail = |label: &str, then: &str| sync("acme", label, then).queue("mail").unwrap();
    let held = scene.fresh.create_task(in_mail("held", "hold")).await;
    scene.witness.until("held", |witness| witness.running("acme") == 1).await;
    let next = scene.fresh.create_task(in_mail("next", "")).await;
    let pause = QueuePause::new("mail", None).unwrap();
    assert!(scene.fresh.store.pause_queue(&pause).await.unwrap());
    scene.witness.gate.add_permits(1);
    scene.stopped(held).await;
    // The key is free, and a task of another queue gets it.
    let default = scene.create("acme", "default", "").await;
    scene.stopped(default).await;
    scene.assert_waiting(next).await;
    assert!(scene.fresh.store.resume_queue("mail").await.unwrap());
    scene.stopped(next).await;
    end(engine).await;
    scene.fresh.assert_sound().await;
}

async fn schedule_names_limit(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let limit = Limit::named("api", LimitOptions::max(1)).unwrap();
    let regular = sync("", "regular", "").limit("api", "acme").unwrap();
    let schedule = Schedule::every("regular", Duration::from_secs(1)).new_task(regular);
    let engine = scene.engine("test", TaskOptions::default()).limit(limit).schedule(schedule);
    let engine = engine.start().await.unwrap();
    scene.witness.until("it fires", |witness| witness.labels().len() >= 2).await;
    let held = sync("", "held", "hold").limit("api", "acme").unwrap();
    scene.fresh.create_task(held).await;
    scene.witness.until("held", |witness| witness.labels().iter().any(|it| it == "held")).await;
    let before = scene.witness.labels().len();
    let (row, _) = scene.fresh.store.schedule("regular").await.unwrap();
    let last = row.unwrap().last_task;
    let begun = Instant::now();
    let waiting = loop {
        let (row, _) = scene.fresh.store.schedule("regular").await.unwrap();
        match row.unwrap().last_task {
            task if task != last => break task.unwrap(),
            _ => assert!(begun.elapsed() < TIMEOUT, "no slot fired"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    scene.assert_waiting(waiting).await;
    assert_eq!(scene.witness.labels().len(), before, "its key is taken");
    scene.witness.gate.add_permits(1);
    scene.stopped(waiting).await;
    end(engine).await;
    scene.fresh.assert_sound().await;
}

async fn task_waiting_for_retry_holds_no_key(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let engine = scene.started(LimitOptions::max(1)).await;
    let failed = scene.create("", "failed", "fail").await;
    scene.fresh.until_requeued(failed).await;
    let next = scene.create("", "next", "").await;
    scene.stopped(next).await;
    scene.assert_waiting(failed).await;
    end(engine).await;
    scene.fresh.assert_sound().await;
}

async fn sleeping_task_holds_no_key(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let engine = scene.started(LimitOptions::max(1)).await;
    let asleep = scene.create("", "asleep", "sleep").await;
    scene.fresh.until_requeued(asleep).await;
    let next = scene.create("", "next", "").await;
    scene.stopped(next).await;
    scene.assert_waiting(asleep).await;
    end(engine).await;
    scene.fresh.assert_sound().await;
}

async fn sleeping_task_in_order_holds_its_key(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let engine = scene.started(LimitOptions::in_order().key("key")).await;
    let asleep = scene.create("a", "asleep", "sleep").await;
    scene.fresh.until_requeued(asleep).await;
    let next = scene.create("a", "next", "").await;
    let other = scene.create("b", "other", "").await;
    scene.stopped(other).await;
    scene.assert_waiting(next).await;
    // Its end frees the key.
    scene.fresh.store.cancel(&[asleep]).await.unwrap();
    scene.fresh.store.wake_limited().await.unwrap();
    scene.stopped(next).await;
    end(engine).await;
    scene.fresh.assert_sound().await;
}

async fn dead_engine_frees_its_keys(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let engine = scene.started(LimitOptions::max(1)).await;
    end(engine).await;
    let left = scene.create("", "left", "").await;
    let options = TaskOptions::default().retry(RetryRule::every(HOUR, 3));
    let dead = NewInstance {
        name: "dead".into(),
        host: "elsewhere".into(),
        pid: 4711,
        process: None,
        version: "0".into(),
        workers: 1,
        lease: Duration::from_millis(600),
        queues: vec!["default".into()],
        pools: vec![],
        classes: BTreeMap::from([("sync".to_owned(), options)]),
    };
    let dead = scene.fresh.store.register(&dead).await.unwrap();
    let lanes = Lanes::new(vec!["default".into()], vec!["sync".into()]);
    let mut claimer = scene.fresh.store.claimer(dead, lanes);
    let mut number = 0;
    loop {
        number += 1;
        claimer.invalidate();
        let claim = claimer.claim(ClaimId(dead.0 << 40 | number), 1).await.unwrap();
        if let Some(task) = claim.tasks.first() {
            assert_eq!(task.id.task_id, left);
            break;
        }
        assert!(number < 1000, "{:?}", claim.rest);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let next = scene.create("", "next", "").await;
    let options = TaskOptions::default().limit(LimitOptions::max(1));
    let engine = scene.engine("live", options);
    let engine = engine.heartbeat(Duration::from_millis(50), Duration::from_secs(30));
    let engine = engine.start().await.unwrap();
    let recovered = scene.fresh.until_requeued(left).await;
    let lost = recovered.executions[0].error.as_ref().unwrap();
    assert_eq!(lost.exception, TaskError::INSTANCE_LOST);
    scene.stopped(next).await;
    assert_eq!(scene.witness.labels(), ["next"]);
    end(engine).await;
    scene.fresh.assert_sound().await;
}

/// The engine claims on its own thread; handlers run on a thread that is busy for too long.
async fn late_start_is_released(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let rate = Rate::new(5, Duration::from_secs(1));
    let engine = scene.engine("test", TaskOptions::default().rate(rate));
    let (busy, go_on) = std::sync::mpsc::channel::<()>();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (started, is_started) = tokio::sync::oneshot::channel();
    let handlers = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let engine = engine.start().await.unwrap();
            started.send(()).unwrap();
            go_on.recv().unwrap();
            stopped.await.unwrap();
            end(engine).await;
        });
    });
    is_started.await.unwrap();
    let id = scene.create("", "late", "").await;
    scene.fresh.until_status(id, TaskStatus::Running).await;
    tokio::time::sleep(rate.start_within() * 2).await;
    busy.send(()).unwrap();
    let done = scene.stopped(id).await;
    let released = done.executions[0].error.as_ref().unwrap();
    assert_eq!(released.exception, TaskError::NEVER_STARTED);
    assert!(released.message.contains("its rate limit"), "{released}");
    let last = done.executions.last().unwrap();
    assert!(last.error.is_none() && last.retry_number == 0, "{last:?}");
    assert_eq!(scene.witness.labels(), ["late"]);
    stop.send(()).unwrap();
    handlers.join().unwrap();
    scene.fresh.assert_sound().await;
}

async fn freed_key_wakes_other_engine(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let options = || TaskOptions::default().limit(LimitOptions::max(1).key("key"));
    let first = scene.engine("a", options()).queues(["a"]).start().await.unwrap();
    let other = scene.engine("b", options()).queues(["b"]).start().await.unwrap();
    let held = scene.fresh.create_task(sync("x", "held", "hold").queue("a").unwrap()).await;
    scene.witness.until("held", |witness| witness.running("x") == 1).await;
    let next = scene.fresh.create_task(sync("x", "next", "").queue("b").unwrap()).await;
    // The other engine has seen it, and is idle.
    let free = scene.fresh.create_task(sync("y", "free", "").queue("b").unwrap()).await;
    scene.stopped(free).await;
    scene.assert_waiting(next).await;
    let begun = Instant::now();
    scene.witness.gate.add_permits(1);
    scene.stopped(held).await;
    scene.stopped(next).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    end(first).await;
    end(other).await;
    scene.fresh.assert_sound().await;
}

async fn suspended_task_wakes_next_of_its_key(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let engine = scene.started(LimitOptions::max(1)).await;
    let waits = scene.create("", "waits", "wait").await;
    scene.witness.until("it runs", |witness| witness.running("") == 1).await;
    let next = scene.create("", "next", "").await;
    let begun = Instant::now();
    scene.witness.gate.add_permits(1);
    scene.stopped(next).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    scene.assert_waiting(waits).await;
    end(engine).await;
    scene.fresh.assert_sound().await;
}

async fn signalled_task_waits_for_its_key(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let options = TaskOptions::default().limit(LimitOptions::max(1));
    let engine = scene.engine("test", options);
    let engine = engine.handle_class("other", TaskOptions::default(), work).start().await.unwrap();
    let waits = scene.create("", "waits", "wait for signal").await;
    scene.fresh.until_requeued(waits).await;
    let held = scene.hold("").await;
    scene.tasks.signal(waits, "go", &1).await.unwrap();
    // The signal has resumed it before an engine starts this one.
    let other = scene.fresh.create_task(task("other", json!({"key": "other"}))).await;
    scene.stopped(other).await;
    scene.assert_waiting(waits).await;
    assert!(!scene.witness.labels().contains(&"signalled".to_owned()));
    scene.witness.gate.add_permits(1);
    scene.stopped(held).await;
    scene.stopped(waits).await;
    assert_eq!(scene.witness.peaks()[""], 1);
    end(engine).await;
    scene.fresh.assert_sound().await;
}

/// A suspended parent holds no key, so its child of the same class starts, and the parent
/// continues after it.
async fn called_child_gets_key_of_its_parent(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let engine = scene.started(LimitOptions::max(1).key("key")).await;
    let parent = scene.create("acme", "parent", "call").await;
    scene.stopped(parent).await;
    assert_eq!(scene.witness.labels(), ["parent", "child", "parent", "called"]);
    assert_eq!(scene.witness.peaks()["acme"], 1);
    end(engine).await;
    scene.fresh.assert_sound().await;
}

async fn retry_is_start_of_rate(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let per = Duration::from_millis(700);
    let engine = scene.engine("test", TaskOptions::default().rate(Rate::new(1, per)));
    let engine = engine.start().await.unwrap();
    let failing = scene.create("", "failing", "fail twice").await;
    scene.stopped(failing).await;
    end(engine).await;
    let starts: Vec<Instant> =
        scene.witness.seen.lock().unwrap().starts.iter().map(|(_, at)| *at).collect();
    assert_eq!(starts.len(), 3);
    // The handler looks at the clock a moment after its start.
    let least = per - Duration::from_millis(20);
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= least), "{starts:?}");
    scene.fresh.assert_sound().await;
}

/// Nothing can be closed, so only the task waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_limited_task_waits_if_keys_cannot_be_closed() {
    let scene = Scene::new(crate::store::postgres().await);
    let client = scene.fresh.client().await;
    let engine = scene.started(LimitOptions::max(5).key("key")).await;
    let id = scene.create("acme", "refused", "hold, then rate limited").await;
    scene.witness.until("it runs", |witness| witness.running("acme") == 1).await;
    let rename = "ALTER TABLE task_engine.closed_keys RENAME TO other";
    client.batch_execute(rename).await.unwrap();
    scene.witness.gate.add_permits(1);
    let snoozed = scene.fresh.until_requeued(id).await;
    assert_eq!(snoozed.executions[0].error.as_ref().unwrap().exception, TaskError::SNOOZED);
    let back = "ALTER TABLE task_engine.other RENAME TO closed_keys";
    client.batch_execute(back).await.unwrap();
    let done = scene.stopped(id).await;
    assert_eq!(done.executions[1].retry_number, 0);
    end(engine).await;
    scene.fresh.assert_sound().await;
}

async fn limit_that_is_no_longer_declared_is_removed(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let names = async || -> Vec<String> {
        let limits = scene.fresh.store.limits().await.unwrap();
        limits.into_iter().map(|row| row.limit.name).collect()
    };
    let options = TaskOptions::default().limit(LimitOptions::max(1));
    let queue = Limit::of_queue("mail", "mail", LimitOptions::max(1)).unwrap();
    end(scene.engine("a", options).limit(queue).start().await.unwrap()).await;
    assert_eq!(names().await, ["mail", "sync"]);
    end(scene.engine("b", TaskOptions::default()).start().await.unwrap()).await;
    assert_eq!(names().await, ["mail"]);
}

async fn last_declaration_applies(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let declare = async |max| end(scene.started(LimitOptions::max(max)).await).await;
    let applies = async || scene.fresh.store.limits().await.unwrap()[0].limit.options.max;
    declare(2).await;
    assert_eq!(applies().await, Some(2));
    declare(3).await;
    assert_eq!(applies().await, Some(3));
    let operator = Limit::of_class("sync", "sync", LimitOptions::max(7)).unwrap();
    scene.fresh.store.set_limit(&operator).await.unwrap();
    declare(4).await;
    assert_eq!(applies().await, Some(7), "what an operator has set stays");
    scene.fresh.store.clear_limit("sync").await.unwrap();
    assert_eq!(applies().await, Some(4));
}

async fn invalid_limits_refuse_the_start(fresh: Fresh) {
    let scene = Scene::new(fresh);
    let max = |max| TaskOptions::default().limit(LimitOptions::max(max));
    let named = || Limit::named("sync", LimitOptions::max(1)).unwrap();
    let of_class = |class: &str| Limit::of_class("x", class, LimitOptions::max(1)).unwrap();
    let secret = TaskOptions::default().secret(["card.number"]);
    let engines = [
        (scene.engine("a", max(0)), "max is a number from 1 to 10000, not 0"),
        (scene.engine("a", max(1)).limit(named()), "limit \"sync\" is declared twice"),
        (scene.engine("a", max(1)).limit(of_class("nope")), "class nope, which has no handler"),
        (
            scene.engine("a", secret.limit(LimitOptions::max(1).key("card"))),
            "the key \"card\" is a secret parameter of class sync",
        ),
    ];
    for (engine, expected) in engines {
        let error = engine.start().await.unwrap_err();
        assert!(matches!(error, EngineError::Setting(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(scene.fresh.store.limits().await.unwrap().is_empty());
}
