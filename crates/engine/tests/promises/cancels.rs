//! Cancelling a running task: its code gets the request within a second, and the
//! record shows how the code reacted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use task_engine::core::attempt::TaskError;
use task_engine::core::cancel::{CancelOutcome, CancelRow};
use task_engine::core::task::ExecutionRow;
use task_engine::postgres::PgStore;
use task_engine::samples::handle_samples;
use task_engine::{
    CancelReport, Context, Failure, RetryRule, Task, TaskEngine, TaskId, TaskOptions, TaskStatus,
};

use task_engine_test_harness::{TestServer, connect};
use tokio::sync::Notify;

use crate::store::{Fresh, TIMEOUT, nothing, on_every_store, start, task};

on_every_store! {
    running_task_is_cancelled
    cancel_request_arrives_within_second
    obeying_code_is_acknowledged
    disobeying_code_is_killed
    class_sets_cancel_grace
    success_after_request_is_ignored
    blocking_code_stays_pending
    forced_stop_honours_cancel_request
}

fn cancel_row(execution: &ExecutionRow) -> CancelRow {
    execution.cancel.expect("a cancel request")
}

/// How long after the delivery of the request an attempt ended.
fn took(execution: &ExecutionRow) -> Duration {
    let delivered = cancel_row(execution).delivered_at.expect("delivered");
    execution.stopped_at.expect("ended").duration_since(delivered).unsigned_abs()
}

async fn running_task_is_cancelled(fresh: Fresh) {
    let id = fresh.create("WaitingTask", json!({"waiting_time": 60})).await;
    let engine = start(handle_samples(fresh.engine()));
    fresh.until_status(id, TaskStatus::Running).await;
    let client = TaskEngine::new(fresh.store.clone());
    assert_eq!(client.cancel(id).await.unwrap(), CancelReport::Requested);
    let task = fresh.until_status(id, TaskStatus::Cancelled).await;
    assert_eq!(task.row.error.unwrap().exception, TaskError::CANCELLED);
    assert_eq!(client.cancel(id).await.unwrap(), CancelReport::Ended(TaskStatus::Cancelled));
    assert_eq!(client.cancel(TaskId(99)).await.unwrap(), CancelReport::NotFound);
    engine.stop().await;
    fresh.assert_sound().await;
}

/// Requested as soon as the task is running, which may be before its code begins.
async fn cancel_request_arrives_within_second(fresh: Fresh) {
    let engine = start(handle_samples(fresh.engine()));
    let mut times = Vec::new();
    for _ in 0..5 {
        let id = fresh.create("ReportingTask", json!({"steps": 1, "step_time": 60})).await;
        fresh.until_status(id, TaskStatus::Running).await;
        fresh.store.cancel(&[id]).await.unwrap();
        let task = fresh.until_status(id, TaskStatus::Cancelled).await;
        let cancel = cancel_row(&task.executions[0]);
        let time = cancel.delivered_at.unwrap().duration_since(cancel.requested_at);
        times.push(time.unsigned_abs());
    }
    times.sort();
    // The heartbeat, which replaces lost notifications, comes every 5 s.
    assert!(times[2] < Duration::from_secs(1), "{times:?}");
    engine.stop().await;
}

async fn obeying_code_is_acknowledged(fresh: Fresh) {
    let id = fresh.create("obeys", nothing()).await;
    let engine = start(fresh.engine().handle_class(
        "obeys",
        TaskOptions::default(),
        |_: serde_json::Value, cx: Context<()>| async move {
            cx.cancelled().await;
            Err::<(), _>(Failure::named("TidiedUp", "half of it was done"))
        },
    ));
    fresh.until_status(id, TaskStatus::Running).await;
    fresh.store.cancel(&[id]).await.unwrap();
    let task = fresh.until_status(id, TaskStatus::Cancelled).await;
    let execution = &task.executions[0];
    assert_eq!(cancel_row(execution).outcome, CancelOutcome::Acknowledged);
    assert!(took(execution) < Duration::from_secs(1), "{execution:?}");
    let error = execution.error.as_ref().unwrap();
    assert_eq!(error.exception, TaskError::CANCELLED);
    assert!(error.message.ends_with("its code returned TidiedUp: half of it was done"), "{error}");
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn disobeying_code_is_killed(fresh: Fresh) {
    let id = fresh.create("WaitingTask", json!({"waiting_time": 60})).await;
    let engine = start(handle_samples(fresh.engine()));
    fresh.until_status(id, TaskStatus::Running).await;
    fresh.store.cancel(&[id]).await.unwrap();
    let task = fresh.until_status(id, TaskStatus::Cancelled).await;
    let execution = &task.executions[0];
    assert_eq!(cancel_row(execution).outcome, CancelOutcome::Killed);
    assert!(took(execution) >= Duration::from_millis(990), "{execution:?}");
    assert!(execution.error.as_ref().unwrap().message.contains("was dropped"), "{execution:?}");
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn class_sets_cancel_grace(fresh: Fresh) {
    let engine = fresh.engine();
    let engine =
        [("quick", 10), ("slow", 60_000)].into_iter().fold(engine, |engine, (class, ms)| {
            engine.handle_class(
                class,
                TaskOptions::default().cancel_grace(Duration::from_millis(ms)),
                move |_: serde_json::Value, cx: Context<()>| async move {
                    cx.cancelled().await;
                    tokio::time::sleep(Duration::from_millis(1200)).await;
                    Err::<(), _>(Failure::from("ended by itself"))
                },
            )
        });
    let engine = start(engine);
    for (class, outcome) in
        [("quick", CancelOutcome::Killed), ("slow", CancelOutcome::Acknowledged)]
    {
        let id = fresh.create(class, nothing()).await;
        fresh.until_status(id, TaskStatus::Running).await;
        fresh.store.cancel(&[id]).await.unwrap();
        let task = fresh.until_status(id, TaskStatus::Cancelled).await;
        assert_eq!(cancel_row(&task.executions[0]).outcome, outcome, "{class}");
    }
    engine.stop().await;
}

async fn success_after_request_is_ignored(fresh: Fresh) {
    let id = fresh.create("stubborn", nothing()).await;
    let engine = fresh.engine().handle_class(
        "stubborn",
        TaskOptions::default(),
        |_: serde_json::Value, cx: Context<()>| async move {
            cx.cancelled().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok::<_, Failure>("done")
        },
    );
    let engine = start(engine);
    fresh.until_status(id, TaskStatus::Running).await;
    fresh.store.cancel(&[id]).await.unwrap();
    let task = fresh.until_status(id, TaskStatus::Stopped).await;
    let execution = &task.executions[0];
    assert_eq!(execution.result.as_ref().unwrap().as_str(), r#""done""#);
    assert_eq!(cancel_row(execution).outcome, CancelOutcome::Ignored);
    assert!(took(execution) >= Duration::from_millis(15), "{execution:?}");
    engine.stop().await;
    fresh.assert_sound().await;
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Blocks;

impl Task for Blocks {
    const CLASS: &'static str = "blocks";
}

async fn blocking_code_stays_pending(fresh: Fresh) {
    let id = fresh.create("blocks", nothing()).await;
    let obeys = Arc::new(AtomicBool::new(false));
    let obeyed = obeys.clone();
    let engine = start(fresh.engine().handle_blocking(move |_: Blocks, cx: Context<()>| {
        while !(cx.is_cancelled() && obeyed.load(Ordering::Relaxed)) {
            if cx.is_cancelled() {
                cx.progress(50, "does not obey");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err::<(), _>(Failure::from("in the end"))
    }));
    fresh.until_status(id, TaskStatus::Running).await;
    fresh.store.cancel(&[id]).await.unwrap();
    // It has the request for longer than the grace of asynchronous code.
    let delivered = fresh.until(id, |task| task.executions[0].progress.is_some()).await;
    let since = Instant::now();
    let later = fresh.until(id, |_| since.elapsed() > Duration::from_millis(1500)).await;
    for task in [delivered, later] {
        assert_eq!(task.row.status, TaskStatus::Running);
        assert!(task.cancel_requested);
        assert_eq!(cancel_row(&task.executions[0]).outcome, CancelOutcome::Pending);
    }
    obeys.store(true, Ordering::Relaxed);
    let task = fresh.until_status(id, TaskStatus::Cancelled).await;
    assert_eq!(cancel_row(&task.executions[0]).outcome, CancelOutcome::Acknowledged);
    assert!(took(&task.executions[0]) >= Duration::from_millis(1400));
    engine.stop().await;
    fresh.assert_sound().await;
}

/// A long grace does not delay a forced stop, which honours the request.
async fn forced_stop_honours_cancel_request(fresh: Fresh) {
    let id = fresh.create("slow", nothing()).await;
    let delivered = Arc::new(Notify::new());
    let notify = delivered.clone();
    let engine = start(fresh.engine().handle_class(
        "slow",
        TaskOptions::default().cancel_grace(Duration::from_secs(600)),
        move |_: serde_json::Value, cx: Context<()>| {
            let notify = notify.clone();
            async move {
                cx.cancelled().await;
                notify.notify_one();
                std::future::pending::<Result<(), Failure>>().await
            }
        },
    ));
    fresh.until_status(id, TaskStatus::Running).await;
    fresh.store.cancel(&[id]).await.unwrap();
    delivered.notified().await;
    engine.stop.stop_now();
    engine.ended().await.unwrap();
    let task = fresh.details(id).await;
    assert_eq!(task.row.status, TaskStatus::Cancelled);
    assert_eq!(cancel_row(&task.executions[0]).outcome, CancelOutcome::Killed);
    let error = task.row.error.unwrap();
    assert!(error.message.contains("its engine stopped"), "{error}");
    fresh.assert_sound().await;
}

/// Without a notification, the heartbeat finds the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeat_delivers_cancel_request() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let id = store.create(&[task("ReportingTask", json!({"steps": 1, "step_time": 60}))]).await;
    let id = id.unwrap()[0];
    let engine = TaskEngine::new(store.clone()).engine(()).instance("a");
    let engine = engine.heartbeat(Duration::from_millis(300), Duration::from_secs(30));
    let engine = start(handle_samples(engine));
    let until = async |status| {
        let begun = Instant::now();
        loop {
            let task = store.task(id).await.unwrap().unwrap();
            if task.row.status == status {
                return task;
            }
            assert!(begun.elapsed() < TIMEOUT, "{task:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    until(TaskStatus::Running).await;
    let silent = connect(&url).await;
    let request = "INSERT INTO task_engine.cancel_requests (task_id, attempt, instance_id, requested_at) \
        SELECT task_id, attempt, instance_id, clock_timestamp() FROM task_engine.held_attempts";
    assert_eq!(silent.execute(request, &[]).await.unwrap(), 1);
    let task = until(TaskStatus::Cancelled).await;
    let cancel = cancel_row(&task.executions[0]);
    assert_eq!(cancel.outcome, CancelOutcome::Acknowledged);
    let time = cancel.delivered_at.unwrap().duration_since(cancel.requested_at).unsigned_abs();
    assert!(time < Duration::from_secs(3), "{time:?}");
    engine.stop().await;
}

/// A task without retries panics after a cancel request: it has failed, and the
/// request is recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_after_cancel_request_fails() {
    let fresh = crate::store::sqlite().await;
    let id = fresh.create("fails", nothing()).await;
    let goes_on: &'static Notify = Box::leak(Box::default());
    let begun: &'static Notify = Box::leak(Box::default());
    let engine = start(fresh.engine().handle_class(
        "fails",
        TaskOptions::default().retry(RetryRule::never()),
        move |_: serde_json::Value, cx: Context<()>| async move {
            begun.notify_one();
            goes_on.notified().await;
            cx.cancelled().await;
            panic!("in the middle of it");
            #[allow(unreachable_code)]
            Ok::<_, Failure>(())
        },
    ));
    begun.notified().await;
    fresh.store.cancel(&[id]).await.unwrap();
    goes_on.notify_one();
    let task = fresh.until_status(id, TaskStatus::Failed).await;
    assert_eq!(task.executions[0].error.as_ref().unwrap().exception, "Panic");
    assert_eq!(cancel_row(&task.executions[0]).outcome, CancelOutcome::Acknowledged);
    engine.stop().await;
}
