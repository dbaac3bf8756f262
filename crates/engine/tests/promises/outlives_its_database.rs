//! The engine outlives its database: a crash of PostgreSQL under load loses
//! nothing, and work goes on when it is back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use task_engine::postgres::PgStore;
use task_engine::{ClassRules, Engine, Failure, Run, Store, TaskStatus};
use task_engine_conformance::TestServer;

use crate::store::{PATIENCE, nothing, start, task};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_postgresql_under_load_loses_nothing() {
    let server = Arc::new(tokio::task::spawn_blocking(TestServer::start).await.unwrap());
    let url = server.create_database().await;
    let store = Arc::new(PgStore::connect(&url).await.unwrap());
    store.migrate().await.unwrap();
    let done: &'static AtomicU64 = Box::leak(Box::default());
    let engines = ["a", "b"].map(|name| {
        start(Engine::new(store.clone(), ()).instance(name).handle_class(
            "count",
            ClassRules::default(),
            move |_: serde_json::Value, _: Run<()>| async move {
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
        assert!(begun.elapsed() < PATIENCE * 2, "{:?}", open(&*store).await.first());
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
    assert_eq!(store.verify().await.unwrap(), Vec::<String>::new());
}

async fn open(store: &dyn Store) -> Vec<task_engine::model::TaskRow> {
    let mut rows = Vec::new();
    for status in [TaskStatus::Waiting, TaskStatus::Running] {
        let filter =
            task_engine::model::TaskFilter { status: Some(status), limit: 1, ..Default::default() };
        rows.extend(store.tasks(&filter).await.unwrap());
    }
    rows
}

async fn until(wanted: impl Fn() -> bool) {
    let begun = Instant::now();
    while !wanted() {
        assert!(begun.elapsed() < PATIENCE * 2, "it does not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
