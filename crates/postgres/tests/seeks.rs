//! A search by time reads one step of a long history.

use task_engine_conformance::seeking::{TASKS, searches_by_time_read_one_step};
use task_engine_postgres::PgStore;
use task_engine_test_harness::{TestServer, connect};

#[tokio::test]
async fn searches_by_time_seek() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let client = connect(&url).await;
    let fill = format!(
        "CREATE TEMP TABLE t AS
           SELECT now() - interval '{TASKS} seconds' + n * interval '1 second' AS at
           FROM generate_series(0, {TASKS} - 1) AS n;
         INSERT INTO task_engine.created_tasks
           (task_class, task_parameters, context, queue, priority, scheduled_at, created_at)
           SELECT 'work', '{{}}', '{{}}', 'default', 0, at, at FROM t ORDER BY at;
         INSERT INTO task_engine.ended_executions
           (task_id, attempt, retry_number, claim_id, started_at, stopped_at, ends_task)
           SELECT id, 1, 0, 1, created_at + interval '1 second', created_at + interval '2 seconds', 'stopped'
           FROM task_engine.created_tasks;
         ANALYZE"
    );
    client.batch_execute(&fill).await.unwrap();
    let first = client.query_one("SELECT min(created_at) FROM task_engine.created_tasks", &[]);
    searches_by_time_read_one_step(&store, first.await.unwrap().get(0)).await;
}
