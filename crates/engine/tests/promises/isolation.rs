//! A problem of one part of an engine does not affect the others.

use std::time::{Duration, Instant};

use task_engine::postgres::PgStore;
use task_engine::{Context, Failure, Schedule, TaskEngine, TaskOptions, TaskStatus};
use task_engine_test_harness::{TestServer, connect};

use crate::store::{TIMEOUT, nothing, start, task};

async fn store_and_client() -> (PgStore, tokio_postgres::Client) {
    store_and_client_on(&TestServer::shared().create_database().await).await
}

async fn store_and_client_on(url: &str) -> (PgStore, tokio_postgres::Client) {
    let store = PgStore::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    let client = connect(url).await;
    (store, client)
}

/// The write of a log that an ending no longer waits for still uses its connection.
/// Other users of that connection would wait as long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_log_does_not_block_connection() {
    let url = TestServer::shared().create_database().await;
    let (of_the_engine, mut client) = store_and_client_on(&url).await;
    // Its connections are none of the engine's.
    let store = PgStore::connect(&url).await.unwrap();
    let engine = start(
        TaskEngine::new(of_the_engine)
            .engine(())
            .instance("a")
            .handle_class(
                "speaks",
                TaskOptions::default(),
                |_: serde_json::Value, cx: Context<()>| async move {
                    cx.log("one");
                    Ok::<_, Failure>(())
                },
            )
            .handle_class(
                "silent",
                TaskOptions::default(),
                |_: serde_json::Value, _: Context<()>| async { Ok::<_, Failure>(()) },
            ),
    );
    // The engine has its connections.
    until_ended(&store, "silent", 5, TIMEOUT).await;
    let lock = client.transaction().await.unwrap();
    let logs = "LOCK TABLE task_engine.execution_logs IN ACCESS EXCLUSIVE MODE";
    lock.batch_execute(logs).await.unwrap();
    store.create(&[task("speaks", nothing())]).await.unwrap();
    // An ending waits for its log for two seconds, a statement for a lock for ten.
    for _ in 0..20 {
        until_ended(&store, "silent", 1, Duration::from_secs(6)).await;
    }
    lock.rollback().await.unwrap();
    engine.stop().await;
    assert_eq!(store.verify().await.unwrap(), []);
}

/// Creates tasks and waits for their ends.
async fn until_ended(store: &PgStore, class: &str, number: usize, timeout: Duration) {
    let tasks: Vec<_> = (0..number).map(|_| task(class, nothing())).collect();
    let ids = store.create(&tasks).await.unwrap();
    let begun = Instant::now();
    for id in ids {
        while store.task(id).await.unwrap().unwrap().row.status != TaskStatus::Stopped {
            assert!(begun.elapsed() < TIMEOUT, "{class} {id} has not ended");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(begun.elapsed() < timeout, "{class} {id} has ended after {:?}", begun.elapsed());
    }
}

/// A row that this program cannot even read, past all constraints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_schedule_stops_no_other() {
    let (store, client) = store_and_client().await;
    let often =
        Schedule::every("often", Duration::from_millis(100)).new_task(task("silent", nothing()));
    let engine = start(
        TaskEngine::new(store.clone()).engine(()).instance("a").schedule(often).handle_class(
            "silent",
            TaskOptions::default(),
            |_: serde_json::Value, _: Context<()>| async { Ok::<_, Failure>(()) },
        ),
    );
    let fired = async |beyond: i64| {
        let begun = Instant::now();
        loop {
            let last = "SELECT coalesce(max(last_task_id), 0) FROM task_engine.schedules WHERE name = 'often'";
            let last: i64 = client.query_one(last, &[]).await.unwrap().get(0);
            if last > beyond {
                return last;
            }
            assert!(begun.elapsed() < TIMEOUT, "no slot fires");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    fired(0).await;
    client
        .batch_execute(
            "ALTER TABLE task_engine.schedules
               DROP CONSTRAINT \"the times of a schedule are before the year 9999\";
             INSERT INTO task_engine.schedules
               (name, anchor, next_at, created_at, updated_at, overlap, definition)
             SELECT 'bad', 'infinity', now(), now(), now(), 'allow', definition
             FROM task_engine.schedules",
        )
        .await
        .unwrap();
    let last = fired(0).await;
    fired(last + 2).await;
    engine.stop().await;
}
