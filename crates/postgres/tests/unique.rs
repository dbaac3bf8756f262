//! Unique tasks with real connections: the application's transaction, the SQL functions,
//! and concurrent sessions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use task_engine_conformance::fixture::{Fixture, TestAttempt, WORK};
use task_engine_core::json::Json;
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_core::unique::{Creation, OnConflict, Scope, Unique};
use task_engine_postgres::{PgStore, Schema};
use task_engine_store::claim::ClaimRest;
use task_engine_store::contract::RetryReport;
use task_engine_store::contract::WakeUp;
use task_engine_store::error::StoreError;
use task_engine_test_harness::{TestServer, connect};
use tokio_postgres::Client;

struct Fresh {
    url: String,
    fixture: Fixture,
    app: Client,
}

async fn fresh() -> Fresh {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    Fresh { app: connect(&url).await, url, fixture: Fixture { store: Arc::new(store) } }
}

fn task(key: &str) -> NewTask {
    task_with(Unique::by(key))
}

fn task_with(unique: Unique) -> NewTask {
    NewTask::new(WORK, Json::empty_object()).unwrap().unique(unique).unwrap()
}

fn replacing(key: &str) -> NewTask {
    task_with(Unique::by(key).scope(Scope::Waiting).on_conflict(OnConflict::Replace))
}

async fn create_in(transaction: &tokio_postgres::Transaction<'_>, task: NewTask) -> Creation {
    Schema::default().create_each_in(transaction, &[task]).await.unwrap()[0]
}

/// Commits if the task can be created.
async fn end_with(
    transaction: tokio_postgres::Transaction<'_>,
    task: NewTask,
) -> Result<Vec<Creation>, StoreError> {
    let creations = Schema::default().create_each_in(&transaction, &[task]).await?;
    transaction.commit().await.unwrap();
    Ok(creations)
}

impl Fresh {
    async fn create(&self, task: NewTask) -> Creation {
        self.fixture.store.create_each(&[task]).await.unwrap()[0]
    }

    /// Waits until a session waits for a lock.
    async fn until_blocked(&self) {
        let app = connect(&self.url).await;
        let ask = "SELECT count(*) FROM pg_stat_activity \
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let begun = Instant::now();
        while app.query_one(ask, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(10), "nobody waits");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn verify(&self) {
        assert_eq!(self.fixture.store.verify().await.unwrap(), []);
    }
}

/// Each producer writes into a table of the application and creates a unique task in the
/// same transaction. A run sees the last write of each key: a kept or replaced task has
/// not started before the commit.
#[tokio::test(flavor = "multi_thread")]
async fn last_commit_is_seen_by_run() {
    const KEYS: usize = 10;
    let fresh = fresh().await;
    let table = "CREATE TABLE entries (key text PRIMARY KEY, version bigint NOT NULL)";
    fresh.app.batch_execute(table).await.unwrap();
    for key in 0..KEYS {
        let insert = "INSERT INTO entries VALUES ($1, 0)";
        fresh.app.execute(insert, &[&format!("key {key}")]).await.unwrap();
    }
    let over = Arc::new(AtomicBool::new(false));
    let seen: Arc<Mutex<BTreeMap<String, i64>>> = Arc::default();
    let mut engines = Vec::new();
    for n in 0..2 {
        let mut engine = fresh.fixture.engine(&format!("engine-{n}")).await;
        let (app, over, seen) = (connect(&fresh.url).await, over.clone(), seen.clone());
        engines.push(tokio::spawn(async move {
            loop {
                let was_over = over.load(Ordering::SeqCst);
                engine.wake();
                let (holds, rest) = engine.claim_up_to(3).await;
                if was_over && matches!(rest, ClaimRest::Nothing { .. }) {
                    return;
                }
                let Some(claim) = holds.first().map(|hold| hold.claim_id) else { continue };
                for hold in &holds {
                    let key = task_engine_core::unique::key_of(&hold.task.context).unwrap();
                    let read = "SELECT version FROM entries WHERE key = $1";
                    let version: i64 = app.query_one(read, &[&key]).await.unwrap().get(0);
                    let mut seen = seen.lock().unwrap();
                    let newest = seen.entry(key).or_default();
                    *newest = version.max(*newest);
                }
                let endings: Vec<_> = holds.iter().map(TestAttempt::succeeds).collect();
                assert_eq!(engine.record(&endings).await, []);
                engine.finish(claim).await;
            }
        }));
    }
    let mut producers = Vec::new();
    for n in 0..16 {
        let mut app = connect(&fresh.url).await;
        producers.push(tokio::spawn(async move {
            for round in 0..20 {
                let key = format!("key {}", fastrand::usize(0..KEYS));
                let answer = OnConflict::ALL[(n + round) % 4];
                let unique = Unique::by(&key).scope(Scope::Waiting).on_conflict(answer);
                let transaction = app.transaction().await.unwrap();
                let write = "UPDATE entries SET version = version + 1 WHERE key = $1";
                transaction.execute(write, &[&key]).await.unwrap();
                create_in(&transaction, task_with(unique)).await;
                tokio::task::yield_now().await;
                transaction.commit().await.unwrap();
            }
        }));
    }
    for producer in producers {
        producer.await.unwrap();
    }
    over.store(true, Ordering::SeqCst);
    for engine in engines {
        engine.await.unwrap();
    }
    let rows = fresh.app.query("SELECT key, version FROM entries", &[]).await.unwrap();
    let versions: BTreeMap<String, i64> =
        rows.iter().map(|row| (row.get(0), row.get(1))).filter(|(_, n)| *n > 0).collect();
    assert_eq!(*seen.lock().unwrap(), versions);
    fresh.verify().await;
}

/// A claim skips a locked task and claims others.
#[tokio::test]
async fn claim_skips_locked_waiting_task() {
    let mut fresh = fresh().await;
    let kept = fresh.create(task("k")).await.id();
    let mut engine = fresh.fixture.engine("a").await;
    let transaction = fresh.app.transaction().await.unwrap();
    assert_eq!(create_in(&transaction, task("k")).await, Creation::Kept(kept));
    let other = fresh.fixture.create_work(1).await;
    assert_eq!(engine.claim_one().await.task_id(), other[0]);
    let (holds, rest) = engine.claim_up_to(5).await;
    assert!(holds.is_empty());
    assert_eq!(rest, ClaimRest::Contended, "it is asked for again soon");
    transaction.commit().await.unwrap();
    assert_eq!(engine.claim_one().await.task_id(), kept);

    // A running task is kept without a lock on rows that its engine needs.
    let transaction = fresh.app.transaction().await.unwrap();
    assert_eq!(create_in(&transaction, task("k")).await, Creation::Kept(kept));
    let held = engine.held().await;
    assert_eq!(held.len(), 2);
    drop(transaction);
}

/// A second creator with the same key waits for the end of the first transaction, which
/// decides.
#[tokio::test(flavor = "multi_thread")]
async fn second_creator_waits_for_first() {
    let mut fresh = fresh().await;
    for commits in [false, true] {
        let key = format!("commits {commits}");
        let other = PgStore::connect(&fresh.url).await.unwrap();
        let store = fresh.fixture.store.clone();
        let transaction = fresh.app.transaction().await.unwrap();
        let first = create_in(&transaction, task(&key)).await;
        assert!(first.is_new());
        let second = tokio::spawn({
            let task = task(&key);
            async move { other.create_each(&[task]).await }
        });
        let watch = Fresh {
            url: fresh.url.clone(),
            fixture: Fixture { store },
            app: connect(&fresh.url).await,
        };
        watch.until_blocked().await;
        assert!(!second.is_finished());
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        let second = second.await.unwrap().unwrap()[0];
        if commits {
            assert_eq!(second, Creation::Kept(first.id()));
        } else {
            assert!(second.is_new() && second.id() != first.id(), "{second:?}");
        }
    }
    fresh.verify().await;
}

/// An open transaction has a key: retention skips its task, a retry by an operator waits,
/// and there is no deadlock, even if the transaction uses more keys.
#[tokio::test(flavor = "multi_thread")]
async fn operators_work_beside_open_transaction() {
    let mut fresh = fresh().await;
    let mut engine = fresh.fixture.engine("a").await;
    let later = Duration::from_secs(3600);
    let waits = fresh.create(replacing("k").after(later)).await.id();
    let ended = fresh.create(task("ended")).await.id();
    let hold = engine.claim_one().await;
    assert_eq!(hold.task_id(), ended);
    engine.record(&[hold.succeeds()]).await;
    engine.finish(hold.claim_id).await;

    let store = fresh.fixture.store.clone();
    let watch = connect(&fresh.url).await;
    let watch = Fresh { url: fresh.url.clone(), fixture: fresh.fixture.clone(), app: watch };
    let transaction = fresh.app.transaction().await.unwrap();
    let keep = task_with(Unique::by("k").scope(Scope::Waiting));
    assert_eq!(create_in(&transaction, keep).await, Creation::Kept(waits));
    assert!(create_in(&transaction, task("ended")).await.is_new());
    let prune = async || store.prune(TaskStatus::Stopped, Duration::ZERO, 10).await.unwrap();
    assert_eq!(prune().await, 0, "somebody is about to use its key");
    let retry = tokio::spawn({
        let store = store.clone();
        async move { store.retry(&[waits]).await }
    });
    watch.until_blocked().await;
    let again = create_in(&transaction, replacing("k").after(later)).await;
    assert_eq!(again, Creation::Replaced(waits));
    transaction.commit().await.unwrap();
    assert_eq!(retry.await.unwrap().unwrap(), [RetryReport::Advanced]);
    assert_eq!(prune().await, 1);
    fresh.verify().await;
}

/// Keys in different order, one call each: one of the transactions must repeat, and the
/// other one continues.
#[tokio::test(flavor = "multi_thread")]
async fn deadlock_is_reported_and_ends() {
    let mut fresh = fresh().await;
    let mut other = connect(&fresh.url).await;
    let watch = connect(&fresh.url).await;
    let watch = Fresh { url: fresh.url.clone(), fixture: fresh.fixture.clone(), app: watch };
    let first = fresh.app.transaction().await.unwrap();
    assert!(create_in(&first, task("a")).await.is_new());
    let (ready, go) = tokio::sync::oneshot::channel::<()>();
    let second = tokio::spawn(async move {
        let second = other.transaction().await.unwrap();
        assert!(create_in(&second, task("b")).await.is_new());
        ready.send(()).unwrap();
        end_with(second, task("a")).await
    });
    go.await.unwrap();
    watch.until_blocked().await;
    let first = end_with(first, task("b")).await;
    let second = second.await.unwrap();
    let (good, bad) = if first.is_ok() { (first, second) } else { (second, first) };
    assert_eq!(good.unwrap().len(), 1);
    assert!(bad.as_ref().is_err_and(StoreError::is_temporary), "{bad:?}");
    assert_eq!(watch.fixture.list(None).await.len(), 2, "both keys of the one that went on");
    watch.verify().await;
}

#[tokio::test]
async fn verify_finds_orphaned_key() {
    let fresh = fresh().await;
    let id = fresh.create(task("k")).await.id();
    for (spoil, words) in [
        ("SET task_id = 999", "belongs to task 999, which is not there"),
        ("SET unique_key = 'x'", "which has another class or key"),
    ] {
        let spoil = format!("UPDATE task_engine.unique_tasks {spoil}");
        fresh.app.batch_execute(&spoil).await.unwrap();
        let violations = fresh.fixture.store.verify().await.unwrap();
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(violations[0].message.contains(words), "{violations:?}");
        let mend = format!("UPDATE task_engine.unique_tasks SET task_id = {id}, unique_key = 'k'");
        fresh.app.batch_execute(&mend).await.unwrap();
    }
    fresh.verify().await;
}

/// A transaction with one snapshot cannot read again. It must repeat, and never decides
/// by old rows.
#[tokio::test]
async fn old_snapshot_must_repeat() {
    let fresh = fresh().await;
    for (before, meanwhile) in [(None, "k"), (Some("k"), "k")] {
        if let Some(key) = before {
            fresh.create(replacing(key)).await;
        }
        let begin =
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM task_engine.claims";
        fresh.app.batch_execute(begin).await.unwrap();
        fresh.create(replacing(meanwhile)).await;
        let refused = Schema::default().create_each_in(&fresh.app, &[replacing(meanwhile)]).await;
        assert!(refused.as_ref().is_err_and(StoreError::is_temporary), "{refused:?}");
        fresh.app.batch_execute("ROLLBACK").await.unwrap();
    }
    fresh.verify().await;
}

/// A task that becomes due earlier wakes idle engines.
#[tokio::test]
async fn replacement_wakes_idle_engines() {
    let fresh = fresh().await;
    fresh.create(replacing("k").after(Duration::from_secs(3600))).await;
    fresh
        .app
        .batch_execute("INSERT INTO task_engine.idle_claimers VALUES (0, 0, '{default}', 0)")
        .await
        .unwrap();
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let store = fresh.fixture.store.clone();
    tokio::spawn(async move {
        let hear = move |wake_up| {
            if wake_up == WakeUp::Work {
                let _ = sender.send(());
            }
        };
        store.listen(&hear).await
    });
    let mut hear = async || tokio::time::timeout(Duration::from_secs(10), heard.recv()).await;
    hear().await.expect("listening has begun");
    fresh.create(replacing("k")).await;
    assert_eq!(hear().await.expect("a wake-up"), Some(()));
}

#[tokio::test]
async fn sql_functions_support_keys() {
    let fresh = fresh().await;
    let ask = async |call: &str| {
        let sql = format!("SELECT * FROM task_engine.{call}");
        let rows = fresh.app.query(&sql, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect::<Vec<(i64, String)>>()
    };
    let create = "SELECT task_engine.create_task('mail', unique_key => 'k', after => '1 hour')";
    let id: i64 = fresh.app.query_one(create, &[]).await.unwrap().get(0);
    let again: i64 = fresh.app.query_one(create, &[]).await.unwrap().get(0);
    assert_eq!(again, id);
    let kept = ask("create_unique_task('mail', 'k')").await;
    assert_eq!(kept, [(id, "kept".to_owned())]);
    let replaced =
        ask("create_unique_task('mail', 'k', '{\"n\": 2}', on_conflict => 'replace')").await;
    assert_eq!(replaced, [(id, "replaced".to_owned())]);
    let details = fresh.fixture.details(TaskId(id)).await;
    assert_eq!(details.parameters.as_str(), r#"{"n": 2}"#);
    assert_eq!(details.row.scheduled_at.duration_since(details.row.created_at).as_secs(), 0);
    let within = ask("create_unique_task('mail', 'k', unique_scope => '10 minutes')").await;
    assert_eq!(within, [(id, "kept".to_owned())]);
    let many = ask("create_unique_tasks(ARRAY['mail', 'mail', 'mail', 'mail'], \
        unique_keys => ARRAY['k', 'new', NULL, 'new'])")
    .await;
    let outcomes: Vec<_> = many.iter().map(|(_, outcome)| outcome.as_str()).collect();
    assert_eq!(outcomes, ["kept", "created", "created", "kept"]);
    assert_eq!(many[1].0, many[3].0);
    assert_eq!(ask("create_unique_tasks('{}')").await, []);
    for (wrong, why) in [
        ("create_task('a', unique_key => '')", "a unique key has 1 to 500 bytes"),
        ("create_task('', unique_key => 'k')", "a task class needs a name"),
        ("create_task(NULL, unique_key => 'k')", "null value"),
        ("create_task('a', '[1]', unique_key => 'k')", "task parameters are a JSON object"),
        ("create_task('a', context => '7', unique_key => 'k')", "context of a task"),
        ("create_task('a', unique_key => 'k', unique_scope => 'ever')", "not ever"),
        ("create_task('a', unique_key => 'k', unique_scope => '0')", "a period like 10 minutes"),
        ("create_task('a', unique_key => 'k', unique_scope => '-1 h')", "a period like"),
        ("create_task('a', unique_key => 'k', on_conflict => 'drop')", "on_conflict is keep"),
        ("create_unique_tasks('{a}', queues => '{x,y}')", "null value"),
        ("create_unique_tasks('{a}', unique_keys => '{x,y}')", "null value"),
    ] {
        let error = fresh.app.query(&format!("SELECT task_engine.{wrong}"), &[]).await.unwrap_err();
        let message = error.as_db_error().unwrap().message().to_owned();
        assert!(message.contains(why), "{wrong}: {message}");
    }
    fresh.verify().await;
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn sqlx_transaction_supports_keys() {
    use task_engine_postgres::sqlx::{Connection as _, PgConnection};
    let fresh = fresh().await;
    let mut app = PgConnection::connect(&fresh.url).await.unwrap();
    let schema = Schema::default();
    let plain = NewTask::new(WORK, Json::empty_object()).unwrap();
    let tasks = [task("k"), plain, replacing("k")];
    let mut transaction = app.begin().await.unwrap();
    let creations = schema.create_each_in_sqlx(&mut transaction, &tasks).await.unwrap();
    transaction.commit().await.unwrap();
    let (a, b) = (creations[0].id(), creations[1].id());
    let expected = [Creation::Created(a), Creation::Created(b), Creation::Replaced(a)];
    assert_eq!(creations, expected);
    let mut transaction = app.begin().await.unwrap();
    let ids = schema.create_in_sqlx(&mut transaction, &tasks[..1]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(ids, [a]);
}
