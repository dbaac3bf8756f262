//! A crash of PostgreSQL under load loses nothing, and engines continue when it is
//! back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use task_engine::postgres::PgStore;
use task_engine::{Context, Failure, Store, TaskEngine, TaskOptions, TaskStatus};
use task_engine_test_harness::{TestServer, connect};
use tokio::sync::Notify;

use crate::signals::Signals;
use crate::store::{TIMEOUT, nothing, start, task};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_crash_loses_nothing() {
    let server = Arc::new(tokio::task::spawn_blocking(TestServer::start).await.unwrap());
    let url = server.create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let done: &'static AtomicU64 = Box::leak(Box::default());
    let engines = ["a", "b"].map(|name| {
        start(TaskEngine::new(store.clone()).engine(()).instance(name).handle_class(
            "count",
            TaskOptions::default(),
            move |_: serde_json::Value, _: Context<()>| async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                done.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Failure>(())
            },
        ))
    });
    let tasks: Vec<_> = (0..2000).map(|_| task("count", nothing())).collect();
    store.create(&tasks).await.unwrap();
    for crash in 1..=2 {
        until(|| done.load(Ordering::Relaxed) > 300 * crash).await;
        let server = server.clone();
        tokio::task::spawn_blocking(move || {
            server.stop_immediate();
            server.start_again();
        })
        .await
        .unwrap();
    }
    let back = Instant::now();
    let before = done.load(Ordering::Relaxed);
    until(|| done.load(Ordering::Relaxed) > before + 50).await;
    assert!(back.elapsed() < Duration::from_secs(10), "{:?}", back.elapsed());

    // Nothing was lost: everything that was created comes to its end.
    let begun = Instant::now();
    while !open(&*store).await.is_empty() {
        assert!(begun.elapsed() < TIMEOUT * 2, "{:?}", open(&*store).await.first());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(done.load(Ordering::Relaxed) >= 2000);

    // Wake-ups work again: this is much sooner than the poll.
    let begun = Instant::now();
    let before = done.load(Ordering::Relaxed);
    store.create(&[task("count", nothing())]).await.unwrap();
    until(|| done.load(Ordering::Relaxed) > before).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for engine in engines {
        let stopped = engine.stop().await;
        assert_eq!(stopped.unrecorded, 0);
    }
    assert_eq!(store.verify().await.unwrap(), []);
}

/// An operator closes the database, or changes a password: the results are kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_survives_refused_connections() {
    let server = TestServer::shared();
    let url = server.create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let mut signals = Signals::listen();
    let ids = store.create(&[task("wait", nothing())]).await.unwrap();
    let (begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, ends) = (begun.clone(), may_end.clone());
    let engine = start(TaskEngine::new(store.clone()).engine(()).instance("a").handle_class(
        "wait",
        TaskOptions::default(),
        move |_: serde_json::Value, _: Context<()>| {
            let (begins, ends) = (begins.clone(), ends.clone());
            async move {
                begins.notify_one();
                ends.notified().await;
                Ok::<_, Failure>("worked for")
            }
        },
    ));
    begun.notified().await;
    let name = url.rsplit('/').next().unwrap();
    let admin = connect(&server.url("postgres")).await;
    let close = format!(
        "ALTER DATABASE \"{name}\" ALLOW_CONNECTIONS false; \
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    );
    admin.batch_execute(&close).await.unwrap();
    may_end.notify_one();
    assert!(store.task(ids[0]).await.is_err());
    signals.wait_for(&["results are kept until the store takes them", name]).await;
    admin
        .batch_execute(&format!("ALTER DATABASE \"{name}\" ALLOW_CONNECTIONS true"))
        .await
        .unwrap();
    let begun = Instant::now();
    loop {
        let task = store.task(ids[0]).await;
        match &task {
            Ok(Some(task)) if task.row.status == TaskStatus::Stopped => {
                assert_eq!(task.executions[0].result.as_ref().unwrap().as_str(), r#""worked for""#);
                break;
            }
            Ok(task) => assert!(task.is_some()),
            // A pooled connection may be a terminated one.
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
        assert!(begun.elapsed() < TIMEOUT, "{task:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    engine.stop().await;
}

/// A forgotten transaction holds the first tasks in line; the others run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_tasks_do_not_block_others() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let mut tasks: Vec<_> = (0..100).map(|_| task("count", nothing()).priority(1)).collect();
    tasks.extend((0..20).map(|_| task("count", nothing())));
    store.create(&tasks).await.unwrap();
    let mut app = connect(&url).await;
    let forgotten = app.transaction().await.unwrap();
    let lock = "SELECT task_id FROM task_engine.waiting_tasks ORDER BY task_id LIMIT 30 FOR UPDATE";
    forgotten.query(lock, &[]).await.unwrap();
    let done: &'static AtomicU64 = Box::leak(Box::default());
    let engine =
        start(TaskEngine::new(store.clone()).engine(()).instance("a").workers(3).handle_class(
            "count",
            TaskOptions::default(),
            move |_: serde_json::Value, _: Context<()>| async move {
                done.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Failure>(())
            },
        ));
    until(|| done.load(Ordering::Relaxed) == 90).await;
    forgotten.rollback().await.unwrap();
    until(|| done.load(Ordering::Relaxed) == 120).await;
    engine.stop().await;
}

async fn open(store: &dyn Store) -> Vec<task_engine::core::task::TaskRow> {
    let mut rows = Vec::new();
    for status in [TaskStatus::Waiting, TaskStatus::Running] {
        let filter = task_engine::core::task::TaskListQuery {
            status: Some(status),
            limit: 1,
            ..Default::default()
        };
        rows.extend(store.tasks(&filter).await.unwrap());
    }
    rows
}

async fn until(wanted: impl Fn() -> bool) {
    let begun = Instant::now();
    while !wanted() {
        assert!(begun.elapsed() < TIMEOUT * 2, "it does not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
