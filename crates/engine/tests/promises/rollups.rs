//! Rollups count all executions, and never delay tasks, even when they cannot be
//! written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use task_engine::core::attempt::TaskError;
use task_engine::core::task::ExecutionStatus;
use task_engine::core::task::TaskListQuery;
use task_engine::postgres::PgStore;
use task_engine::sqlite::{SqliteStore, rusqlite};
use task_engine::store::rollup::RollupQuery;
use task_engine::{Context, Engine, Failure, RetryRule, Store, TaskOptions, TaskStatus};
use task_engine_test_harness::{TestServer, connect};
use tokio::sync::Notify;

use crate::store::{Fresh, TIMEOUT, nothing, on_every_store, start, task};

on_every_store! {
    rollups_count_all_endings
}

/// By class: ok, failed, other, and how many had a run time and a wait.
type Numbers = BTreeMap<String, [u64; 5]>;

async fn counted(store: &dyn Store) -> Numbers {
    let look = RollupQuery { over: Duration::from_secs(3600), step: Duration::from_secs(60) };
    let mut numbers = Numbers::new();
    for row in store.rollups(look).await.unwrap() {
        let of = numbers.entry(row.class).or_default();
        let ran = [row.run.total(), row.wait.total()];
        for (sum, more) in of.iter_mut().zip([row.ok, row.failed, row.other].into_iter().chain(ran))
        {
            *sum += more;
        }
    }
    numbers
}

/// The same, from the recorded executions.
async fn on_record(store: &dyn Store) -> Numbers {
    let mut numbers = Numbers::new();
    let filter = TaskListQuery { limit: 10_000, ..TaskListQuery::default() };
    for row in store.tasks(&filter).await.unwrap() {
        let details = store.task(row.id).await.unwrap().unwrap();
        for execution in details.executions {
            let of = numbers.entry(row.class.clone()).or_default();
            let exception = execution.error.as_ref().map(|error| error.exception.as_str());
            match (execution.status, exception) {
                (ExecutionStatus::Success, _) => of[0] += 1,
                (ExecutionStatus::Snoozed, _) => of[2] += 1,
                (_, Some(TaskError::CANCELLED | TaskError::ENGINE_STOPPED)) => of[2] += 1,
                _ => of[1] += 1,
            }
            of[3] += 1;
            of[4] += 1;
        }
    }
    numbers
}

fn working(engine: Engine<()>, begun: &Arc<Notify>) -> Engine<()> {
    let begins = begun.clone();
    let options = TaskOptions::default().retry(RetryRule::times(2));
    engine
        .handle_class(
            "good",
            TaskOptions::default(),
            |_: serde_json::Value, _: Context<()>| async { Ok::<_, Failure>(()) },
        )
        .handle_class("flaky", options, |_: serde_json::Value, cx: Context<()>| async move {
            match cx.retry_number() {
                0 => Err(Failure::retry_after(Failure::named("Flaky", "once"), Duration::ZERO)),
                _ => Ok(()),
            }
        })
        .handle_class(
            "later",
            TaskOptions::default(),
            |_: serde_json::Value, cx: Context<()>| async move {
                match cx.attempt() {
                    1 => Err(Failure::snooze(Duration::ZERO)),
                    _ => Ok(()),
                }
            },
        )
        .handle_class("bad", TaskOptions::default(), |_: serde_json::Value, _: Context<()>| async {
            Err::<(), _>(Failure::no_retry(Failure::named("Bad", "always")))
        })
        .handle_class(
            "long",
            TaskOptions::default(),
            move |_: serde_json::Value, _: Context<()>| {
                let begins = begins.clone();
                async move {
                    begins.notify_one();
                    std::future::pending::<()>().await;
                    Ok::<_, Failure>(())
                }
            },
        )
}

async fn rollups_count_all_endings(fresh: Fresh) {
    let begun = Arc::new(Notify::new());
    let engine = start(working(fresh.engine().workers(10), &begun));
    let mut ids = Vec::new();
    for class in ["good", "flaky", "bad", "later"] {
        ids.extend(fresh.store.create(&vec![task(class, nothing()); 40]).await.unwrap());
    }
    for id in ids {
        let ended = [TaskStatus::Stopped, TaskStatus::Failed];
        fresh.until(id, |details| ended.contains(&details.row.status)).await;
    }
    let cancelled = fresh.create("long", json!({})).await;
    begun.notified().await;
    fresh.store.cancel(&[cancelled]).await.unwrap();
    fresh.until_status(cancelled, TaskStatus::Cancelled).await;
    // And one that is released.
    let released = fresh.create("long", json!({})).await;
    begun.notified().await;
    engine.stop.stop_now();
    assert_eq!(engine.ended().await.unwrap().released, 1);

    let numbers = counted(&*fresh.store).await;
    assert_eq!(numbers, on_record(&*fresh.store).await);
    let expected = [
        ("bad", [0, 40, 0, 40, 40]),
        ("flaky", [40, 40, 0, 80, 80]),
        ("good", [40, 0, 0, 40, 40]),
        ("later", [40, 0, 40, 80, 80]),
        ("long", [0, 0, 2, 2, 2]),
    ];
    assert_eq!(numbers, expected.map(|(class, of)| (class.to_owned(), of)).into());

    // Another session adds to it; the tasks that it releases run again.
    let engine = start(working(fresh.engine(), &begun));
    begun.notified().await;
    let id = fresh.create("good", nothing()).await;
    fresh.until_status(id, TaskStatus::Stopped).await;
    fresh.store.cancel(&[released]).await.unwrap();
    fresh.until_status(released, TaskStatus::Cancelled).await;
    engine.stop().await;
    let numbers = counted(&*fresh.store).await;
    assert_eq!((numbers["good"][0], numbers["long"][2]), (41, 3));
    assert_eq!(numbers, on_record(&*fresh.store).await);
    fresh.assert_sound().await;
}

/// Charts move while the engine runs; and when figures cannot be written any
/// more, for whatever reason, everything else goes on.
async fn work_goes_on_without_figures(fresh: Fresh, spoil: impl AsyncFnOnce()) {
    let begun = Arc::new(Notify::new());
    let engine = start(working(fresh.engine(), &begun));
    let id = fresh.create("good", nothing()).await;
    fresh.until_status(id, TaskStatus::Stopped).await;
    let waiting = std::time::Instant::now();
    while counted(&*fresh.store).await.get("good").is_none_or(|of| of[0] != 1) {
        assert!(waiting.elapsed() < TIMEOUT, "the chart does not move");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    spoil().await;
    assert!(fresh.store.rollups(RollupQuery { over: TIMEOUT, step: TIMEOUT }).await.is_err());
    for id in fresh.store.create(&vec![task("good", nothing()); 50]).await.unwrap() {
        fresh.until_status(id, TaskStatus::Stopped).await;
    }
    let stopped = engine.stop().await;
    assert_eq!((stopped.forced, stopped.unrecorded), (false, 0));
    fresh.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_rollups_do_not_stop_postgresql() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let client = connect(&url).await;
    work_goes_on_without_figures(Fresh::on(store), async || {
        client.batch_execute("DROP TABLE task_engine.rollups").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_rollups_do_not_stop_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    store.migrate().await.unwrap();
    work_goes_on_without_figures(Fresh::on(store), async || {
        let by_hand = rusqlite::Connection::open(&path).unwrap();
        by_hand.busy_timeout(TIMEOUT).unwrap();
        by_hand.execute_batch("DROP TABLE task_engine_rollups").unwrap();
    })
    .await;
}
