//! Unique tasks under concurrency.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use task_engine_core::retry::RetryRule;
use task_engine_core::task::{NewTask, TaskId, TaskListQuery, TaskStatus};
use task_engine_core::unique::{Creation, OnConflict, Scope, Unique};
use task_engine_store::claim::ClaimRest;

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, new_instance, with_classes};
use crate::unique::{HOUR, create_one, number, numbered, unique};
use crate::waiting::{poll_then_drop, run_concurrently, wait_for};

const PRODUCERS: usize = 16;

const KEYS: usize = 10;

const ROUNDS: usize = 25;

/// Engines without work, and observers, leave the processor to the others.
const IDLE_PAUSE: Duration = Duration::from_millis(2);

/// Creates tasks, and repeats a temporary error as an application does: after it, nothing was
/// created.
async fn create_patiently(fixture: &Fixture, tasks: &[NewTask]) -> Vec<Creation> {
    loop {
        match fixture.store.create_each(tasks).await {
            Err(error) if error.is_temporary() => tokio::time::sleep(IDLE_PAUSE).await,
            creations => return creations.expect("create"),
        }
    }
}

fn class_of(key: usize) -> String {
    format!("class-{key}")
}

/// Engines that do all work of the ten classes until it is over.
async fn start_engines(
    db: &dyn TestDatabase,
    over: &Arc<AtomicBool>,
    run: impl Fn(&TestAttempt) + Clone + Send + Sync + 'static,
    end: impl Fn(&TestAttempt) + Clone + Send + Sync + 'static,
) -> Vec<tokio::task::JoinHandle<()>> {
    let mut engines = Vec::new();
    for n in 0..3 {
        let fixture = Fixture::open(db).await;
        let classes: Vec<_> = (0..KEYS).map(class_of).collect();
        let classes: Vec<_> =
            classes.iter().map(|class| (class.as_str(), RetryRule::default())).collect();
        let mut engine =
            fixture.register(with_classes(new_instance(&format!("engine-{n}")), &classes)).await;
        let (over, run, end) = (over.clone(), run.clone(), end.clone());
        engines.push(tokio::spawn(async move {
            loop {
                let was_over = over.load(Ordering::SeqCst);
                engine.wake();
                let (holds, rest) = engine.claim_up_to(4).await;
                if was_over && matches!(rest, ClaimRest::Nothing { .. }) {
                    return;
                }
                let Some(claim) = holds.first().map(|hold| hold.claim_id) else {
                    tokio::time::sleep(IDLE_PAUSE).await;
                    continue;
                };
                holds.iter().for_each(&run);
                tokio::task::yield_now().await;
                // Its attempt is over for everybody when the record is there, so
                // a new one may start before this returns, but not before this.
                holds.iter().for_each(&end);
                let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
                assert_eq!(engine.record(&endings).await, []);
                engine.finish(claim).await;
            }
        }));
    }
    engines
}

/// Many creators use the same keys at the same time, each in another order: each key has
/// one task, and there is no deadlock.
pub async fn concurrent_creators_agree_on_key(db: &dyn TestDatabase) {
    const KEYS: usize = 40;
    for round in 0..5 {
        let class = format!("class-{round}");
        let mut creators = Vec::new();
        for n in 0..8 {
            let fixture = Fixture::open(db).await;
            let mut keys: Vec<usize> = (0..KEYS).collect();
            fastrand::shuffle(&mut keys);
            let answer = OnConflict::ALL[n % 4];
            let task = |key: &usize| {
                let unique = Unique::by(format!("key {key}")).on_conflict(answer);
                numbered(&class, n).unique(unique).expect("a key")
            };
            let tasks: Vec<_> = keys.iter().map(task).collect();
            creators.push(async move {
                let creations = fixture.store.create_each(&tasks).await.expect("create");
                keys.into_iter().zip(creations).collect::<Vec<_>>()
            });
        }
        let all = run_concurrently(creators).await.concat();
        assert_eq!(all.iter().filter(|(_, creation)| creation.is_new()).count(), KEYS);
        let named: BTreeSet<_> = all.iter().map(|(key, creation)| (*key, creation.id())).collect();
        assert_eq!(named.len(), KEYS, "round {round}: one task a key");
        let fixture = Fixture::open(db).await;
        assert_eq!(fixture.count_of(&class).await, KEYS);
    }
}

/// A dropped caller leaves key and task, or neither.
pub async fn dropped_create_leaves_key_consistent(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    for steps in 1..12 {
        let class = format!("class-{steps}");
        let tasks: Vec<_> =
            (0..50).map(|n| unique(numbered(&class, n), Unique::by(format!("{n}")))).collect();
        let done = poll_then_drop(fixture.store.create_each(&tasks), steps).await;
        let creations = fixture.store.create_each(&tasks).await.expect("create");
        let new = creations.iter().filter(|creation| creation.is_new()).count();
        assert!([0, tasks.len()].contains(&new), "{new} are new");
        assert!(done.is_none() || new == 0, "what was answered is there");
        assert_eq!(fixture.count_of(&class).await, tasks.len());
    }
}

/// Sixteen producers on ten keys while engines claim and run: no two tasks of a
/// key are active at a moment.
pub async fn one_active_task_per_key(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let over = Arc::new(AtomicBool::new(false));
    let running: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let runs = Arc::new(AtomicUsize::new(0));
    let (run, end) = {
        let (begun, ended, runs) = (running.clone(), running, runs.clone());
        let run = move |hold: &TestAttempt| {
            runs.fetch_add(1, Ordering::SeqCst);
            let first = begun.lock().unwrap().insert(hold.task.class.clone());
            assert!(first, "two of {} run at once", hold.task.class);
        };
        let end = move |hold: &TestAttempt| {
            ended.lock().unwrap().remove(&hold.task.class);
        };
        (run, end)
    };
    let engines = start_engines(db, &over, run, end).await;
    let watch = {
        let (fixture, over) = (fixture.clone(), over.clone());
        tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                for key in 0..KEYS {
                    let class = Some(class_of(key));
                    let filter = TaskListQuery { class, limit: 50, ..TaskListQuery::default() };
                    let page = fixture.page(&filter).await;
                    let active: Vec<_> = page
                        .iter()
                        .filter(|row| Scope::Active.covers(row.status, Duration::ZERO))
                        .collect();
                    assert!(active.len() <= 1, "{active:#?}");
                }
                tokio::time::sleep(IDLE_PAUSE).await;
            }
        })
    };
    let mut producers = Vec::new();
    for n in 0..PRODUCERS {
        let fixture = Fixture::open(db).await;
        producers.push(async move {
            let mut created = 0;
            for round in 0..ROUNDS {
                // One, or some at once.
                let count = 1 + (n + round) % 3;
                let task = |key: usize| unique(numbered(&class_of(key), round), Unique::by("k"));
                let tasks: Vec<_> = (0..count).map(|_| task(fastrand::usize(0..KEYS))).collect();
                let creations = create_patiently(&fixture, &tasks).await;
                created += creations.iter().filter(|creation| creation.is_new()).count();
            }
            created
        });
    }
    let created: usize = run_concurrently(producers).await.into_iter().sum();
    wait_for("all has run", async || (runs.load(Ordering::SeqCst) == created).then_some(())).await;
    over.store(true, Ordering::SeqCst);
    for task in engines.into_iter().chain([watch]) {
        task.await.expect("an engine or the watch");
    }
    assert!(created > KEYS, "{created} created: keys are free again after a run");
    assert_eq!(fixture.list(None).await.len(), created);
}

/// The same with replacement: each task runs once, with the last parameters it was given.
/// Only replaced parameters are lost.
pub async fn replacement_is_never_lost(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let over = Arc::new(AtomicBool::new(false));
    let seen: Arc<Mutex<BTreeMap<TaskId, usize>>> = Arc::default();
    let see = {
        let seen = seen.clone();
        move |hold: &TestAttempt| {
            let n = number(&hold.task.parameters);
            let before = seen.lock().unwrap().insert(hold.task_id(), n);
            assert_eq!(before, None, "task {} runs twice", hold.task_id());
        }
    };
    let engines = start_engines(db, &over, see, |_| {}).await;
    let mut producers = Vec::new();
    for producer in 0..PRODUCERS {
        let fixture = Fixture::open(db).await;
        producers.push(async move {
            let mut answers = Vec::new();
            for round in 0..ROUNDS {
                let n = producer * ROUNDS + round;
                let class = class_of(fastrand::usize(0..KEYS));
                let answer = [OnConflict::Replace, OnConflict::ReplaceParameters][round % 2];
                let key = Unique::by("k").scope(Scope::Waiting).on_conflict(answer);
                answers.push((n, create_one(&fixture, unique(numbered(&class, n), key)).await));
            }
            answers
        });
    }
    let answers = run_concurrently(producers).await.concat();
    let created = answers.iter().filter(|(_, creation)| creation.is_new()).count();
    wait_for("all has run", async || (seen.lock().unwrap().len() == created).then_some(())).await;
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
        let kept = number(&fixture.details(id).await.parameters);
        assert_eq!(n, kept, "task {id} ran with other parameters than those it has");
        assert!(given[&id].contains(&n), "task {id}");
    }
}

/// Concurrent producers, engines, and an operator who cancels, retries and prunes: no
/// deadlock, and no task is lost or left over.
pub async fn creators_and_operators_do_not_conflict(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let over = Arc::new(AtomicBool::new(false));
    let engines = start_engines(db, &over, |_| {}, |_| {}).await;
    let mut operators = Vec::new();
    for _ in 0..2 {
        let (operator, over) = (Fixture::open(db).await, over.clone());
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
        let fixture = Fixture::open(db).await;
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
                fixture.store.create_each(&tasks).await.expect("create");
            }
        });
    }
    run_concurrently(producers).await;
    wait_for("all is done", async || {
        let waiting = fixture.list(Some(TaskStatus::Waiting)).await.len();
        let running = fixture.list(Some(TaskStatus::Running)).await.len();
        (waiting + running == 0).then_some(())
    })
    .await;
    over.store(true, Ordering::SeqCst);
    for task in operators.into_iter().chain(engines) {
        task.await.expect("an operator or an engine");
    }
}
