//! Retention removes a task from every table.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::File;
use rusqlite::Connection;
use task_engine_conformance::everything::fill;
use task_engine_conformance::fixture::Fixture;
use task_engine_core::task::TaskStatus;

/// Every task with a step, a signal, a child, a retried end and a suspension.
const DURABLE_ROWS: &str = "
    INSERT OR IGNORE INTO task_engine_steps
        SELECT id, 'pay', 1, 1, 'step', 'null', NULL, 0, 0 FROM task_engine_created_tasks;
    INSERT OR IGNORE INTO task_engine_signals SELECT id, 'paid', 'null', 0, 0 FROM task_engine_created_tasks;
    INSERT OR IGNORE INTO task_engine_task_dependencies SELECT id, 0, NULL FROM task_engine_created_tasks;
    INSERT OR IGNORE INTO task_engine_reopened_tasks SELECT id, 99 FROM task_engine_created_tasks;
    INSERT OR IGNORE INTO task_engine_suspended_tasks (task_id, attempt, signals)
        SELECT id, 1, '[]' FROM task_engine_created_tasks";

#[tokio::test]
async fn removed_task_leaves_no_rows() {
    let file = File::with_tables().await;
    let fixture = Fixture { store: Arc::new(file.open()) };
    fill(fixture.store.clone()).await;
    let by_hand = file.connect();
    by_hand.execute_batch(DURABLE_ROWS).unwrap();
    let before = rows_about_tasks(&by_hand);
    assert!(before.len() > 8 && before.iter().all(|(_, rows)| *rows > 0), "{before:?}");

    for life in fixture.instances(None).await {
        fixture.recover(life.id).await;
    }
    let open: Vec<_> = fixture.list(None).await.iter().map(|task| task.id).collect();
    fixture.store.cancel(&open).await.unwrap();
    // Children stay until their parent is gone.
    for status in [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled].repeat(2) {
        fixture.store.prune(status, Duration::ZERO, 1000).await.unwrap();
    }
    let after = rows_about_tasks(&by_hand);
    assert!(after.iter().all(|(_, rows)| *rows == 0), "{after:?}");
}

/// The number of rows of each table that refers to tasks. The events of a schedule belong
/// to the schedule, which keeps the last hundred.
fn rows_about_tasks(db: &Connection) -> Vec<(String, i64)> {
    let tables = "SELECT name FROM sqlite_schema AS tables
        WHERE type = 'table' AND name LIKE 'task_engine_%'
          AND name <> 'task_engine_schedule_events' AND (
            name IN ('task_engine_created_tasks', 'task_engine_claims')
            OR EXISTS (SELECT 1 FROM pragma_table_info(tables.name) AS it WHERE it.name = 'task_id'))";
    let mut statement = db.prepare(tables).unwrap();
    let names = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let count = |name: &str| {
        db.query_row(&format!("SELECT count(*) FROM {name}"), [], |row| row.get(0)).unwrap()
    };
    names.map(|name| name.unwrap()).map(|name| (name.clone(), count(&name))).collect()
}
