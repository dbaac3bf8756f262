//! Retention removes a task from every table.

use std::sync::Arc;
use std::time::Duration;

use task_engine_conformance::everything::fill;
use task_engine_conformance::fixture::Fixture;
use task_engine_core::task::TaskStatus;
use task_engine_postgres::PgStore;
use task_engine_test_harness::{TestServer, connect};
use tokio_postgres::Client;

#[tokio::test]
async fn removed_task_leaves_no_rows() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let client = connect(&url).await;
    let fixture = Fixture { store: Arc::new(store) };
    fill(fixture.store.clone()).await;
    // As if others depended on each, and each had been retried.
    let reopen =
        "INSERT INTO task_engine.reopened_tasks SELECT id, 99 FROM task_engine.created_tasks";
    client.batch_execute(reopen).await.unwrap();
    let before = rows_about_tasks(&client).await;
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
    let after = rows_about_tasks(&client).await;
    assert!(after.iter().all(|(_, rows)| *rows == 0), "{after:?}");
}

/// The number of rows of each table that refers to tasks. The events of a schedule belong
/// to the schedule, which keeps the last hundred. The keys of limits are removed when they have
/// not been in use for an hour.
async fn rows_about_tasks(client: &Client) -> Vec<(String, i64)> {
    let tables = "SELECT table_name::text FROM information_schema.columns
        JOIN information_schema.tables USING (table_schema, table_name)
        WHERE table_schema = 'task_engine' AND table_type = 'BASE TABLE'
          AND table_name NOT IN ('schedule_events', 'limit_keys')
          AND (column_name IN ('task_id', 'task_ids') OR table_name = 'created_tasks')
        GROUP BY 1";
    let mut rows = Vec::new();
    for table in client.query(tables, &[]).await.unwrap() {
        let table: String = table.get(0);
        let count = format!("SELECT count(*) FROM task_engine.{table}");
        rows.push((table, client.query_one(&count, &[]).await.unwrap().get(0)));
    }
    rows
}
