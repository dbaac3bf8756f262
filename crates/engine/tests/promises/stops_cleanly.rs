//! A stop is clean: no task starts, and running tasks finish or are released.

use std::time::{Duration, Instant};

use serde_json::json;
use task_engine::core::attempt::TaskError;
use task_engine::samples::handle_samples;
use task_engine::{Context, Failure, Stopped, Task, TaskOptions, TaskStatus};

use crate::store::{Fresh, nothing, on_every_store, start, task};

on_every_store! {
    stop_finishes_running_tasks_only
    forced_stop_uses_no_retry
    stop_timeout_releases_running_tasks
    idle_engine_stops_at_once
    name_is_free_after_stop
    forced_stop_leaves_blocking_task
    engine_can_be_dropped
}

async fn stop_finishes_running_tasks_only(fresh: Fresh) {
    let running = fresh.create("WaitingTask", json!({"waiting_time": 0.3})).await;
    let next = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    let engine = start(handle_samples(fresh.engine().workers(1)));
    fresh.until_status(running, TaskStatus::Running).await;
    assert_eq!(engine.stop().await, Stopped::default());
    assert_eq!(fresh.details(running).await.row.status, TaskStatus::Stopped);
    assert_eq!(fresh.details(next).await.row.status, TaskStatus::Waiting);
    assert_eq!(fresh.details(next).await.row.attempts, 0);
    fresh.assert_sound().await;
}

async fn forced_stop_uses_no_retry(fresh: Fresh) {
    let id = fresh.create("WaitingTask", json!({"waiting_time": 60})).await;
    let engine = start(handle_samples(fresh.engine()));
    fresh.until_status(id, TaskStatus::Running).await;
    engine.stop.stop_now();
    let stopped = engine.ended().await.unwrap();
    assert_eq!((stopped.forced, stopped.released, stopped.unrecorded), (true, 1, 0));
    let task = fresh.details(id).await;
    assert_eq!((task.row.status, task.row.retry_number), (TaskStatus::Waiting, 0));
    let error = task.executions[0].error.as_ref().unwrap();
    assert_eq!(error.exception, TaskError::ENGINE_STOPPED);
    // It is due at once: the next engine takes it.
    let engine = start(handle_samples(fresh.engine()));
    let task = fresh.until_status(id, TaskStatus::Running).await;
    assert_eq!(task.executions.last().unwrap().attempt, 2);
    engine.stop.stop_now();
    engine.ended().await.unwrap();
    fresh.assert_sound().await;
}

async fn stop_timeout_releases_running_tasks(fresh: Fresh) {
    let short = fresh.create("WaitingTask", json!({"waiting_time": 0.05})).await;
    let long = fresh.create("WaitingTask", json!({"waiting_time": 60})).await;
    let engine = fresh.engine().stop_timeout(Duration::from_millis(300));
    let engine = start(handle_samples(engine));
    fresh.until_status(long, TaskStatus::Running).await;
    let stopped = engine.stop().await;
    assert_eq!((stopped.forced, stopped.released, stopped.unrecorded), (true, 1, 0));
    assert_eq!(fresh.details(short).await.row.status, TaskStatus::Stopped);
    assert_eq!(fresh.details(long).await.row.status, TaskStatus::Waiting);
}

async fn idle_engine_stops_at_once(fresh: Fresh) {
    let first = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    fresh.create_task(task("WaitingTask", nothing()).after(Duration::from_secs(60))).await;
    let engine = start(handle_samples(fresh.engine()));
    fresh.until_status(first, TaskStatus::Stopped).await;
    let begun = Instant::now();
    engine.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

async fn name_is_free_after_stop(fresh: Fresh) {
    for _ in 0..2 {
        let id = fresh.create("quick", nothing()).await;
        let engine = fresh.engine().handle_class(
            "quick",
            TaskOptions::default(),
            |_: serde_json::Value, _: Context<()>| async { Ok::<_, Failure>(()) },
        );
        let engine = start(engine);
        fresh.until_status(id, TaskStatus::Stopped).await;
        engine.stop().await;
    }
    let instances = fresh.store.instances(Some("test")).await.unwrap();
    assert!(instances.iter().all(|instance| instance.stopped_at.is_some() && instance.held == 0));
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Blocks;

impl Task for Blocks {
    const CLASS: &'static str = "blocks";

    fn options() -> TaskOptions {
        TaskOptions::default().timeout(Duration::from_millis(10))
    }
}

/// Not even for one that has exceeded its time limit, or was cancelled before.
async fn forced_stop_leaves_blocking_task(fresh: Fresh) {
    let ids = [fresh.create("blocks", nothing()).await, fresh.create("blocks", nothing()).await];
    let engine = start(fresh.engine().handle_blocking(|_: Blocks, _: Context<()>| {
        std::thread::sleep(Duration::from_secs(120));
        Ok::<_, Failure>(())
    }));
    for id in ids {
        fresh.until_status(id, TaskStatus::Running).await;
    }
    fresh.store.cancel(&ids[..1]).await.unwrap();
    engine.stop.stop_now();
    let stopped = engine.ended().await.unwrap();
    assert!(stopped.forced);
    for id in ids {
        let status = fresh.details(id).await.row.status;
        assert!(matches!(status, TaskStatus::Waiting | TaskStatus::Cancelled), "{status}");
    }
    fresh.assert_sound().await;
}

async fn engine_can_be_dropped(fresh: Fresh) {
    let engine = handle_samples(fresh.engine());
    let brief = Duration::from_millis(300);
    assert!(tokio::time::timeout(brief, engine.run_until_stopped()).await.is_err());
}
