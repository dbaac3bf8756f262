//! Cancelling a running task.

use std::time::Duration;

use serde_json::json;
use task_engine::model::TaskError;
use task_engine::model::store::CancelReport;
use task_engine::samples::handle_samples;
use task_engine::{ClassRules, Failure, Run, TaskStatus};

use crate::store::{Fresh, nothing, on_every_store, start};

on_every_store! {
    a_running_task_is_cancelled
    a_task_that_finishes_all_the_same_has_succeeded
}

async fn a_running_task_is_cancelled(fresh: Fresh) {
    let id = fresh.create("WaitingTask", json!({"waiting_time": 60})).await;
    let engine = start(handle_samples(fresh.engine()));
    fresh.until_status(id, TaskStatus::Running).await;
    assert_eq!(fresh.store.cancel(&[id]).await.unwrap(), [CancelReport::Requested]);
    let task = fresh.until_status(id, TaskStatus::Cancelled).await;
    assert_eq!(task.row.error.unwrap().exception, TaskError::CANCELLED);
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn a_task_that_finishes_all_the_same_has_succeeded(fresh: Fresh) {
    let id = fresh.create("stubborn", nothing()).await;
    let engine = fresh.engine().handle_class(
        "stubborn",
        ClassRules::default(),
        |_: serde_json::Value, run: Run<()>| async move {
            run.cancelled().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok::<_, Failure>("done")
        },
    );
    let engine = start(engine);
    fresh.until_status(id, TaskStatus::Running).await;
    fresh.store.cancel(&[id]).await.unwrap();
    fresh.until_status(id, TaskStatus::Stopped).await;
    engine.stop().await;
}
