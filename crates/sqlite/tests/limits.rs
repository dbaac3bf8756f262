//! Limits in a file: what SQL clients and transactions of applications do, and retention.

mod common;

use std::time::{Duration, Instant};

use common::{Engine, File, task};
use task_engine_core::limit::{CONTEXT_NAME, Limit, LimitOptions, Rate};
use task_engine_core::task::NewTask;
use task_engine_sqlite::create_in;
use task_engine_store::claim::ClaimRest;
use task_engine_store::error::StoreError;

fn naming(name: &str) -> NewTask {
    let mut task = task("work");
    task.add_context(CONTEXT_NAME, &serde_json::json!({ name: "x" })).unwrap();
    task
}

async fn with_named_limit(file: &File) -> Engine {
    let store = file.open();
    let limit = Limit::named("api", LimitOptions::max(1)).unwrap();
    store.set_limit(&limit).await.unwrap();
    Engine::register(&store, "a").await
}

#[tokio::test]
async fn sql_client_names_limits() {
    let file = File::with_tables().await;
    let mut engine = with_named_limit(&file).await;
    // The limits are cached before the class has tasks that name one.
    assert_eq!(engine.claim(5).await.1.tasks.len(), 0);
    let client = file.connect();
    let insert = |context: &str| {
        let sql = "INSERT INTO task_engine_tasks (task_class, context) VALUES ('work', ?1)";
        client.execute(sql, [context]).map_err(|error| error.to_string())
    };
    for _ in 0..3 {
        insert(r#"{"limits": {"api": "x"}}"#).unwrap();
    }
    insert(r#"{"limits": 5}"#).unwrap();
    let unknown = insert(r#"{"limits": {"other": "x"}}"#).unwrap_err();
    assert!(unknown.contains("a limit that does not exist"), "{unknown}");
    let broken = insert(r#"{"limits": "#).unwrap_err();
    assert!(broken.contains("context must be a JSON object"), "{broken}");
    let (_, claim) = engine.claim(10).await;
    assert_eq!(claim.tasks.len(), 2, "one that names the limit, and one that does not");
    assert_eq!(file.open().verify().await.unwrap(), []);
}

#[tokio::test]
async fn rolled_back_task_leaves_no_trace() {
    let file = File::with_tables().await;
    let mut engine = with_named_limit(&file).await;
    let mut connection = file.connect();
    let transaction = connection.transaction().unwrap();
    create_in(&transaction, &[naming("api")]).unwrap();
    let unknown = create_in(&transaction, &[naming("other")]);
    let words = r#"limit "other" does not exist"#;
    assert!(matches!(unknown, Err(StoreError::InvalidData(why)) if why.contains(words)));
    transaction.rollback().unwrap();
    let classes = "SELECT count(*) FROM task_engine_classes_naming_limits";
    assert_eq!(connection.query_row(classes, [], |row| row.get(0)), Ok(0));
    let transaction = connection.transaction().unwrap();
    create_in(&transaction, &[naming("api"), naming("api")]).unwrap();
    transaction.commit().unwrap();
    assert_eq!(engine.claim(5).await.1.tasks.len(), 1);
}

#[tokio::test]
async fn unused_keys_are_removed_after_hour() {
    let file = File::with_tables().await;
    let store = file.open();
    let day = Rate::new(9, Duration::from_secs(86_400));
    for limit in [
        Limit::of_class("max", "work", LimitOptions::max(3)),
        Limit::of_class("rate", "work", LimitOptions::rate(day)),
    ] {
        store.set_limit(&limit.unwrap()).await.unwrap();
    }
    store.create(&[task("work"), task("work")]).await.unwrap();
    let mut engine = Engine::register(&store, "a").await;
    let (claim_id, claim) = engine.claim(1).await;
    let (other_id, other) = engine.claim(1).await;
    let by_hand = file.connect();
    let count = |table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM task_engine_{table}");
        by_hand.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    let age = |hours: i64| {
        let sql = "UPDATE task_engine_limit_keys SET written_at = written_at - ?1 * 3600000000";
        by_hand.execute(sql, [hours]).unwrap();
    };
    age(2);
    store.record(&[engine.success(claim_id, &claim.tasks[0])], &[]).await.unwrap();
    assert_eq!(store.prune_limit_keys(100).await.unwrap(), 0, "an attempt runs");
    store.record(&[engine.success(other_id, &other.tasks[0])], &[]).await.unwrap();
    assert_eq!(store.prune_limit_keys(100).await.unwrap(), 1, "the other one has a window");
    assert_eq!((count("limit_keys"), count("limit_starts")), (1, 2));
    age(50);
    assert_eq!(store.prune_limit_keys(0).await.unwrap(), 0);
    assert_eq!(store.prune_limit_keys(100).await.unwrap(), 1);
    assert_eq!((count("limit_keys"), count("limit_starts")), (0, 0));
}

/// Only the starts that a rate counts are kept.
#[tokio::test]
async fn old_starts_are_removed_by_claims() {
    let file = File::with_tables().await;
    let store = file.open();
    let rate = LimitOptions::rate(Rate::new(3, Duration::from_millis(1)));
    store.set_limit(&Limit::of_class("rate", "work", rate).unwrap()).await.unwrap();
    let mut engine = Engine::register(&store, "a").await;
    for _ in 0..12 {
        store.create(&[task("work")]).await.unwrap();
        while engine.claim(1).await.1.tasks.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let starts = "SELECT count(*) FROM task_engine_limit_starts";
    let starts: i64 = file.connect().query_row(starts, [], |row| row.get(0)).unwrap();
    assert_eq!(starts, 3);
}

/// A store without limits has no row about them, and its tasks no lane key.
#[tokio::test]
async fn store_without_limits_writes_nothing() {
    let file = File::with_tables().await;
    let store = file.open();
    let mut engine = Engine::register(&store, "a").await;
    store.create(&[task("work"), task("work"), task("work")]).await.unwrap();
    let (_, claim) = engine.claim(2).await;
    assert!(claim.tasks.iter().all(|task| task.limited.is_none()));
    let by_hand = file.connect();
    for table in ["limits", "limit_keys", "limit_starts", "closed_keys", "classes_naming_limits"] {
        let sql = format!("SELECT count(*) FROM task_engine_{table}");
        let rows: i64 = by_hand.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0, "{table}");
    }
    let moved = "SELECT count(*) FROM task_engine_waiting_tasks WHERE lane_key IS NOT NULL";
    assert_eq!(by_hand.query_row(moved, [], |row| row.get(0)), Ok(0));
}

/// Tasks of a removed limit leave its lanes.
#[tokio::test]
async fn removed_limit_is_not_in_lane_keys() {
    let file = File::with_tables().await;
    let store = file.open();
    for (name, options) in [("max", LimitOptions::max(1)), ("fair", LimitOptions::fair("a"))] {
        store.set_limit(&Limit::of_class(name, "work", options).unwrap()).await.unwrap();
    }
    store.create(&[task("work"), task("work"), task("work")]).await.unwrap();
    let mut engine = Engine::register(&store, "a").await;
    assert_eq!(engine.claim(1).await.1.tasks.len(), 1);
    store.clear_limit("max").await.unwrap();
    let (_, claim) = engine.claim(1).await;
    assert_eq!(claim.tasks[0].limited.as_ref().unwrap().lane_key.0.len(), 1);
    store.clear_limit("fair").await.unwrap();
    assert!(engine.claim(1).await.1.tasks[0].limited.is_none());
}

/// After the clock was set back, the starts before that are in its future. They count as if they
/// came now: the rate holds, and no key waits for the time of the old clock.
#[tokio::test]
async fn rate_continues_after_clock_was_set_back() {
    let file = File::with_tables().await;
    let store = file.open();
    let per = Duration::from_millis(500);
    let rate = LimitOptions::rate(Rate::new(2, per));
    store.set_limit(&Limit::of_class("rate", "work", rate).unwrap()).await.unwrap();
    let created = store.create(&vec![task("work"); 6]).await.unwrap();
    let mut engine = Engine::register(&store, "a").await;
    assert_eq!(engine.claim(5).await.1.tasks.len(), 2);

    let set_back = "UPDATE task_engine_limit_starts SET started_until = started_until + 300000000";
    assert_eq!(file.connect().execute(set_back, []).unwrap(), 1);
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
        let claim = engine.claim(5).await.1;
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
