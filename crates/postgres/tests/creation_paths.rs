//! The creation paths: the client, the application's own transaction, the SQL functions, and
//! a plain INSERT. Each creates the whole task, and notifies engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use task_engine::TaskEngine;
use task_engine_conformance::fixture::new_instance;
use task_engine_core::claim::ClaimIds;
use task_engine_core::json::Json;
use task_engine_core::queue::Lanes;
use task_engine_core::task::{NewTask, Task, TaskDetails, TaskId, TaskListQuery, TaskStatus};
use task_engine_postgres::{PgStore, Schema};
use task_engine_store::claim::ClaimRest;
use task_engine_store::contract::WakeUp;
use task_engine_store::error::StoreError;
use task_engine_test_harness::{TestServer, connect};

struct Fresh {
    url: String,
    store: PgStore,
    /// The application's own connection.
    app: tokio_postgres::Client,
}

async fn fresh() -> Fresh {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    Fresh { app: connect(&url).await, url, store }
}

fn task(class: &str) -> NewTask {
    NewTask::new(class, Json::parse(r#"{"n": 1}"#).unwrap()).unwrap()
}

impl Fresh {
    async fn all(&self) -> Vec<TaskId> {
        let filter = TaskListQuery { limit: 100, ..TaskListQuery::default() };
        self.store.tasks(&filter).await.unwrap().into_iter().map(|row| row.id).collect()
    }

    async fn details(&self, id: TaskId) -> TaskDetails {
        self.store.task(id).await.unwrap().unwrap()
    }

    /// Counts the wake-ups of an idle claimer from now on.
    async fn wake_ups(&self) -> Arc<AtomicUsize> {
        let idle_claimer = "INSERT INTO task_engine.idle_claimers VALUES (0, 0, '{default}', 0)";
        self.app.batch_execute(idle_claimer).await.unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let (store, heard) = (self.store.clone(), count.clone());
        tokio::spawn(async move {
            let hear = |wake_up| {
                if wake_up == WakeUp::Work {
                    heard.fetch_add(1, Ordering::SeqCst);
                }
            };
            store.listen(&hear).await
        });
        until(|| count.load(Ordering::SeqCst) == 1).await;
        count
    }
}

async fn until(wanted: impl Fn() -> bool) {
    let begun = Instant::now();
    while !wanted() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not happen");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn rollback_leaves_no_task() {
    let mut fresh = fresh().await;
    let woken = fresh.wake_ups().await;
    let schema = Schema::default();
    let transaction = fresh.app.transaction().await.unwrap();
    let ids = schema.create_in(&transaction, &[task("a"), task("b")]).await.unwrap();
    assert_eq!(ids.len(), 2);
    transaction.rollback().await.unwrap();
    let transaction = fresh.app.transaction().await.unwrap();
    let kept = schema.create_in(&transaction, &[task("c")]).await.unwrap();
    assert_eq!(woken.load(Ordering::SeqCst), 1, "nothing is said before the commit");
    transaction.commit().await.unwrap();
    until(|| woken.load(Ordering::SeqCst) > 1).await;
    assert_eq!(fresh.all().await, kept);
    assert_eq!(woken.load(Ordering::SeqCst), 2, "of the first transaction nothing was heard");
    assert_eq!(fresh.store.verify().await.unwrap(), []);
}

/// While every engine is busy, creators do not notify. An engine that becomes idle while
/// a creation is open does not miss its task.
#[tokio::test]
async fn silent_creation_is_found_before_idling() {
    let mut fresh = fresh().await;
    let woken = fresh.wake_ups().await;
    fresh.app.batch_execute("DELETE FROM task_engine.idle_claimers").await.unwrap();
    let engine = fresh.store.register(&new_instance("a")).await.unwrap();
    let lanes = Lanes::new(vec!["default".into()], vec!["a".into()]);
    let mut claimer = fresh.store.claimer(engine, lanes);
    let ids = ClaimIds::new(engine);

    let transaction = fresh.app.transaction().await.unwrap();
    Schema::default().create_in(&transaction, &[task("a")]).await.unwrap();
    // It registers as idle and scans again soon, because a creation is open.
    let claim = claimer.claim(ids.take(), 1).await.unwrap();
    let ClaimRest::Nothing { next_in: Some(recheck) } = claim.rest else { panic!("{claim:?}") };
    assert!(recheck <= Duration::from_secs(1), "{recheck:?}");
    let claim = claimer.claim(ids.take(), 1).await.unwrap();
    assert!(matches!(claim.rest, ClaimRest::Nothing { next_in: Some(_) }), "{claim:?}");
    transaction.commit().await.unwrap();
    let claim = claimer.claim(ids.take(), 1).await.unwrap();
    assert_eq!(claim.tasks.len(), 1);
    assert_eq!(woken.load(Ordering::SeqCst), 1, "nobody was notified");

    // Now it is registered for all creators.
    let claim = claimer.claim(ids.take(), 1).await.unwrap();
    assert!(matches!(claim.rest, ClaimRest::Nothing { next_in: None }), "{claim:?}");
    fresh.store.create(&[task("a")]).await.unwrap();
    until(|| woken.load(Ordering::SeqCst) > 1).await;
}

/// A snapshot from before the idle registration cannot see it, so such transactions
/// always notify.
#[tokio::test]
async fn repeatable_read_always_notifies() {
    let fresh = fresh().await;
    let woken = fresh.wake_ups().await;
    fresh.app.batch_execute("DELETE FROM task_engine.idle_claimers").await.unwrap();
    let create = "BEGIN ISOLATION LEVEL REPEATABLE READ; \
        SELECT task_engine.create_task('a'); COMMIT";
    fresh.app.batch_execute(create).await.unwrap();
    until(|| woken.load(Ordering::SeqCst) > 1).await;
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn sqlx_transaction_creates_tasks() {
    use task_engine_postgres::sqlx::{Connection as _, PgConnection};
    let fresh = fresh().await;
    let mut app = PgConnection::connect(&fresh.url).await.unwrap();
    let schema = fresh.store.schema();
    let at = "2031-02-03T04:05:06.789Z".parse().unwrap();
    let tasks =
        [task("a").priority(7), task("b").at(at), task("c").after(Duration::from_secs(600))];
    let mut transaction = app.begin().await.unwrap();
    schema.create_in_sqlx(&mut transaction, &tasks).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(fresh.all().await, []);
    let mut transaction = app.begin().await.unwrap();
    let ids = schema.create_in_sqlx(&mut transaction, &tasks).await.unwrap();
    transaction.commit().await.unwrap();
    let [a, b, c] = [ids[0], ids[1], ids[2]];
    assert_eq!(fresh.details(a).await.row.priority, 7);
    assert_eq!(fresh.details(b).await.row.scheduled_at, at);
    let c = fresh.details(c).await.row;
    assert_eq!(c.scheduled_at.duration_since(c.created_at).as_secs(), 600);
    assert_eq!(fresh.details(a).await.parameters.as_str(), r#"{"n": 1}"#);
}

#[tokio::test]
async fn sql_functions_create_tasks() {
    let fresh = fresh().await;
    let woken = fresh.wake_ups().await;
    let one = fresh
        .app
        .query_one("SELECT task_engine.create_task('mail', '{\"to\": \"you\"}')", &[])
        .await
        .unwrap();
    until(|| woken.load(Ordering::SeqCst) > 1).await;
    let id = TaskId(one.get(0));
    let row = fresh.details(id).await.row;
    assert_eq!((row.class.as_str(), row.status), ("mail", TaskStatus::Waiting));
    let later = fresh
        .app
        .query_one("SELECT task_engine.create_task('mail', after => '1 hour', priority => 3)", &[])
        .await
        .unwrap();
    let row = fresh.details(TaskId(later.get(0))).await.row;
    assert_eq!(row.scheduled_at.duration_since(row.created_at).as_secs(), 3600);
    let many = "SELECT task_engine.create_tasks(array_fill('bulk'::text, ARRAY[1000]))";
    assert_eq!(fresh.app.query(many, &[]).await.unwrap().len(), 1000);
    for (wrong, why) in [
        ("SELECT task_engine.create_task('')", "a task class needs a name"),
        ("SELECT task_engine.create_task(NULL)", "null value"),
        ("SELECT task_engine.create_task('a', '[1]')", "task parameters are a JSON object"),
        (
            "SELECT task_engine.create_task('a', context => '7')",
            "context of a task is a JSON object",
        ),
    ] {
        let error = fresh.app.query(wrong, &[]).await.unwrap_err();
        let message = error.as_db_error().unwrap().message().to_owned();
        assert!(message.contains(why), "{wrong}: {message}");
    }
    assert_eq!(fresh.store.verify().await.unwrap(), []);
}

/// The book's program sends an INSERT with the client's time, and a notification on the
/// book's channel, in one transaction.
#[tokio::test]
async fn book_insert_creates_and_notifies() {
    let mut fresh = fresh().await;
    let woken = fresh.wake_ups().await;
    fresh.app.batch_execute("SET search_path = task_engine").await.unwrap();
    let transaction = fresh.app.transaction().await.unwrap();
    let insert = r#"INSERT INTO "tasks" ("task_class", "task_parameters", "created_at", "updated_at")
        VALUES ('TaskEngine::Tasks::WaitingTask', '{"waiting_time":5}'::json,
                '1999-08-10 16:52:54.055373+0200', '1999-08-10 16:52:54.055373+0200')
        RETURNING *"#;
    let row = transaction.query_one(insert, &[]).await.unwrap();
    transaction
        .batch_execute("NOTIFY \"task-engine\", 'TaskEngine::Tasks::WaitingTask'")
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    until(|| woken.load(Ordering::SeqCst) > 1).await;
    let id = TaskId(row.get("id"));
    let created: jiff::Timestamp = row.get("created_at");
    assert!(
        created > "2020-01-01T00:00:00Z".parse().unwrap(),
        "the database's clock, not {created}"
    );
    let task = fresh.details(id).await;
    assert_eq!(task.row.class, "TaskEngine::Tasks::WaitingTask");
    assert_eq!(task.parameters.as_str(), r#"{"waiting_time": 5}"#);
    let status = "SELECT status::text, instance, context::text FROM tasks WHERE status = 'waiting'";
    let row = fresh.app.query_one(status, &[]).await.unwrap();
    assert_eq!((row.get(0), row.get(2)), ("waiting", "{}"));
    let running = "SELECT * FROM tasks WHERE status = 'running' AND instance = 'a'";
    assert!(fresh.app.query(running, &[]).await.unwrap().is_empty());
}

/// The query of the book's program, with the book's column names.
#[tokio::test]
async fn views_have_results_and_ids() {
    let fresh = fresh().await;
    let fill = r#"SET search_path = task_engine;
        INSERT INTO tasks (task_class) VALUES ('work'), ('work');
        DELETE FROM waiting_tasks WHERE task_id = 1;
        INSERT INTO ended_executions (task_id, attempt, retry_number, started_at, stopped_at,
            retry_at, result, error, ends_task)
        VALUES (1, 2, 1, now(), now(), NULL, '{"sent": 3}', NULL, 'stopped'),
            (1, 1, 0, now(), now(), now(), NULL, '{"exception": "Snoozed", "message": "m"}', NULL),
            (9223372036854775807, 1, 0, now(), now(), NULL, NULL, NULL, 'stopped')"#;
    fresh.app.batch_execute(fill).await.unwrap();
    let results = "SELECT result::text FROM tasks ORDER BY id";
    let rows = fresh.app.query(results, &[]).await.unwrap();
    let results: Vec<Option<&str>> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(results, [Some(r#"{"sent": 3}"#), None]);
    let executions =
        "SELECT e.id::text, e.attempt, e.status::text FROM task_executions e ORDER BY e.id";
    let rows = fresh.app.query(executions, &[]).await.unwrap();
    let found: Vec<(&str, i32, &str)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    let expected = [
        ("2147483649", 1, "snoozed"),
        ("2147483650", 2, "success"),
        ("19807040628566084396238503937", 1, "success"),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn insert_is_whole_or_refused() {
    let fresh = fresh().await;
    let insert = "INSERT INTO task_engine.tasks (task_class, scheduled_at) VALUES \
        ('a', now() + interval '1 day'), ('b', NULL) RETURNING id, status::text, scheduled_at > clock_timestamp()";
    let rows = fresh.app.query(insert, &[]).await.unwrap();
    let [a, b] = &rows[..] else { panic!("two rows") };
    assert_eq!((a.get(1), a.get(2)), ("waiting", true));
    assert_eq!((b.get(1), b.get(2)), ("waiting", false));
    for (wrong, why) in [
        ("INSERT INTO task_engine.tasks (id, task_class) VALUES (7, 'a')", "given by the database"),
        (
            "INSERT INTO task_engine.tasks (status, task_class) VALUES ('stopped', 'a')",
            "begins as waiting",
        ),
        ("INSERT INTO task_engine.tasks (task_parameters) VALUES ('{}')", "null value"),
    ] {
        let error = fresh.app.execute(wrong, &[]).await.unwrap_err();
        let message = error.as_db_error().unwrap().message().to_owned();
        assert!(message.contains(why), "{wrong}: {message}");
    }
    assert_eq!(fresh.all().await.len(), 2);
    assert_eq!(fresh.store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn client_needs_no_engine() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Mail {
        to: String,
    }
    impl Task for Mail {
        const CLASS: &'static str = "mail";
    }
    let fresh = fresh().await;
    let client = TaskEngine::new(fresh.store.clone());
    let id = client.create(Mail { to: "you".into() }).priority(2).queue("slow").await.unwrap();
    let task = fresh.details(id).await;
    assert_eq!((task.row.priority, task.row.queue.as_str()), (2, "slow"));
    assert_eq!(task.parameters.as_str(), r#"{"to": "you"}"#);
    let error = client.create(Mail { to: "a\0".into() }).await.unwrap_err();
    assert!(error.to_string().contains("\\u0000"), "{error}");
    assert_eq!(fresh.all().await, [id]);
}

#[tokio::test]
async fn schemas_are_separate() {
    let fresh = fresh().await;
    let other = PgStore::connect_schema(&fresh.url, Schema::named("other").unwrap()).await.unwrap();
    assert!(other.location().ends_with("(schema other)"), "{}", other.location());
    let error = other.create(&[task("a")]).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Version(why) if why.contains("task-engine migrate")),
        "{error}"
    );
    assert_eq!(other.migrate().await.unwrap()[0], "0001_tasks");
    assert_eq!(other.migrate().await.unwrap(), Vec::<String>::new());
    other.create(&[task("a")]).await.unwrap();
    assert_eq!(fresh.all().await, []);
    assert_eq!(other.verify().await.unwrap(), []);
}

#[tokio::test]
async fn concurrent_migrations_apply_once() {
    let url = TestServer::shared().create_database().await;
    let stores: Vec<_> = {
        let mut stores = Vec::new();
        for _ in 0..4 {
            stores.push(PgStore::connect(&url).await.unwrap());
        }
        stores
    };
    let applied = futures_util::future::join_all(stores.iter().map(|store| store.migrate())).await;
    let applied: Vec<_> = applied.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(applied.first().map(String::as_str), Some("0001_tasks"));
    let once: std::collections::HashSet<_> = applied.iter().collect();
    assert_eq!(once.len(), applied.len(), "each once: {applied:?}");
}

#[tokio::test]
async fn newer_schema_is_refused() {
    let fresh = fresh().await;
    let newer = "INSERT INTO task_engine.migrations (version, name) VALUES (9999, 'future')";
    fresh.app.execute(newer, &[]).await.unwrap();
    let error = PgStore::connect(&fresh.url).await.unwrap().migrate().await.unwrap_err();
    assert!(matches!(error, StoreError::Version(_)), "{error}");
    assert!(
        error.to_string().contains("version 9999") && error.to_string().contains("upgrade"),
        "{error}"
    );
}

#[tokio::test]
async fn unreachable_server_is_reported() {
    for (url, why) in [
        ("nonsense", "not a database URL"),
        ("postgres://", "names no host"),
        ("postgres://127.0.0.1:1/x", "127.0.0.1:1/x cannot be reached"),
        ("postgres://u:secret@127.0.0.1:1/x?sslmode=verify-full", "cannot be reached"),
    ] {
        let error = PgStore::connect(url).await.unwrap_err().to_string();
        assert!(error.contains(why), "{url}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
    let url = TestServer::shared().create_database().await;
    let missing = format!("{url}_is_not_there");
    let error = PgStore::connect(&missing).await.unwrap_err().to_string();
    assert!(error.contains("refuses the connection"), "{error}");
}
