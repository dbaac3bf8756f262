//! Unique tasks: one at a time, whoever creates at the same moment, and what is
//! replaced is what runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use task_engine_core::json::Json;
use task_engine_core::retry::RetryRule;
use task_engine_core::task::{NewTask, TaskDetails, TaskFilter, TaskId, TaskStatus};
use task_engine_core::unique::key_of;
use task_engine_core::unique::{Creation, OnConflict, Scope, Unique};
use task_engine_store::claim::Rest;
use task_engine_store::contract::CancelReport;
use task_engine_store::error::StoreError;

use crate::Database;
use crate::bench::{Bench, Hold, Player, WORK, knowing, new_instance, new_task};
use crate::waiting::{abandoned, all_at_once, eventually};

const HOUR: Duration = Duration::from_secs(3600);

fn numbered(class: &str, n: usize) -> NewTask {
    NewTask::new(class, Json::encode(&serde_json::json!({ "n": n })).unwrap()).unwrap()
}

fn unique(task: NewTask, unique: Unique) -> NewTask {
    task.unique(unique).expect("a key")
}

fn number(parameters: &Json) -> usize {
    let parameters: BTreeMap<String, usize> = parameters.decode().expect("numbered");
    parameters["n"]
}

async fn create_one(bench: &Bench, task: NewTask) -> Creation {
    let creations = bench.store.create_each(&[task]).await.expect("create");
    assert_eq!(creations.len(), 1);
    creations[0]
}

/// Where the task is that has the key.
#[derive(Debug, Clone, Copy)]
enum Holder {
    Waits,
    WaitsForARetry,
    Runs,
    Stopped,
    Failed,
    Cancelled,
}

impl Holder {
    const ALL: [Self; 6] = [
        Self::Waits,
        Self::WaitsForARetry,
        Self::Runs,
        Self::Stopped,
        Self::Failed,
        Self::Cancelled,
    ];

    fn status(self) -> TaskStatus {
        match self {
            Self::Waits | Self::WaitsForARetry => TaskStatus::Waiting,
            Self::Runs => TaskStatus::Running,
            Self::Stopped => TaskStatus::Stopped,
            Self::Failed => TaskStatus::Failed,
            Self::Cancelled => TaskStatus::Cancelled,
        }
    }

    /// A task that has this key and has come here.
    async fn make(self, bench: &Bench, engine: &mut Player, key: &str) -> TaskId {
        let task = unique(numbered(WORK, 0), Unique::by(key));
        let task = if matches!(self, Self::Waits) { task.after(HOUR) } else { task };
        let created = create_one(bench, task).await;
        let Creation::Created(id) = created else { panic!("{key}: {created:?}") };
        let ending = match self {
            Self::Waits => return id,
            Self::Cancelled => {
                let reports = bench.store.cancel(&[id]).await.expect("cancel");
                assert_eq!(reports, [CancelReport::Cancelled]);
                return id;
            }
            _ => engine.claim_one().await,
        };
        assert_eq!(ending.task_id(), id);
        let ending = match self {
            Self::WaitsForARetry => ending.fails_and_waits(HOUR),
            Self::Stopped => ending.succeeds(),
            Self::Failed => ending.fails(),
            _ => return id,
        };
        assert_eq!(engine.record(&[ending]).await, []);
        id
    }
}

/// Every scope, every answer, wherever the task is that has the key: the store
/// does what the model says.
pub async fn a_key_is_respected_by_scope_and_status(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    for scope in [Scope::Waiting, Scope::Active, Scope::Within(HOUR)] {
        for answer in OnConflict::ALL {
            for holder in Holder::ALL {
                let key = format!("{scope:?} {answer:?} {holder:?}");
                let old = holder.make(&bench, &mut engine, &key).await;
                let before = bench.details(old).await;
                let new = numbered(WORK, 1).after(HOUR * 2).priority(3).queue("slow").unwrap();
                let new = unique(new, Unique::by(&key).scope(scope).on_conflict(answer));
                let creation = create_one(&bench, new).await;
                let status = holder.status();
                if !scope.covers(status, Duration::ZERO) {
                    let Creation::Created(id) = creation else { panic!("{key}: {creation:?}") };
                    assert_ne!(id, old, "{key}");
                    assert_eq!(bench.details(old).await, before, "{key}");
                    assert_is(&bench.details(id).await, &key, 1, HOUR * 2);
                } else if answer.changes(status) {
                    assert_eq!(creation, Creation::Replaced(old), "{key}");
                    let after = bench.details(old).await;
                    let n = usize::from(answer.takes_parameters());
                    let wait = if answer.takes_time() { HOUR * 2 } else { HOUR };
                    assert_is(&after, &key, n, wait);
                    assert_eq!(after.row.attempts, before.row.attempts, "{key}");
                    assert_eq!(after.row.retry_number, 0, "{key}: it has all its retries");
                    assert_eq!(after.row.created_at, before.row.created_at, "{key}");
                    let all = answer == OnConflict::Replace;
                    let place = if all { ("slow", 3) } else { ("default", 0) };
                    assert_eq!((after.row.queue.as_str(), after.row.priority), place, "{key}");
                } else {
                    assert_eq!(creation, Creation::Kept(old), "{key}");
                    assert_eq!(bench.details(old).await, before, "{key}");
                }
            }
        }
    }
}

fn assert_is(details: &TaskDetails, key: &str, n: usize, wait: Duration) {
    assert_eq!(details.row.status, TaskStatus::Waiting, "{key}");
    assert_eq!(key_of(&details.context).as_deref(), Some(key));
    assert_eq!(number(&details.parameters), n, "{key}");
    let off = details.row.scheduled_at.duration_since(details.row.created_at).as_secs_f64()
        - wait.as_secs_f64();
    assert!((-1.0..20.0).contains(&off), "{key}: due {off} s off");
}

/// A replaced retry runs as the next attempt, with what was asked for last.
pub async fn a_replaced_task_runs_as_replaced(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    let key = Unique::by("k").scope(Scope::Waiting).on_conflict(OnConflict::Replace);
    let mut first = unique(numbered(WORK, 1), key.clone());
    first.context = Json::parse(r#"{"from":"first"}"#).unwrap();
    let id = create_one(&bench, first).await.id();
    let hold = engine.claim_one().await;
    assert_eq!(engine.record(&[hold.fails_and_waits(HOUR)]).await, []);
    let mut second = unique(numbered(WORK, 2).priority(5), key);
    second.context = Json::parse(r#"{"by":"second"}"#).unwrap();
    assert_eq!(create_one(&bench, second).await, Creation::Replaced(id));

    engine.wake();
    let hold = engine.claim_one().await;
    assert_eq!((hold.task_id(), hold.id().attempt, hold.task.retry_number), (id, 2, 0));
    assert_eq!((number(&hold.task.parameters), hold.task.priority), (2, 5));
    let context: serde_json::Value = hold.task.context.decode().unwrap();
    assert_eq!(context, serde_json::json!({"by": "second", "unique_key": "k"}));
    assert_eq!(engine.record(&[hold.succeeds()]).await, []);
    assert_eq!(bench.details(id).await.executions.len(), 2);
}

/// A period counts from the creation, and ends.
pub async fn a_period_ends(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let within = |period| unique(new_task(WORK), Unique::by("k").scope(Scope::Within(period)));
    let first = create_one(&bench, within(HOUR)).await.id();
    assert_eq!(create_one(&bench, within(HOUR)).await, Creation::Kept(first));
    let short = Duration::from_millis(20);
    let second = eventually("the period ends", async || {
        Some(create_one(&bench, within(short)).await).filter(|creation| creation.is_new())
    });
    let second = second.await.id();
    assert_ne!(second, first);
    assert_eq!(bench.status(first).await, TaskStatus::Waiting, "only its key has gone over");
    assert_eq!(create_one(&bench, within(HOUR)).await, Creation::Kept(second));
}

/// A key is a key of its class.
pub async fn keys_of_classes_are_apart(db: &dyn Database) {
    let bench = Bench::open(db).await;
    for class in ["a", "b"] {
        for key in ["k", "K", "k ", "'; DROP TABLE tasks; --", "ключ", "\u{1F511}"] {
            let task = unique(new_task(class), Unique::by(key));
            let created = create_one(&bench, task.clone()).await;
            assert!(created.is_new(), "{class} {key}: {created:?}");
            assert_eq!(create_one(&bench, task).await, Creation::Kept(created.id()));
            assert_eq!(key_of(&bench.details(created.id()).await.context).as_deref(), Some(key));
        }
    }
    assert!(create_one(&bench, new_task("a")).await.is_new(), "without a key");
}

/// In one call, the second task with a key sees the first; those without a key
/// go their way; and the answers are in order.
pub async fn the_same_key_twice_in_one_call(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    let old = create_one(&bench, unique(numbered(WORK, 0), Unique::by("old"))).await.id();
    let hold = engine.claim_one().await;
    assert_eq!(hold.task_id(), old);
    let replace = |key: &str| Unique::by(key).on_conflict(OnConflict::Replace);
    let waiting = |key: &str| Unique::by(key).scope(Scope::Waiting);
    let tasks = [
        unique(numbered(WORK, 1), Unique::by("z")),
        numbered(WORK, 2),
        unique(numbered(WORK, 3), Unique::by("old")),
        unique(numbered(WORK, 4), Unique::by("z")),
        unique(numbered(WORK, 5), waiting("old")),
        unique(numbered(WORK, 6), replace("a")),
        unique(numbered(WORK, 7).after(HOUR), replace("a")),
        unique(numbered(WORK, 8), Unique::by("a").on_conflict(OnConflict::ReplaceParameters)),
        unique(numbered(WORK, 9), Unique::by("old")),
        numbered(WORK, 10),
    ];
    let creations = bench.store.create_each(&tasks).await.expect("create");
    let ids: Vec<_> = creations.iter().map(|creation| creation.id()).collect();
    use Creation::{Created, Kept, Replaced};
    let expected = [
        Created(ids[0]),
        Created(ids[1]),
        Kept(old),
        Kept(ids[0]),
        Created(ids[4]),
        Created(ids[5]),
        Replaced(ids[5]),
        Replaced(ids[5]),
        Kept(ids[4]),
        Created(ids[9]),
    ];
    assert_eq!(creations, expected);
    let new: Vec<_> = creations.iter().filter(|one| one.is_new()).map(|one| one.id()).collect();
    assert!(new.is_sorted_by(|a, b| a < b), "ids grow in the order of the call: {new:?}");
    assert_eq!(bench.list(None).await.len(), 6);
    let a = bench.details(ids[5]).await;
    assert_is(&a, "a", 8, HOUR);
    assert_eq!(key_of(&bench.details(ids[1]).await.context), None);
    assert_eq!(engine.record(&[hold.succeeds()]).await, []);
}

/// A task that runs does not stand in the way of one that waits; what comes of
/// its own retries is no creation.
pub async fn a_key_goes_over_to_the_last_created(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    let task = |n| unique(numbered(WORK, n), Unique::by("k").scope(Scope::Waiting));
    let first = create_one(&bench, task(1)).await.id();
    let hold = engine.claim_one().await;
    let second = create_one(&bench, task(2)).await;
    assert!(second.is_new());
    assert_eq!(engine.record(&[hold.fails_and_waits(HOUR)]).await, []);
    assert_eq!(bench.list(Some(TaskStatus::Waiting)).await.len(), 2, "a retry asks nobody");
    assert_eq!(create_one(&bench, task(3)).await, Creation::Kept(second.id()));
    let reports = bench.store.cancel(&[second.id()]).await.expect("cancel");
    assert_eq!(reports, [CancelReport::Cancelled]);
    assert!(create_one(&bench, task(4)).await.is_new(), "the key is not that of {first} any more");
}

/// Retention removes a key with its task, and leaves it if it is another's.
pub async fn retention_frees_keys(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let within = |n| unique(numbered(WORK, n), Unique::by("k").scope(Scope::Within(HOUR)));
    let prune = async || {
        let pruned = bench.store.prune(TaskStatus::Cancelled, Duration::ZERO, 100);
        pruned.await.expect("prune")
    };
    let first = create_one(&bench, within(1)).await.id();
    bench.store.cancel(&[first]).await.expect("cancel");
    assert_eq!(create_one(&bench, within(2)).await, Creation::Kept(first));
    assert_eq!(prune().await, 1);
    let second = create_one(&bench, within(3)).await;
    assert!(second.is_new(), "{second:?}");
    bench.store.cancel(&[second.id()]).await.expect("cancel");
    let third = create_one(&bench, unique(numbered(WORK, 4), Unique::by("k"))).await;
    assert!(third.is_new(), "{third:?}");
    assert_eq!(prune().await, 1, "the second");
    assert_eq!(create_one(&bench, within(5)).await, Creation::Kept(third.id()));
}

/// What is not a key, or not a period, is refused with the whole call, by the
/// store too.
pub async fn keys_that_cannot_be_are_refused(db: &dyn Database) {
    let bench = Bench::open(db).await;
    for bad in [String::new(), "x".repeat(501)] {
        let mut task = new_task(WORK);
        task.unique = Some(Unique::by(bad));
        let refused = bench.store.create_each(&[new_task(WORK), task]).await;
        assert!(matches!(refused, Err(StoreError::InvalidData(_))), "{refused:?}");
    }
    assert_eq!(bench.list(None).await, []);
    let longest = unique(new_task(WORK), Unique::by("é".repeat(250)));
    assert!(create_one(&bench, longest).await.is_new());
}

/// Many call for the same keys at once, each in another order: each key has one
/// task, and nobody waits for ever.
pub async fn creators_in_any_order_agree(db: &dyn Database) {
    const KEYS: usize = 40;
    for round in 0..5 {
        let class = format!("class-{round}");
        let mut creators = Vec::new();
        for n in 0..8 {
            let bench = Bench::open(db).await;
            let mut keys: Vec<usize> = (0..KEYS).collect();
            fastrand::shuffle(&mut keys);
            let answer = OnConflict::ALL[n % 4];
            let task = |key: &usize| {
                let unique = Unique::by(format!("key {key}")).on_conflict(answer);
                numbered(&class, n).unique(unique).expect("a key")
            };
            let tasks: Vec<_> = keys.iter().map(task).collect();
            creators.push(async move {
                let creations = bench.store.create_each(&tasks).await.expect("create");
                keys.into_iter().zip(creations).collect::<Vec<_>>()
            });
        }
        let all = all_at_once(creators).await.concat();
        assert_eq!(all.iter().filter(|(_, creation)| creation.is_new()).count(), KEYS);
        let named: BTreeSet<_> = all.iter().map(|(key, creation)| (*key, creation.id())).collect();
        assert_eq!(named.len(), KEYS, "round {round}: one task a key");
        let bench = Bench::open(db).await;
        assert_eq!(bench.count_of(&class).await, KEYS);
    }
}

/// A caller that goes away leaves key and task, or neither.
pub async fn a_key_is_whole_when_its_caller_goes_away(db: &dyn Database) {
    let bench = Bench::open(db).await;
    for steps in 1..12 {
        let class = format!("class-{steps}");
        let tasks: Vec<_> =
            (0..50).map(|n| unique(numbered(&class, n), Unique::by(format!("{n}")))).collect();
        let done = abandoned(bench.store.create_each(&tasks), steps).await;
        let creations = bench.store.create_each(&tasks).await.expect("create");
        let new = creations.iter().filter(|creation| creation.is_new()).count();
        assert!([0, tasks.len()].contains(&new), "{new} are new");
        assert!(done.is_none() || new == 0, "what was answered is there");
        assert_eq!(bench.count_of(&class).await, tasks.len());
    }
}

const PRODUCERS: usize = 16;
const KEYS: usize = 10;
const ROUNDS: usize = 25;

fn class_of(key: usize) -> String {
    format!("class-{key}")
}

/// Engines that do all work of the ten classes until it is over.
async fn start_engines(
    db: &dyn Database,
    over: &Arc<AtomicBool>,
    run: impl Fn(&Hold) + Clone + Send + Sync + 'static,
    end: impl Fn(&Hold) + Clone + Send + Sync + 'static,
) -> Vec<tokio::task::JoinHandle<()>> {
    let mut engines = Vec::new();
    for n in 0..3 {
        let bench = Bench::open(db).await;
        let classes: Vec<_> = (0..KEYS).map(class_of).collect();
        let classes: Vec<_> =
            classes.iter().map(|class| (class.as_str(), RetryRule::default())).collect();
        let mut engine =
            bench.register(knowing(new_instance(&format!("engine-{n}")), &classes)).await;
        let (over, run, end) = (over.clone(), run.clone(), end.clone());
        engines.push(tokio::spawn(async move {
            loop {
                let was_over = over.load(Ordering::SeqCst);
                engine.wake();
                let (holds, rest) = engine.look(4).await;
                if was_over && matches!(rest, Rest::Nothing { .. }) {
                    return;
                }
                let Some(claim) = holds.first().map(|hold| hold.claim_id) else {
                    tokio::task::yield_now().await;
                    continue;
                };
                holds.iter().for_each(&run);
                tokio::task::yield_now().await;
                // Its attempt is over for everybody when the record is there, so
                // a new one may start before this returns, but not before this.
                holds.iter().for_each(&end);
                let endings: Vec<_> = holds.iter().map(Hold::succeeds).collect();
                assert_eq!(engine.record(&endings).await, []);
                engine.finish(claim).await;
            }
        }));
    }
    engines
}

/// Sixteen producers on ten keys while engines claim and run: no two tasks of a
/// key are active at a moment.
pub async fn no_two_of_a_key_are_active(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let over = Arc::new(AtomicBool::new(false));
    let running: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let runs = Arc::new(AtomicUsize::new(0));
    let (run, end) = {
        let (begun, ended, runs) = (running.clone(), running, runs.clone());
        let run = move |hold: &Hold| {
            runs.fetch_add(1, Ordering::SeqCst);
            let first = begun.lock().unwrap().insert(hold.task.class.clone());
            assert!(first, "two of {} run at once", hold.task.class);
        };
        let end = move |hold: &Hold| {
            ended.lock().unwrap().remove(&hold.task.class);
        };
        (run, end)
    };
    let engines = start_engines(db, &over, run, end).await;
    let watch = {
        let (bench, over) = (bench.clone(), over.clone());
        tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                for key in 0..KEYS {
                    let class = Some(class_of(key));
                    let filter = TaskFilter { class, limit: 50, ..TaskFilter::default() };
                    let page = bench.page(&filter).await;
                    let active: Vec<_> = page
                        .iter()
                        .filter(|row| Scope::Active.covers(row.status, Duration::ZERO))
                        .collect();
                    assert!(active.len() <= 1, "{active:#?}");
                }
            }
        })
    };
    let mut producers = Vec::new();
    for n in 0..PRODUCERS {
        let bench = Bench::open(db).await;
        producers.push(async move {
            let mut created = 0;
            for round in 0..ROUNDS {
                // One, or some at once.
                let count = 1 + (n + round) % 3;
                let task = |key: usize| unique(numbered(&class_of(key), round), Unique::by("k"));
                let tasks: Vec<_> = (0..count).map(|_| task(fastrand::usize(0..KEYS))).collect();
                let creations = bench.store.create_each(&tasks).await.expect("create");
                created += creations.iter().filter(|creation| creation.is_new()).count();
            }
            created
        });
    }
    let created: usize = all_at_once(producers).await.into_iter().sum();
    eventually("all has run", async || (runs.load(Ordering::SeqCst) == created).then_some(()))
        .await;
    over.store(true, Ordering::SeqCst);
    for task in engines.into_iter().chain([watch]) {
        task.await.expect("an engine or the watch");
    }
    assert!(created > KEYS, "{created} created: keys are free again after a run");
    assert_eq!(bench.list(None).await.len(), created);
}

/// The same with replacement: each task runs once, with the parameters that it
/// was given last, and nobody's parameters are lost but those that were replaced.
pub async fn a_replacement_is_never_lost(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let over = Arc::new(AtomicBool::new(false));
    let seen: Arc<Mutex<BTreeMap<TaskId, usize>>> = Arc::default();
    let see = {
        let seen = seen.clone();
        move |hold: &Hold| {
            let n = number(&hold.task.parameters);
            let before = seen.lock().unwrap().insert(hold.task_id(), n);
            assert_eq!(before, None, "task {} runs twice", hold.task_id());
        }
    };
    let engines = start_engines(db, &over, see, |_| {}).await;
    let mut producers = Vec::new();
    for producer in 0..PRODUCERS {
        let bench = Bench::open(db).await;
        producers.push(async move {
            let mut answers = Vec::new();
            for round in 0..ROUNDS {
                let n = producer * ROUNDS + round;
                let class = class_of(fastrand::usize(0..KEYS));
                let answer = [OnConflict::Replace, OnConflict::ReplaceParameters][round % 2];
                let key = Unique::by("k").scope(Scope::Waiting).on_conflict(answer);
                answers.push((n, create_one(&bench, unique(numbered(&class, n), key)).await));
            }
            answers
        });
    }
    let answers = all_at_once(producers).await.concat();
    let created = answers.iter().filter(|(_, creation)| creation.is_new()).count();
    eventually("all has run", async || (seen.lock().unwrap().len() == created).then_some(())).await;
    over.store(true, Ordering::SeqCst);
    for engine in engines {
        engine.await.expect("an engine");
    }
    let mut given: BTreeMap<TaskId, BTreeSet<usize>> = BTreeMap::new();
    for (n, creation) in answers {
        assert!(!matches!(creation, Creation::Kept(_)), "{n}: {creation:?}");
        given.entry(creation.id()).or_default().insert(n);
    }
    let seen = seen.lock().unwrap().clone();
    for (id, n) in seen {
        let kept = number(&bench.details(id).await.parameters);
        assert_eq!(n, kept, "task {id} ran with other parameters than those it has");
        assert!(given[&id].contains(&n), "task {id}");
    }
}

/// Producers, engines and an operator who cancels, retries and prunes what they
/// do: nobody deadlocks, nothing is lost or left over.
pub async fn creators_and_operators_do_not_disturb_each_other(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let over = Arc::new(AtomicBool::new(false));
    let engines = start_engines(db, &over, |_| {}, |_| {}).await;
    let mut operators = Vec::new();
    for _ in 0..2 {
        let (operator, over) = (Bench::open(db).await, over.clone());
        operators.push(tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let rows = operator.list(None).await;
                let mut ids: Vec<_> = rows.iter().take(30).map(|row| row.id).collect();
                fastrand::shuffle(&mut ids);
                let half = ids.len() / 2;
                operator.store.cancel(&ids[..half]).await.expect("cancel");
                operator.store.retry(&ids[half..]).await.expect("retry");
                for status in [TaskStatus::Cancelled, TaskStatus::Stopped] {
                    operator.store.prune(status, Duration::ZERO, 20).await.expect("prune");
                }
            }
        }));
    }
    let mut producers = Vec::new();
    for _ in 0..8 {
        let bench = Bench::open(db).await;
        producers.push(async move {
            for round in 0..ROUNDS {
                let scope = [Scope::Waiting, Scope::Active, Scope::Within(HOUR)][round % 3];
                let answer = OnConflict::ALL[fastrand::usize(0..4)];
                let task = |key: usize| {
                    let key_of = Unique::by("k").scope(scope).on_conflict(answer);
                    let wait = Duration::from_millis(fastrand::u64(0..3));
                    unique(numbered(&class_of(key), round).after(wait), key_of)
                };
                let tasks: Vec<_> = (0..4).map(|_| task(fastrand::usize(0..KEYS))).collect();
                bench.store.create_each(&tasks).await.expect("create");
            }
        });
    }
    all_at_once(producers).await;
    eventually("all is done", async || {
        let waiting = bench.list(Some(TaskStatus::Waiting)).await.len();
        let running = bench.list(Some(TaskStatus::Running)).await.len();
        (waiting + running == 0).then_some(())
    })
    .await;
    over.store(true, Ordering::SeqCst);
    for task in operators.into_iter().chain(engines) {
        task.await.expect("an operator or an engine");
    }
}
