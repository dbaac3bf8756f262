//! Limits on PostgreSQL: many claimers at once, while limits change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use task_engine_conformance::fixture::new_instance;
use task_engine_core::attempt::{AttemptRecord, NextState, RunSpan};
use task_engine_core::claim::{ClaimId, ClaimIds};
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::limit::{Limit, LimitOptions, Rate};
use task_engine_core::queue::Lanes;
use task_engine_core::task::{NewTask, TaskStatus};
use task_engine_postgres::PgStore;
use task_engine_store::claim::{ClaimRest, ClaimedTask};
use task_engine_test_harness::{TestServer, connect};

async fn store() -> Arc<PgStore> {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    Arc::new(store)
}

fn task(customer: &str) -> NewTask {
    let parameters = Json::parse(format!(r#"{{"customer": "{customer}"}}"#)).unwrap();
    NewTask::new("sync", parameters).unwrap()
}

async fn register(store: &PgStore, name: &str) -> InstanceId {
    store.register(&new_instance(name)).await.unwrap()
}

fn lanes() -> Lanes {
    Lanes::new(vec!["default".to_owned()], vec!["sync".to_owned()])
}

fn success(task: &ClaimedTask, claim_id: ClaimId, instance_id: InstanceId) -> AttemptRecord {
    AttemptRecord {
        id: task.id,
        retry_number: task.retry_number,
        claim_id,
        instance_id,
        ran: Some(RunSpan { worker: Some(0), lasted: Duration::ZERO, ended: Instant::now() }),
        result: Some(Json::parse("null").unwrap()),
        error: None,
        next: NextState::End(TaskStatus::Stopped),
        cancel_response: None,
    }
}

/// Attempts between the reply of their claim and the call that records their end.
#[derive(Default)]
struct Running(Mutex<HashMap<String, (usize, usize)>>);

impl Running {
    fn add(&self, key: &str) {
        let mut keys = self.0.lock().unwrap();
        let (now, most) = keys.entry(key.to_owned()).or_default();
        *now += 1;
        *most = (*most).max(*now);
    }

    fn remove(&self, key: &str) {
        self.0.lock().unwrap().get_mut(key).unwrap().0 -= 1;
    }

    fn most(&self) -> usize {
        self.0.lock().unwrap().values().map(|(_, most)| *most).max().unwrap_or(0)
    }
}

fn customer(task: &ClaimedTask) -> String {
    let parameters: HashMap<String, String> = task.parameters.decode().unwrap();
    parameters["customer"].clone()
}

/// Claims and records until nothing is left. Returns how many attempts it has ended.
async fn work(store: Arc<PgStore>, name: String, running: Arc<Running>, batch: usize) -> usize {
    let instance = register(&store, &name).await;
    let ids = ClaimIds::new(instance);
    let mut claimer = store.claimer(instance, lanes());
    let mut ended = 0;
    loop {
        let id = ids.take();
        let claim = claimer.claim(id, batch).await.unwrap();
        if claim.tasks.is_empty() {
            if let ClaimRest::Nothing { next_in: None } = claim.rest
                && store.queues().await.unwrap().iter().all(|queue| queue.due.counted == 0)
            {
                return ended;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            claimer.invalidate();
            continue;
        }
        for task in &claim.tasks {
            running.add(&customer(task));
        }
        tokio::task::yield_now().await;
        for task in &claim.tasks {
            running.remove(&customer(task));
        }
        let endings: Vec<_> = claim.tasks.iter().map(|task| success(task, id, instance)).collect();
        store.record(&endings, &[]).await.unwrap();
        ended += endings.len();
    }
}

async fn drain(store: &Arc<PgStore>, claimers: usize, batch: usize) -> (usize, Arc<Running>) {
    let running = Arc::new(Running::default());
    let workers: Vec<_> = (0..claimers)
        .map(|n| tokio::spawn(work(store.clone(), format!("e{n}"), running.clone(), batch)))
        .collect();
    let mut ended = 0;
    for worker in workers {
        ended += worker.await.unwrap();
    }
    (ended, running)
}

#[tokio::test(flavor = "multi_thread")]
async fn claimers_never_exceed_max() {
    let store = store().await;
    let limit = Limit::of_class("sync", "sync", LimitOptions::max(3).key("customer")).unwrap();
    store.set_limit(&limit).await.unwrap();
    let tasks: Vec<NewTask> = (0..600).map(|n| task(&format!("c{}", n % 7))).collect();
    store.create(&tasks).await.unwrap();
    let (ended, running) = drain(&store, 6, 10).await;
    assert_eq!(ended, 600);
    assert!((2..=3).contains(&running.most()), "{}", running.most());
    assert_eq!(store.verify().await.unwrap(), []);
}

/// The limit begins, changes and ends while claimers work. Attempts that were claimed before
/// count, so the highest maximum is never exceeded after it was set.
#[tokio::test(flavor = "multi_thread")]
async fn limits_change_under_load() {
    let store = store().await;
    let options = |max| LimitOptions::max(max).key("customer");
    let limit = move |max| Limit::of_class("sync", "sync", options(max)).unwrap();
    store.set_limit(&limit(4)).await.unwrap();
    let tasks: Vec<NewTask> = (0..600).map(|n| task(&format!("c{}", n % 3))).collect();
    store.create(&tasks).await.unwrap();
    let changes = tokio::spawn({
        let store = store.clone();
        async move {
            for round in 0..10 {
                store.set_limit(&limit(1 + round % 4)).await.unwrap();
                let other = LimitOptions::rate(Rate::new(1_000_000, Duration::from_secs(1)));
                let other = Limit::of_class("other", "sync", other).unwrap();
                store.set_limit(&other).await.unwrap();
                store.clear_limit("other").await.unwrap();
            }
        }
    });
    let (ended, running) = drain(&store, 4, 20).await;
    changes.await.unwrap();
    assert_eq!(ended, 600);
    assert!(running.most() <= 4, "{}", running.most());
    assert_eq!(store.verify().await.unwrap(), []);
}

/// A claimer that does not know of a limit yet starts nothing beside it.
#[tokio::test]
async fn new_limit_counts_running_attempts() {
    let store = store().await;
    store.create(&[task("a"), task("a"), task("a")]).await.unwrap();
    let instance = register(&store, "e").await;
    let ids = ClaimIds::new(instance);
    let mut claimer = store.claimer(instance, lanes());
    let first = ids.take();
    let claimed = claimer.claim(first, 1).await.unwrap().tasks;
    assert_eq!(claimed.len(), 1);
    let limit = Limit::of_class("sync", "sync", LimitOptions::max(1).key("customer")).unwrap();
    store.set_limit(&limit).await.unwrap();
    for _ in 0..5 {
        let claim = claimer.claim(ids.take(), 5).await.unwrap();
        assert!(claim.tasks.is_empty(), "{claim:?}");
    }
    store.record(&[success(&claimed[0], first, instance)], &[]).await.unwrap();
    claimer.invalidate();
    let claim = claimer.claim(ids.take(), 5).await.unwrap();
    assert_eq!(claim.tasks.len(), 1, "{claim:?}");
    assert!(claim.tasks[0].limited.is_some());
}

/// Rows of taken tasks stay in the index while a snapshot is held. Claims continue behind them,
/// and still find new keys, and tasks that come before the position of their key.
#[tokio::test]
async fn held_snapshot_hides_no_task() {
    const KEYS: usize = 60;
    const TASKS_OF_KEY: usize = 800;
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let limit = Limit::of_class("sync", "sync", LimitOptions::max(50).key("customer")).unwrap();
    store.set_limit(&limit).await.unwrap();
    let tasks: Vec<_> = (0..KEYS * TASKS_OF_KEY).map(|n| task(&format!("c{}", n % KEYS))).collect();
    store.create(&tasks).await.unwrap();
    let mut reader = connect(&url).await;
    let snapshot =
        reader.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let snapshot = snapshot.start().await.unwrap();
    snapshot.query_one("SELECT count(*) FROM task_engine.waiting_tasks", &[]).await.unwrap();

    let instance = register(&store, "a").await;
    let mut claimer = store.claimer(instance, lanes());
    let ids = ClaimIds::new(instance);
    let (mut claimed, mut late) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while claimed < tasks.len() + late {
        assert!(
            Instant::now() < deadline,
            "only {claimed} of {} tasks started",
            tasks.len() + late
        );
        let claim_id = ids.take();
        let claim = claimer.claim(claim_id, 1000).await.unwrap();
        claimed += claim.tasks.len();
        let ends: Vec<_> =
            claim.tasks.iter().map(|task| success(task, claim_id, instance)).collect();
        store.record(&ends, &[claim_id]).await.unwrap();
        claimer.keys_freed();
        if late == 0 && claimed > tasks.len() / 2 {
            // A new key, and a known one with a time before all others.
            let early = jiff::Timestamp::now() - Duration::from_secs(3600);
            store.create(&[task("new"), task("c7").at(early)]).await.unwrap();
            late = 2;
        }
        if claim.tasks.is_empty() {
            claimer.invalidate();
            tokio::task::yield_now().await;
        }
    }
    drop(snapshot);
}

/// After the clock was set back, the starts before that are in its future. They count as if they
/// came now: the rate holds, and no key waits for the time of the old clock.
#[tokio::test]
async fn rate_continues_after_clock_was_set_back() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let by_hand = connect(&url).await;
    let per = Duration::from_millis(500);
    let rate = LimitOptions::rate(Rate::new(2, per));
    store.set_limit(&Limit::of_class("sync", "sync", rate).unwrap()).await.unwrap();
    let created = store.create(&vec![task("a"); 6]).await.unwrap();
    let instance = register(&store, "e").await;
    let ids = ClaimIds::new(instance);
    let mut claimer = store.claimer(instance, lanes());
    assert_eq!(claimer.claim(ids.take(), 5).await.unwrap().tasks.len(), 2);

    let set_back =
        "UPDATE task_engine.limit_starts SET started_until = started_until + interval '300 s'";
    assert_eq!(by_hand.execute(set_back, &[]).await.unwrap(), 1);
    let next_start_in = async || {
        let limits = store.task_limits(created[5]).await.unwrap();
        limits[0].usage.next_start_in.expect("a time")
    };
    // Until a claim looks, readers show what is stored.
    assert!(next_start_in().await > Duration::from_secs(299), "{:?}", next_start_in().await);
    let begun = Instant::now();
    let mut claimed = Vec::new();
    while claimed.len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the key stays closed");
        claimer.invalidate();
        let claim = claimer.claim(ids.take(), 5).await.unwrap();
        claimed.extend(claim.tasks);
        if let ClaimRest::Nothing { next_in: Some(next_in) } = claim.rest {
            assert!(next_in <= per + Rate::START_WITHIN_MAX, "{next_in:?}");
            assert!(next_start_in().await <= per + Rate::START_WITHIN_MAX);
            tokio::time::sleep(next_in).await;
        }
    }
    assert_eq!(claimed.len(), 2, "the rate holds");
    assert!(begun.elapsed() >= per, "{:?}", begun.elapsed());
}
