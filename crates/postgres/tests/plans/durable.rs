//! Statements of durable tasks.

use task_engine_store::sql::statement;
use tokio_postgres::Client;

use crate::{assert_by_keys, pages, plan, tables};

const SQL: &str = include_str!("../../sql/engine/durable.sql");

/// The statements of engines, with arguments about one task.
const STATEMENTS: [(&str, &str); 14] = [
    ("steps", "1"),
    ("record_steps", "'{1}','{1}','{1}','{a}','{1}','{step}','{1}','{0}','{NULL}','{NULL}'"),
    ("existing_steps", "'{1}','{a}'"),
    ("call_fence", "1, 1, 1, 'a'"),
    ("record_call", "1, 'mail', 1, 1, '{2}'"),
    ("add_dependencies", "1, '{2}'"),
    ("lock_tasks_to_suspend", "'{1}'"),
    (
        "suspend",
        "'{1}','{1}','{0}','{1}','{1}','{0}','{0}','{0}','{0}','{NULL}','{\"[\\\"a\\\"]\"}','{1}','{NULL}','{0}'",
    ),
    ("time_out", "1, 1, 1, 'a'"),
    ("signal_of", "1, 'a'"),
    ("watched_by", "'{1}'"),
    ("lock_suspended", "'{1}'"),
    ("resume", "'{1,3}'"),
    ("child_outcomes", "'{2,4}','{NULL,NULL}'"),
];

/// All tables that grow with the number of tasks.
const TABLES: [&str; 8] = [
    "steps",
    "signals",
    "task_dependencies",
    "suspended_tasks",
    "created_tasks",
    "ended_executions",
    "waiting_tasks",
    "claims",
];

/// The plan as text names a table with its alias.
fn assert_reads_by_keys(name: &str, plan: &str) {
    assert_by_keys(plan, &TABLES);
    for table in TABLES {
        assert!(!plan.contains(&format!("Seq Scan on {table}")), "{name}:\n{plan}");
    }
}

#[tokio::test]
async fn durable_statements_read_by_keys() {
    let client = tables().await;
    for (name, arguments) in STATEMENTS {
        let plan = plan(&client, name, statement(SQL, name), arguments).await;
        assert_reads_by_keys(name, &plan);
    }
    let plan = plan(&client, "page", statement(SQL, "suspended_page"), "0, 100").await;
    assert_reads_by_keys("suspended_page", &plan);
    assert!(plan.contains("suspended_tasks_pkey"), "{plan}");
    assert!(!plan.contains("Sort"), "the index has the order:\n{plan}");
}

/// Many other durable tasks add at most the depth of the indexes to what a statement reads.
#[tokio::test]
async fn other_durable_tasks_are_not_read() {
    let client = tables().await;
    let page = ("suspended_page", "0, 1");
    let all: Vec<_> = STATEMENTS.into_iter().chain([page]).collect();
    fill(&client, 1, 10).await;
    for (name, _) in &all {
        let prepare = format!("PREPARE {name} AS {}", statement(SQL, name));
        client.batch_execute(&prepare).await.unwrap();
    }
    let before = measure(&client, &all).await;
    fill(&client, 11, 30_000).await;
    let after = measure(&client, &all).await;
    for (n, (name, _)) in all.iter().enumerate() {
        assert!(after[n] <= before[n] + 40, "{name}: {} pages, then {}", before[n], after[n]);
    }
}

/// Each statement in a transaction of its own that is rolled back.
async fn measure(client: &Client, statements: &[(&str, &str)]) -> Vec<u64> {
    let mut read = Vec::new();
    for (name, arguments) in statements {
        client.batch_execute("BEGIN").await.unwrap();
        if *name == "suspend" {
            // Its task runs.
            let remove = "DELETE FROM task_engine.waiting_tasks WHERE task_id = 1";
            client.batch_execute(remove).await.unwrap();
        }
        read.push(pages(client, name, arguments).await);
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    read
}

/// Suspended parents with these numbers, each with a step, a signal and a child. Task 2n-1
/// waits for task 2n, which has ended if n is even.
async fn fill(client: &Client, from: u32, to: u32) {
    let sql = format!(
        "INSERT INTO task_engine.created_tasks (id, task_class, task_parameters, context, queue,
           priority, created_at, scheduled_at) OVERRIDING SYSTEM VALUE
         SELECT n, 'a', '{{}}', '{{}}', 'q', 0, now(), now()
         FROM generate_series({from} * 2 - 1, {to} * 2) AS n;
         INSERT INTO task_engine.ended_executions (task_id, attempt, retry_number, stopped_at, ends_task)
         SELECT 2 * n, 1, 0, now(), 'stopped' FROM generate_series({from}, {to}) AS n WHERE n % 2 = 0;
         INSERT INTO task_engine.waiting_tasks
           (task_id, due_at, priority, attempt, retry_number, queue, task_class)
         SELECT 2 * n - 1, now() + interval '1 hour', 0, 2, 0, 'q', 'a'
         FROM generate_series({from}, {to}) AS n;
         INSERT INTO task_engine.steps
           (task_id, name, number, attempt, kind, result, started_at, recorded_at)
         SELECT 2 * n - 1, 'mail#2', 1, 1, 'call', to_jsonb(ARRAY[2 * n]), now(), now()
         FROM generate_series({from}, {to}) AS n;
         INSERT INTO task_engine.signals (task_id, name, payload, sent_at)
         SELECT 2 * n - 1, 'other', '1', now() FROM generate_series({from}, {to}) AS n;
         INSERT INTO task_engine.task_dependencies (task_id, depends_on)
         SELECT 2 * n - 1, 2 * n FROM generate_series({from}, {to}) AS n;
         INSERT INTO task_engine.suspended_tasks (task_id, attempt, signals, watching)
         SELECT 2 * n - 1, 1, '{{a}}', 2 * n FROM generate_series({from}, {to}) AS n;"
    );
    client.batch_execute(&sql).await.unwrap();
}
