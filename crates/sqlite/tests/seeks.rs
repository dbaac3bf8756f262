//! A search by time reads one step of a long history.

mod common;

use common::File;
use jiff::Timestamp;
use task_engine_conformance::seeking::{TASKS, searches_by_time_read_one_step};

#[tokio::test]
async fn searches_by_time_seek() {
    let file = File::with_tables().await;
    let first = Timestamp::now().as_microsecond() - TASKS * 1_000_000;
    let fill = format!(
        "BEGIN;
         WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {TASKS} - 1)
         INSERT INTO task_engine_created_tasks
             (task_class, task_parameters, context, queue, priority, scheduled_at, created_at)
         SELECT 'work', '{{}}', '{{}}', 'default', 0, {first} + n * 1000000, {first} + n * 1000000 FROM n;
         INSERT INTO task_engine_ended_executions
             (task_id, attempt, retry_number, instance_id, started_at, stopped_at, ends_task)
         SELECT id, 1, 0, 1, created_at + 1000000, created_at + 2000000, 'stopped'
         FROM task_engine_created_tasks;
         COMMIT"
    );
    file.connect().execute_batch(&fill).unwrap();
    let first = Timestamp::from_microsecond(first).unwrap();
    searches_by_time_read_one_step(&file.open(), first).await;
}
