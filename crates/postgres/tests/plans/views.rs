//! The views, as an application reads them.

use tokio_postgres::Client;

use crate::{pages, tables};

/// Fills the tables with ended tasks: one of a thousand failed, the others succeeded.
const ENDED: &str = "
    INSERT INTO task_engine.created_tasks
      (priority, scheduled_at, created_at, task_class, queue, task_parameters, context)
    SELECT 0, now(), now(), 'c', 'default', '{}', '{}' FROM generate_series(1, 50000);
    INSERT INTO task_engine.ended_executions
      (task_id, attempt, retry_number, claim_id, started_at, stopped_at, ends_task, result, error)
    SELECT n, 1, 0, 1, now(), now(),
      CASE WHEN n % 1000 = 0 THEN 'failed' ELSE 'stopped' END::task_engine.task_status,
      CASE WHEN n % 1000 > 0 THEN to_jsonb(n) END,
      CASE WHEN n % 1000 = 0 THEN '{\"exception\": \"E\", \"message\": \"m\"}'::jsonb END
    FROM generate_series(1, 50000) AS n;
    ANALYZE";

/// A program that reads by SQL has the planner's own settings.
async fn reader() -> Client {
    let client = tables().await;
    client.batch_execute("RESET ALL").await.unwrap();
    client.batch_execute(ENDED).await.unwrap();
    client
}

async fn touched(client: &Client, statement: &str) -> u64 {
    let name = format!("statement_{}", number_of(statement));
    client.batch_execute(&format!("PREPARE {name}(int) AS {statement}")).await.unwrap();
    pages(client, &name, "0").await
}

fn number_of(statement: &str) -> usize {
    statement.bytes().fold(7, |sum, byte| (sum * 31 + usize::from(byte)) % 1_000_003)
}

#[tokio::test]
async fn view_is_read_by_id_and_page() {
    let client = reader().await;
    for statement in [
        "SELECT * FROM task_engine.tasks WHERE id = 49000",
        "SELECT * FROM task_engine.tasks ORDER BY id DESC LIMIT 20",
        "SELECT * FROM task_engine.tasks WHERE id < 30000 ORDER BY id DESC LIMIT 20",
        "SELECT * FROM task_engine.task_executions WHERE task_id = 49000 ORDER BY id",
    ] {
        let pages = touched(&client, statement).await;
        assert!(pages < 1000, "{pages} pages: {statement}");
    }
}

#[tokio::test]
async fn tasks_with_status_reads_no_history() {
    let client = reader().await;
    for (status, found) in [("failed", 20), ("stopped", 20), ("waiting", 0), ("cancelled", 0)] {
        let statement = format!("SELECT id FROM task_engine.tasks_with_status('{status}', 20)");
        // More than five times, so that the function has its generic plan.
        for _ in 0..7 {
            let rows = client.query(&statement, &[]).await.unwrap();
            assert_eq!(rows.len(), found, "{status}");
        }
        let pages = touched(&client, &statement).await;
        assert!(pages < 1500, "{pages} pages: {statement}");
    }
}

#[tokio::test]
async fn tasks_with_status_agrees_with_the_view() {
    let client = reader().await;
    // An operator sent three failed ones back to wait; one failed again.
    client
        .batch_execute(
            "INSERT INTO task_engine.waiting_tasks
               SELECT id, now(), 0, 2, 0, 'default', 'c' FROM task_engine.created_tasks
               WHERE id IN (50000, 48000);
             INSERT INTO task_engine.ended_executions
               (task_id, attempt, retry_number, stopped_at, ends_task, error)
             VALUES (46000, 2, 0, now(), 'failed', '{}')",
        )
        .await
        .unwrap();
    for status in ["waiting", "running", "stopped", "failed", "cancelled"] {
        let ids = async |sql: String| -> Vec<i64> {
            let rows = client.query(&sql, &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        };
        let page = ids(format!(
            "SELECT id FROM task_engine.tasks_with_status('{status}', 10, before_id => 49999)"
        ));
        let expected = ids(format!(
            "SELECT id FROM task_engine.tasks WHERE status = '{status}' AND id < 49999
             ORDER BY id DESC LIMIT 10"
        ));
        assert_eq!(page.await, expected.await, "{status}");
    }
}
