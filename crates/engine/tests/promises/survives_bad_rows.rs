//! A row that cannot be read fails its own task only.

use std::time::Duration;

use serde_json::json;
use task_engine::TaskStatus;
use task_engine::samples::handle_samples;
use task_engine::sqlite::rusqlite;

use crate::store::{Fresh, on_every_store, start};

on_every_store! {
    unreadable_tasks_fail_alone
    unreadable_tasks_do_not_stop_recovery
}

/// Writes parameters that cannot be read into some tasks, past every check.
async fn damage(fresh: &Fresh, ids: &[i64]) {
    let ids = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if let Some(path) = fresh.path() {
        let by_hand = rusqlite::Connection::open(path).unwrap();
        let harm = format!(
            "PRAGMA ignore_check_constraints = ON;
             UPDATE task_engine_created_tasks SET task_parameters = 'no JSON' WHERE id IN ({ids})"
        );
        by_hand.execute_batch(&harm).unwrap();
        return;
    }
    let client = fresh.client().await;
    let harm = format!(
        "ALTER TABLE task_engine.created_tasks
           DROP CONSTRAINT \"task parameters are within the limits of JSON\";
         UPDATE task_engine.created_tasks SET task_parameters = (
           SELECT jsonb_build_object('n', jsonb_agg('1e131071'::jsonb)) FROM generate_series(1, 60000))
         WHERE id IN ({ids})"
    );
    client.batch_execute(&harm).await.unwrap();
}

async fn unreadable_tasks_fail_alone(fresh: Fresh) {
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(fresh.create("WaitingTask", json!({"waiting_time": 0})).await);
    }
    damage(&fresh, &[ids[0].0, ids[7].0]).await;
    let engine = start(handle_samples(fresh.engine().workers(4)));
    for (place, id) in ids.iter().enumerate() {
        if ![0, 7].contains(&place) {
            fresh.until_status(*id, TaskStatus::Stopped).await;
            continue;
        }
        let task = fresh.until_status(*id, TaskStatus::Failed).await;
        let error = task.row.error.unwrap();
        assert_eq!(error.exception, "UnreadableTask");
        assert!(
            error.message.contains(&format!("task {id} cannot be read: its parameters")),
            "{error}"
        );
        assert_eq!(task.executions.len(), 1, "not retried: {:?}", task.executions);
    }
    // The engine goes on.
    let next = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    fresh.until_status(next, TaskStatus::Stopped).await;
    engine.stop().await;
}

async fn unreadable_tasks_do_not_stop_recovery(fresh: Fresh) {
    let ids = [
        fresh.create("WaitingTask", json!({"waiting_time": 0})).await,
        fresh.create("WaitingTask", json!({"waiting_time": 0})).await,
    ];
    let other = task_engine_conformance::fixture::Fixture { store: fresh.store.clone() };
    let new = task_engine_conformance::fixture::new_instance("dead");
    let classes = [("WaitingTask", task_engine::RetryRule::every(Duration::from_millis(1), 5))];
    let mut dead =
        other.register(task_engine_conformance::fixture::with_classes(new, &classes)).await;
    assert_eq!(dead.claim(2).await.len(), 2);
    damage(&fresh, &[ids[0].0]).await;
    assert!(other.declare_lost(dead.id).await);
    assert_eq!(other.recover(dead.id).await.len(), 2);
    let engine = start(handle_samples(fresh.engine().workers(2)));
    fresh.until_status(ids[1], TaskStatus::Stopped).await;
    let task = fresh.until_status(ids[0], TaskStatus::Failed).await;
    assert_eq!(task.row.error.unwrap().exception, "UnreadableTask");
    engine.stop().await;
}
