//! Creation notifies only idle claimers that would take the new task, because creators pay
//! for each notification.

use std::sync::Arc;
use std::time::Duration;

use task_engine_conformance::fixture::new_instance;
use task_engine_core::claim::ClaimIds;
use task_engine_core::json::Json;
use task_engine_core::queue::{Lanes, QueuePause};
use task_engine_core::task::NewTask;
use task_engine_postgres::{PgStore, Schema};
use task_engine_store::claim::{ClaimRest, Claimer};
use task_engine_store::error::StoreError;
use task_engine_test_harness::{TestServer, connect};
use tokio_postgres::Client;

struct Fresh {
    store: Arc<PgStore>,
    /// The application's own connection.
    app: Client,
}

async fn fresh() -> Fresh {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let app = connect(&url).await;
    Fresh { store: Arc::new(store), app }
}

fn task(queue: &str, priority: i32) -> NewTask {
    let task = NewTask::new("a", Json::empty_object()).unwrap();
    task.queue(queue).unwrap().priority(priority)
}

fn lanes(queue: &str, lowest_priority: i32) -> Lanes {
    Lanes { lowest_priority, ..Lanes::new(vec![queue.to_owned()], vec!["a".to_owned()]) }
}

/// An engine with several claimers.
struct Engine {
    ids: ClaimIds,
    claimers: Vec<Box<dyn Claimer>>,
}

impl Fresh {
    async fn engine(&self, name: &str, pools: &[Lanes]) -> Engine {
        let id = self.store.register(&new_instance(name)).await.unwrap();
        let claimers = pools.iter().map(|lanes| self.store.claimer(id, lanes.clone())).collect();
        Engine { ids: ClaimIds::new(id), claimers }
    }

    /// Whether the creation of these tasks notifies a claimer, by `wake`, which all
    /// creation paths call.
    async fn wakes(&self, class: &str, queue: &str, priority: i32) -> bool {
        let ask = "SELECT task_engine.wake($1, $2, $3)";
        self.app.query_one(ask, &[&class, &queue, &priority]).await.unwrap().get(0)
    }

    async fn idle_claimers(&self) -> i64 {
        let ask = "SELECT count(*) FROM task_engine.idle_claimers";
        self.app.query_one(ask, &[]).await.unwrap().get(0)
    }
}

impl Engine {
    async fn claim(&mut self, pool: usize) -> Result<(usize, ClaimRest), StoreError> {
        let claim = self.claimers[pool].claim(self.ids.take(), 1).await?;
        Ok((claim.tasks.len(), claim.rest))
    }

    async fn becomes_idle(&mut self, pool: usize) {
        let (tasks, rest) = self.claim(pool).await.unwrap();
        assert!(tasks == 0 && matches!(rest, ClaimRest::Nothing { .. }), "{rest:?}");
    }
}

#[tokio::test]
async fn only_matching_idle_claimers_are_notified() {
    let fresh = fresh().await;
    let mut engine = fresh.engine("e", &[lanes("mail", i32::MIN), lanes("work", 10)]).await;
    assert!(!fresh.wakes("a", "mail", 0).await, "nobody sleeps");
    engine.becomes_idle(1).await;
    for (queue, priority, wakes) in [
        ("mail", 99, false),
        ("work", 9, false),
        ("work", 10, true),
        ("work", i32::MAX, true),
        ("elsewhere", i32::MAX, false),
    ] {
        assert_eq!(fresh.wakes("a", queue, priority).await, wakes, "{queue} {priority}");
    }
    engine.becomes_idle(0).await;
    assert!(fresh.wakes("a", "mail", i32::MIN).await);
    let anybody = "SELECT task_engine.wake('a')";
    assert!(fresh.app.query_one(anybody, &[]).await.unwrap().get::<_, bool>(0));
}

/// The pool of an engine for some classes is not woken for other classes.
#[tokio::test]
async fn pools_wake_for_their_classes() {
    let fresh = fresh().await;
    let own = Lanes { divided_by_class: true, ..lanes("work", i32::MIN) };
    let mut engine = fresh.engine("e", &[own]).await;
    engine.becomes_idle(0).await;
    assert!(fresh.wakes("a", "work", 0).await);
    assert!(!fresh.wakes("b", "work", 0).await);
    assert!(!fresh.wakes("a", "mail", 0).await);
    let any = "SELECT task_engine.wake('')";
    assert!(fresh.app.query_one(any, &[]).await.unwrap().get::<_, bool>(0));
}

/// The highest priority of a batch decides, queue by queue.
#[tokio::test]
async fn batch_wakes_for_any_task() {
    let mut fresh = fresh().await;
    let mut engine = fresh.engine("e", &[lanes("work", 10)]).await;
    engine.becomes_idle(0).await;
    let mut listener = {
        let (store, (tell, heard)) = (fresh.store.clone(), tokio::sync::mpsc::unbounded_channel());
        tokio::spawn(async move {
            let hear = |wake_up| tell.send(wake_up).unwrap_or_default();
            store.listen(&hear).await
        });
        heard
    };
    // The first wake-ups, one of each kind, report that listening has begun.
    for _ in 0..3 {
        listener.recv().await.unwrap();
    }
    let not_wanted = [task("work", 9), task("mail", 11), task("work", -1)];
    let wanted = [task("work", 0), task("work", 10), task("mail", 0)];
    for tasks in [&not_wanted, &wanted] {
        let transaction = fresh.app.transaction().await.unwrap();
        Schema::default().create_in(&transaction, tasks).await.unwrap();
        transaction.commit().await.unwrap();
    }
    // One wake-up came. One for the first batch would have come before.
    let heard = tokio::time::timeout(Duration::from_secs(10), listener.recv()).await;
    assert!(heard.is_ok_and(|heard| heard.is_some()));
    let (tasks, _) = engine.claim(0).await.unwrap();
    assert_eq!(tasks, 1);
    fresh.store.resume_queue("work").await.unwrap();
    fresh.store.pause_queue(&QueuePause::new("work", None).unwrap()).await.unwrap();
    assert!(listener.try_recv().is_err(), "nobody was woken twice, or by a pause");
}

/// Each claimer removes only its own registration.
#[tokio::test]
async fn claimers_register_one_by_one() {
    let fresh = fresh().await;
    let pools = [lanes("a", i32::MIN), lanes("b", i32::MIN), lanes("b", 5)];
    let mut engine = fresh.engine("e", &pools).await;
    for pool in 0..3 {
        engine.becomes_idle(pool).await;
        assert_eq!(fresh.idle_claimers().await, pool as i64 + 1);
    }
    // The first one has work for longer than the limit, so it removes its registration.
    while fresh.idle_claimers().await == 3 {
        fresh.store.create(&vec![task("a", 0); 10]).await.unwrap();
        for _ in 0..10 {
            assert_eq!(engine.claim(0).await.unwrap().0, 1);
        }
    }
    assert_eq!(fresh.idle_claimers().await, 2);
    assert!(!fresh.wakes("a", "a", 0).await);
    assert!(fresh.wakes("a", "b", 0).await);
    engine.becomes_idle(0).await;
    assert_eq!(fresh.idle_claimers().await, 3);
}

/// A creation is open while one claimer becomes idle and another is busy. The idle one
/// finds its task.
#[tokio::test]
async fn each_claimer_waits_for_open_creations() {
    let mut fresh = fresh().await;
    let pools = [lanes("a", i32::MIN), lanes("b", i32::MIN)];
    let mut engine = fresh.engine("e", &pools).await;
    let transaction = fresh.app.transaction().await.unwrap();
    Schema::default().create_in(&transaction, &[task("a", 0), task("b", 0)]).await.unwrap();
    for pool in 0..2 {
        let (tasks, rest) = engine.claim(pool).await.unwrap();
        // Lightly: the creator may have checked for idle claimers before.
        let ClaimRest::Nothing { next_in: Some(recheck) } = rest else { panic!("{rest:?}") };
        assert!(tasks == 0 && recheck <= Duration::from_secs(1), "{recheck:?}");
    }
    transaction.commit().await.unwrap();
    for pool in [1, 0] {
        assert_eq!(engine.claim(pool).await.unwrap().0, 1, "pool {pool}");
    }
}
