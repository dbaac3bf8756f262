//! No task can harm its engine.

use std::time::Duration;

use serde_json::json;
use task_engine::samples::handle_samples;
use task_engine::{Context, Failure, RetryRule, Task, TaskOptions, TaskStatus};

use crate::store::{Fresh, nothing, on_every_store, start};

on_every_store! {
    panic_is_recorded_as_failure
    panic_in_drop_is_failure
    timeout_is_recorded_as_failure
    timed_out_blocking_task_keeps_worker
    blocking_tasks_do_not_stop_heartbeats
}

fn once() -> TaskOptions {
    TaskOptions::default().retry(RetryRule::never())
}

async fn panic_is_recorded_as_failure(fresh: Fresh) {
    let bad = fresh.create("panics", nothing()).await;
    let engine = handle_samples(fresh.engine().workers(1)).handle_class(
        "panics",
        once(),
        |parameters: serde_json::Value, _: Context<()>| async move {
            let something = parameters.get("something").expect("there is something");
            Ok::<_, Failure>(something.clone())
        },
    );
    let engine = start(engine);
    let task = fresh.until_status(bad, TaskStatus::Failed).await;
    let good = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    fresh.until_status(good, TaskStatus::Stopped).await;
    engine.stop().await;
    let error = task.row.error.unwrap();
    assert_eq!(error.exception, "Panic");
    assert_eq!(error.message, "there is something");
    assert!(error.backtrace[0].contains("survives_tasks.rs"), "{error:?}");
}

async fn panic_in_drop_is_failure(fresh: Fresh) {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let bad = fresh.create("bomb", nothing()).await;
    let options = once().timeout(Duration::from_millis(20));
    let engine = handle_samples(fresh.engine().workers(1)).handle_class(
        "bomb",
        options,
        |_: serde_json::Value, _: Context<()>| async {
            let _bomb = Bomb;
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok::<_, Failure>(())
        },
    );
    let engine = start(engine);
    let task = fresh.until_status(bad, TaskStatus::Failed).await;
    assert!(["Panic", "Timeout"].contains(&task.row.error.unwrap().exception.as_str()));
    let good = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    fresh.until_status(good, TaskStatus::Stopped).await;
    engine.stop().await;
}

async fn timeout_is_recorded_as_failure(fresh: Fresh) {
    let slow = fresh.create("slow", nothing()).await;
    let options = once().timeout(Duration::from_millis(50));
    let engine = fresh.engine().handle_class(
        "slow",
        options,
        |_: serde_json::Value, _: Context<()>| async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok::<_, Failure>(())
        },
    );
    let engine = start(engine);
    let task = fresh.until_status(slow, TaskStatus::Failed).await;
    engine.stop().await;
    let error = task.row.error.unwrap();
    assert_eq!(
        (error.exception.as_str(), error.message.as_str()),
        ("Timeout", "not finished after 50ms")
    );
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Blocks {
    ms: u64,
}

impl Task for Blocks {
    const CLASS: &'static str = "blocks";

    fn options() -> TaskOptions {
        once().timeout(Duration::from_millis(20))
    }
}

async fn timed_out_blocking_task_keeps_worker(fresh: Fresh) {
    let id = fresh.create("blocks", json!({"ms": 200})).await;
    let engine = fresh.engine().handle_blocking(|task: Blocks, cx: Context<()>| {
        std::thread::sleep(Duration::from_millis(task.ms));
        // It is asked to end, because its time is over.
        if cx.is_cancelled() { Err(Failure::from("asked to end")) } else { Ok(()) }
    });
    let engine = start(engine);
    let task = fresh.until_status(id, TaskStatus::Failed).await;
    engine.stop().await;
    let execution = &task.executions[0];
    assert_eq!(execution.error.as_ref().unwrap().exception, "Timeout");
    let lasted = execution.stopped_at.unwrap().duration_since(execution.started_at.unwrap());
    assert!(lasted.as_millis() >= 200, "its thread was busy until then, not {lasted}");
}

async fn blocking_tasks_do_not_stop_heartbeats(fresh: Fresh) {
    let (heartbeat, lease) = (Duration::from_millis(100), Duration::from_millis(1000));
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(fresh.create("blocks", nothing()).await);
    }
    // Wrongly, it blocks the threads of the application's runtime.
    let engine = fresh.engine().heartbeat(heartbeat, lease).handle_class(
        "blocks",
        once(),
        |_: serde_json::Value, _: Context<()>| async {
            std::thread::sleep(Duration::from_millis(1500));
            Ok::<_, Failure>(())
        },
    );
    // This test's own runtime will be blocked, too: look from a thread outside.
    let store = fresh.store.clone();
    let watch = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let begun = std::time::Instant::now();
            let mut seen = 0;
            while begun.elapsed() < Duration::from_millis(3000) {
                for row in store.instances(Some("test")).await.unwrap() {
                    seen += 1;
                    assert!(row.is_alive(), "silent for {:?}", row.heartbeat_age);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            seen
        })
    });
    let engine = start(engine);
    for id in ids {
        fresh.until_status(id, TaskStatus::Stopped).await;
    }
    let seen = tokio::task::spawn_blocking(move || watch.join().unwrap()).await.unwrap();
    assert!(seen > 0);
    engine.stop().await;
}
