//! What somebody writes into the tables by hand harms that row, and nothing else.

use std::time::Duration;

use task_engine_conformance::TestServer;
use task_engine_model::{Json, NewTask, Store, Unique};
use task_engine_postgres::PgStore;
use tokio_postgres::{Client, NoTls};

async fn store_and_client() -> (PgStore, Client) {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    (store, client)
}

/// One such row would stop the heartbeats of all engines, or all schedules.
#[tokio::test]
async fn times_that_no_clock_can_tell_are_refused() {
    let (store, client) = store_and_client().await;
    let task = NewTask::new("work", Json::empty_object()).unwrap();
    store.create(&[task]).await.unwrap();
    client
        .batch_execute(
            "INSERT INTO task_engine.schedules
               (name, anchor, next_at, created_at, updated_at, overlap, definition)
             VALUES ('a', now(), now(), now(), now(), 'allow', '{}')",
        )
        .await
        .unwrap();
    for time in ["infinity", "-infinity", "20000-01-01"] {
        let schedule = |column| format!("UPDATE task_engine.schedules SET {column} = '{time}'");
        for harm in [
            schedule("next_at"),
            schedule("anchor"),
            schedule("last_slot"),
            schedule("next_at = NULL, paused_at"),
            schedule("created_at"),
            schedule("updated_at"),
            format!(
                "INSERT INTO task_engine.fired_slots SELECT id, '{time}', 1, now() FROM task_engine.schedules"
            ),
            format!(
                "INSERT INTO task_engine.fired_slots SELECT id, now(), 1, '{time}' FROM task_engine.schedules"
            ),
            format!(
                "INSERT INTO task_engine.schedule_events
                 (schedule_id, kind, first_slot, last_slot, slots, recorded_at)
                 SELECT id, 'skipped_missed', now(), '{time}', 1, now() FROM task_engine.schedules"
            ),
            format!(
                "INSERT INTO task_engine.schedule_events (schedule_id, kind, slots, task_id, recorded_at)
                 SELECT id, 'manual', 0, 1, '{time}' FROM task_engine.schedules"
            ),
            format!("INSERT INTO task_engine.paused_queues VALUES ('q', NULL, '{time}')"),
            format!(
                "INSERT INTO task_engine.execution_progress VALUES (1, 1, 1, 0, 1, '', '{time}')"
            ),
            format!(
                "INSERT INTO task_engine.execution_logs VALUES (1, 1, 1, '{time}', 'info', '')"
            ),
            format!("INSERT INTO task_engine.cancellations VALUES (1, 1, '{time}')"),
            format!("INSERT INTO task_engine.cancellations VALUES (1, 1, now(), '{time}')"),
            format!(
                "INSERT INTO task_engine.audit (at, actor, action, target, detail, outcome)
                 VALUES ('{time}', 'a', 'a', 't', '{{}}', 'done')"
            ),
            format!(
                "INSERT INTO task_engine.tokens (name, role, hash, created_at, expires_at)
                 VALUES ('a', 'admin', sha256('a'), now(), '{time}')"
            ),
            format!(
                "INSERT INTO task_engine.figures
                 SELECT '{time}', 'a', 1, 0, 1, 0, 0, 0, 0, 0, h, h FROM (SELECT array_fill(0, '{{28}}')) AS f (h)"
            ),
        ] {
            let refused = client.batch_execute(&harm).await.expect_err(&harm);
            let code = refused.code().map(tokio_postgres::error::SqlState::code);
            assert_eq!(code, Some("23514"), "{harm}: {refused:?}");
        }
    }
}

/// Whoever creates with a key looks again until all that waits is locked.
#[tokio::test]
async fn damaged_keys_do_not_make_creation_run_for_ever() {
    let (store, client) = store_and_client().await;
    let unique = |key: &str| {
        let task = NewTask::new("work", Json::empty_object()).unwrap();
        task.unique(Unique::by(key)).unwrap()
    };
    store.create(&[unique("one")]).await.unwrap();
    for harm in [
        // Two keys, one task.
        "INSERT INTO task_engine.unique_tasks SELECT task_class, 'two', task_id FROM task_engine.unique_tasks",
        // A task that waits and was never created.
        "DELETE FROM task_engine.created_tasks",
    ] {
        client.batch_execute(harm).await.unwrap();
        let tasks = [unique("one"), unique("two")];
        let created = tokio::time::timeout(Duration::from_secs(20), store.create(&tasks)).await;
        assert_eq!(created.expect(harm).unwrap().len(), 2);
    }
}
