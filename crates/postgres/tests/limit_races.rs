//! Limits on PostgreSQL beside sessions that hold locks, and changes that come at a bad
//! moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use task_engine_conformance::fixture::new_instance;
use task_engine_core::attempt::{AttemptRecord, NextState, RunSpan};
use task_engine_core::claim::{ClaimId, ClaimIds};
use task_engine_core::instance::InstanceId;
use task_engine_core::json::Json;
use task_engine_core::limit::{DeclaredLimits, Limit, LimitOptions};
use task_engine_core::queue::{Lanes, QueuePause};
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_postgres::PgStore;
use task_engine_store::claim::{ClaimRest, ClaimedTask, Claimer};
use task_engine_test_harness::{TIMEOUT, TestServer, connect};

/// A store, and the URL of its database.
async fn store() -> (Arc<PgStore>, String) {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    (Arc::new(store), url)
}

fn task(customer: &str) -> NewTask {
    let parameters = Json::parse(format!(r#"{{"customer": "{customer}"}}"#)).unwrap();
    NewTask::new("sync", parameters).unwrap()
}

fn per_customer(options: LimitOptions) -> Limit {
    Limit::of_class("sync", "sync", options.key("customer")).unwrap()
}

/// An engine without a process.
struct Engine {
    store: Arc<PgStore>,
    instance: InstanceId,
    ids: ClaimIds,
    claimer: Box<dyn Claimer>,
}

impl Engine {
    async fn start(store: &Arc<PgStore>, name: &str) -> Self {
        let instance = store.register(&new_instance(name)).await.unwrap();
        let lanes = Lanes::new(vec!["default".to_owned()], vec!["sync".to_owned()]);
        let claimer = store.claimer(instance, lanes);
        Self { store: store.clone(), instance, ids: ClaimIds::new(instance), claimer }
    }

    /// Tasks that may start now.
    async fn claim(&mut self, limit: usize) -> Vec<(ClaimId, ClaimedTask)> {
        self.claimer.invalidate();
        let mut claimed = Vec::new();
        // A claim may have to read the limits again, or to move tasks.
        for _ in 0..5 {
            let id = self.ids.take();
            let claim = self.claimer.claim(id, limit - claimed.len()).await.unwrap();
            claimed.extend(claim.tasks.into_iter().map(|task| (id, task)));
            if claimed.len() == limit {
                break;
            }
        }
        claimed
    }

    async fn end(&mut self, claimed: &[(ClaimId, ClaimedTask)]) {
        let success = |(claim_id, task): &(ClaimId, ClaimedTask)| AttemptRecord {
            id: task.id,
            retry_number: task.retry_number,
            claim_id: *claim_id,
            instance_id: self.instance,
            ran: Some(RunSpan { worker: Some(0), lasted: Duration::ZERO, ended: Instant::now() }),
            result: Some(Json::null()),
            error: None,
            next: NextState::End(TaskStatus::Stopped),
            cancel_response: None,
        };
        let endings: Vec<_> = claimed.iter().map(success).collect();
        self.store.record(&endings, &[]).await.unwrap();
    }
}

fn ids(claimed: &[(ClaimId, ClaimedTask)]) -> Vec<TaskId> {
    claimed.iter().map(|(_, task)| task.id.task_id).collect()
}

/// A claimer that has read the limits before the first one was set finds tasks that another
/// engine has moved to the lanes of their keys.
#[tokio::test]
async fn idle_claimer_learns_of_first_limit() {
    let (store, _) = store().await;
    let mut idle = Engine::start(&store, "idle").await;
    assert_eq!(ids(&idle.claim(5).await), []);
    store.set_limit(&per_customer(LimitOptions::max(1))).await.unwrap();
    let created = store.create(&[task("a"), task("a")]).await.unwrap();
    let mut other = Engine::start(&store, "other").await;
    let claimed = other.claim(5).await;
    assert_eq!(ids(&claimed), created[..1]);
    other.end(&claimed).await;
    store.unregister(other.instance).await.unwrap();
    assert_eq!(ids(&idle.claim(5).await), created[1..]);
}

/// A named limit that is cleared and set again applies to tasks that were moved in between.
#[tokio::test]
async fn named_limit_applies_after_it_was_cleared() {
    let (store, _) = store().await;
    let api = Limit::named("api", LimitOptions::max(1)).unwrap();
    store.set_limit(&api).await.unwrap();
    let tasks: Vec<NewTask> = (0..4).map(|_| task("a").limit("api", "acme").unwrap()).collect();
    let created = store.create(&tasks).await.unwrap();
    let mut engine = Engine::start(&store, "e").await;
    assert_eq!(ids(&engine.claim(1).await), created[..1]);
    store.clear_limit("api").await.unwrap();
    assert_eq!(ids(&engine.claim(1).await), created[1..2]);
    store.set_limit(&api).await.unwrap();
    assert_eq!(ids(&engine.claim(4).await), []);
    assert_eq!(store.verify().await.unwrap(), []);
}

/// A transaction with one snapshot cannot count the attempts that were claimed since.
#[tokio::test]
async fn old_snapshot_cannot_set_limit() {
    let (store, url) = store().await;
    let application = connect(&url).await;
    application
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current_snapshot()")
        .await
        .unwrap();
    store.create(&[task("a"), task("a")]).await.unwrap();
    let mut engine = Engine::start(&store, "e").await;
    assert_eq!(engine.claim(1).await.len(), 1);
    let set = r#"SELECT task_engine.set_limit('sync', '{"max": 1}', 'sync')"#;
    let refused = application.batch_execute(set).await.unwrap_err();
    assert!(refused.to_string().contains("db error"), "{refused}");
    let message = refused.as_db_error().unwrap().message();
    assert!(message.contains("READ COMMITTED"), "{message}");
    application.batch_execute("ROLLBACK").await.unwrap();
    application.batch_execute(set).await.unwrap();
    assert_eq!(ids(&engine.claim(1).await), []);
    assert_eq!(store.verify().await.unwrap(), []);
}

/// A locked head of a lane in order holds up the others, also when limits change.
#[tokio::test]
async fn locked_head_stays_first_when_limits_change() {
    let (store, url) = store().await;
    store.set_limit(&per_customer(LimitOptions::in_order())).await.unwrap();
    let created = store.create(&[task("a"), task("a"), task("a")]).await.unwrap();
    let mut engine = Engine::start(&store, "e").await;
    let first = engine.claim(1).await;
    assert_eq!(ids(&first), created[..1]);
    engine.end(&first).await;
    let application = connect(&url).await;
    let lock = format!(
        "BEGIN; SELECT FROM task_engine.waiting_tasks WHERE task_id = {} FOR UPDATE",
        created[1]
    );
    application.batch_execute(&lock).await.unwrap();
    assert_eq!(ids(&engine.claim(1).await), []);
    let other = Limit::of_class("other", "sync", LimitOptions::max(5)).unwrap();
    store.set_limit(&other).await.unwrap();
    assert_eq!(ids(&engine.claim(1).await), []);
    application.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(ids(&engine.claim(1).await), created[1..2]);
}

/// Tasks of a key that come to its lane in several parts are counted once.
#[tokio::test]
async fn holders_are_counted_once() {
    let (store, url) = store().await;
    store.set_limit(&per_customer(LimitOptions::max(3))).await.unwrap();
    let mut engine = Engine::start(&store, "e").await;
    // Many lanes, so that not all of them are read before more tasks are moved.
    for _ in 0..4 {
        let tasks: Vec<NewTask> = (0..600).map(|n| task(&format!("c{}", n % 150))).collect();
        store.create(&tasks).await.unwrap();
        engine.claim(1).await;
    }
    while !engine.claim(50).await.is_empty() {}
    let twice = "SELECT count(*) FROM task_engine.limit_keys k WHERE cardinality(k.task_ids) <> (
      SELECT count(DISTINCT task_id) FROM unnest(k.task_ids) AS t(task_id))";
    let sql = connect(&url).await;
    assert_eq!(sql.query_one(twice, &[]).await.unwrap().get::<_, i64>(0), 0);
    let held = "SELECT count(*) FROM task_engine.held_attempts";
    assert_eq!(sql.query_one(held, &[]).await.unwrap().get::<_, i64>(0), 450);
    assert_eq!(store.verify().await.unwrap(), []);
}

/// Removing unused keys does not deadlock with a limit that begins to count.
#[tokio::test(flavor = "multi_thread")]
async fn prune_does_not_deadlock_with_set_limit() {
    let (store, url) = store().await;
    let sql = connect(&url).await;
    for round in 0..10 {
        let fair = LimitOptions::fair("customer");
        store.set_limit(&per_customer(fair.clone())).await.unwrap();
        let gone = Limit::of_class("gone", format!("gone{round}"), LimitOptions::max(1)).unwrap();
        store.set_limit(&gone).await.unwrap();
        store.clear_limit("gone").await.unwrap();
        let unused = "INSERT INTO task_engine.limit_keys (limit_id, key, total, written_at, task_ids, attempts)
          SELECT l.id, 'old' || n, 1, now() - interval '1 day', '{}', '{}'
          FROM task_engine.limits l, generate_series(1, 2000) AS n WHERE l.name = 'sync'
          ON CONFLICT DO NOTHING";
        sql.batch_execute(unused).await.unwrap();
        let limit = per_customer(LimitOptions::max(2));
        let (pruned, set) = tokio::join!(store.prune_limit_keys(2000), store.set_limit(&limit));
        pruned.unwrap();
        set.unwrap();
    }
}

/// Engines that start at the same moment, after a limit was removed from their code.
#[tokio::test(flavor = "multi_thread")]
async fn engines_declare_at_the_same_time() {
    let (_, url) = store().await;
    for _ in 0..5 {
        let all = ["sync", "sync.rate"].map(|name| {
            Limit::of_class(name, "sync", LimitOptions::max(5).key("customer")).unwrap()
        });
        let declared = |limits: &[Limit]| DeclaredLimits {
            limits: limits.to_vec(),
            classes: vec!["sync".to_owned()],
        };
        let first = PgStore::connect(&url).await.unwrap();
        first.declare_limits(&declared(&all)).await.unwrap();
        let engines: Vec<_> = (0..6)
            .map(|_| {
                let (url, declared) = (url.clone(), declared(&[]));
                tokio::spawn(async move {
                    let store = PgStore::connect(&url).await.unwrap();
                    store.declare_limits(&declared).await.map(drop)
                })
            })
            .collect();
        for engine in engines {
            engine.await.unwrap().unwrap();
        }
    }
}

/// Claimers that meet keys for the first time do not wait for each other in a circle.
#[tokio::test(flavor = "multi_thread")]
async fn new_keys_do_not_deadlock() {
    let (store, _) = store().await;
    store.set_limit(&per_customer(LimitOptions::max(1))).await.unwrap();
    let tasks: Vec<NewTask> = (0..3000).map(|n| task(&format!("c{n}"))).collect();
    store.create(&tasks).await.unwrap();
    let claimers: Vec<_> = (0..4)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut engine = Engine::start(&store, &format!("e{n}")).await;
                let mut all = 0;
                loop {
                    let claimed = engine.claim(200).await;
                    engine.end(&claimed).await;
                    all += claimed.len();
                    if claimed.is_empty() {
                        return all;
                    }
                }
            })
        })
        .collect();
    let mut all = 0;
    for claimer in claimers {
        all += claimer.await.unwrap();
    }
    assert_eq!(all, 3000);
}

/// Limits are cleared and set again while claimers work: whatever runs is counted by the
/// limits that exist.
#[tokio::test(flavor = "multi_thread")]
async fn running_attempts_are_counted_by_new_limits() {
    let (store, _) = store().await;
    let ended = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<NewTask> = (0..400).map(|n| task(&format!("c{}", n % 5))).collect();
    store.create(&tasks).await.unwrap();
    let operator = tokio::spawn({
        let store = store.clone();
        async move {
            for round in 0..15 {
                let limit = per_customer(LimitOptions::max(1 + round % 3));
                store.set_limit(&limit).await.unwrap();
                let violations = store.verify().await.unwrap();
                assert_eq!(violations, [], "round {round}");
                store.clear_limit("sync").await.unwrap();
            }
        }
    });
    let claimers: Vec<_> = (0..3)
        .map(|n| {
            let (store, ended) = (store.clone(), ended.clone());
            tokio::spawn(async move {
                let mut engine = Engine::start(&store, &format!("e{n}")).await;
                let deadline = Instant::now() + TIMEOUT;
                while ended.load(Ordering::Relaxed) < 400 {
                    assert!(Instant::now() < deadline, "tasks are left");
                    let claimed = engine.claim(4).await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    engine.end(&claimed).await;
                    ended.fetch_add(claimed.len(), Ordering::Relaxed);
                }
            })
        })
        .collect();
    operator.await.unwrap();
    for claimer in claimers {
        claimer.await.unwrap();
    }
    assert_eq!(ended.load(Ordering::Relaxed), 400);
}

/// Tasks of a paused queue in the lanes of their keys do not keep a claimer busy.
#[tokio::test]
async fn paused_lanes_are_not_due() {
    let (store, _) = store().await;
    store.set_limit(&per_customer(LimitOptions::max(1))).await.unwrap();
    store.create(&[task("a"), task("b")]).await.unwrap();
    let mut engine = Engine::start(&store, "e").await;
    assert_eq!(engine.claim(1).await.len(), 1);
    let pause = QueuePause::new("default", None::<String>).unwrap();
    store.pause_queue(&pause).await.unwrap();
    engine.claimer.invalidate();
    let claim = engine.claimer.claim(engine.ids.take(), 5).await.unwrap();
    assert!(matches!(claim.rest, ClaimRest::Nothing { .. }), "{claim:?}");
    store.resume_queue("default").await.unwrap();
    assert_eq!(engine.claim(5).await.len(), 1);
}

/// A task that names a limit without a key has the key of the limit's parameter.
#[tokio::test]
async fn named_limit_takes_key_of_parameter() {
    let (store, _) = store().await;
    let api = Limit::named("api", LimitOptions::max(1).key("customer")).unwrap();
    store.set_limit(&api).await.unwrap();
    let named = |customer| task(customer).limit_named("api").unwrap();
    let created = store.create(&[named("a"), named("a"), named("b")]).await.unwrap();
    let mut engine = Engine::start(&store, "e").await;
    assert_eq!(ids(&engine.claim(5).await), [created[0], created[2]]);
    assert_eq!(store.verify().await.unwrap(), []);
}

/// A claimer that knows a limit which was removed since finds the tasks that another engine
/// has moved meanwhile.
#[tokio::test]
async fn claimer_learns_of_removed_limit() {
    let (store, _) = store().await;
    store.set_limit(&per_customer(LimitOptions::max(1))).await.unwrap();
    let created = store.create(&[task("a"), task("a"), task("a")]).await.unwrap();
    let mut old = Engine::start(&store, "old").await;
    assert_eq!(ids(&old.claim(1).await), created[..1]);
    store.clear_limit("sync").await.unwrap();
    let mut new = Engine::start(&store, "new").await;
    assert_eq!(ids(&new.claim(1).await), created[1..2]);
    assert_eq!(ids(&old.claim(1).await), created[2..]);
}
