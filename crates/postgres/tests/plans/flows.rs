//! Statements of tasks that depend on others.

use task_engine_store::sql::statement;
use tokio_postgres::Client;

use crate::{assert_by_keys, pages, plan, tables};

const SQL: &str = include_str!("../../sql/engine/flows.sql");
const OPERATORS: &str = include_str!("../../sql/operators/tasks.sql");

/// Statements that read tables themselves, with arguments about one task or flow.
const STATEMENTS: [(&str, &str); 11] = [
    ("resolve", "'{2}', '{}'"),
    ("member_fence", "1, 1, 1"),
    ("lock_dependents", "2"),
    ("dependents_to_extend", "2"),
    ("add_member_dependencies", "2, '{1}', '{2}'"),
    ("dependencies", "'{1}', 10"),
    ("dependents", "2, 10"),
    ("blocked_tasks", "100"),
    ("flows", "'f1', 100, 1, 10"),
    ("lock_flows_to_prune", "1, 1, 1"),
    ("prune_flows", "'{1}'"),
];

/// Those of functions, by what they touch: a success, a failure, and a given dependent; the
/// creation of tasks that depend on existing ones; and a retry.
const CALLS: [(&str, &str, &str); 6] = [
    ("resolve", "resolve_success", "'{4}', '{}'"),
    ("resolve", "resolve_failure", "'{2}', '{}'"),
    ("resolve", "resolve_given", "'{}', '{1}'"),
    (
        "create_flow",
        "create_flow",
        "NULL, 'f1', '{a,a}', '{\"{}\",\"{}\"}', '{NULL,NULL}', '{NULL,NULL}', '{0,0}', '{q,q}', \
         '{\"{}\",\"{}\"}', '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}', '{1,2}', '{NULL,1}', '{2,NULL}', \
         '{end,success}'",
    ),
    ("restore_dependents", "restore_dependents", "'{2}'"),
    ("needed", "needed", "'{2}', '{}'"),
];

/// The tables that grow with the number of tasks.
const TABLES: [&str; 7] = [
    "task_dependencies",
    "suspended_tasks",
    "reopened_tasks",
    "flows",
    "created_tasks",
    "ended_executions",
    "waiting_tasks",
];

fn text_of(name: &str) -> &'static str {
    match name {
        "restore_dependents" => statement(OPERATORS, "restore_dependents"),
        "needed" => statement(OPERATORS, "needed"),
        name => statement_of(name),
    }
}

fn statement_of(name: &str) -> &'static str {
    statement(SQL, Box::leak(name.to_owned().into_boxed_str()))
}

#[tokio::test]
async fn flow_statements_read_by_keys() {
    let client = tables().await;
    for (name, arguments) in STATEMENTS {
        let plan = plan(&client, name, statement_of(name), arguments).await;
        assert_by_keys(&plan, &TABLES);
        for table in TABLES {
            assert!(!plan.contains(&format!("Seq Scan on {table}")), "{name}:\n{plan}");
        }
    }
    let needed = plan(&client, "needed", text_of("needed"), "'{2}', '{}'").await;
    assert_by_keys(&needed, &TABLES);
}

#[tokio::test]
async fn watched_tasks_are_found_by_index() {
    let client = tables().await;
    let plan = plan(&client, "resolve", statement_of("resolve"), "'{2}', '{}'").await;
    assert!(plan.contains("suspended_tasks_by_watched"), "{plan}");
    let durable = include_str!("../../sql/engine/durable.sql");
    let late = crate::plan(&client, "late", statement(durable, "late_tasks"), "100").await;
    assert!(late.contains("suspended_tasks_late"), "{late}");
}

/// Many other flows add at most the depth of the indexes to what a call reads.
#[tokio::test]
async fn other_flows_are_not_read() {
    let client = tables().await;
    fill(&client, 1, 10).await;
    for (statement, name, _) in CALLS {
        let prepare = format!("PREPARE {name} AS {}", text_of(statement));
        client.batch_execute(&prepare).await.unwrap();
    }
    let before = least(&client).await;
    fill(&client, 11, 30_000).await;
    let after = least(&client).await;
    for (n, (_, name, _)) in CALLS.iter().enumerate() {
        assert!(before[n] > 0 || *name == "needed", "{name}");
        assert!(after[n] <= before[n] + 100, "{name}: {} pages, then {}", before[n], after[n]);
    }
}

/// What a task with many dependencies reads grows with their number, and no faster, however
/// many looks there are.
#[tokio::test]
async fn dependencies_are_read_once() {
    const MANY: u64 = 2000;
    let client = tables().await;
    let create = format!(
        "INSERT INTO task_engine.created_tasks (task_class, task_parameters, context, queue,
           priority, created_at, scheduled_at)
         SELECT 'a', '{{}}', '{{}}', 'q', 0, now(), now() FROM generate_series(1, {MANY} + 1);
         INSERT INTO task_engine.waiting_tasks
           (task_id, due_at, priority, attempt, retry_number, queue, task_class)
         VALUES ({MANY} + 1, now(), 0, 1, 0, chr(30) || 'q', 'a');
         INSERT INTO task_engine.task_dependencies (task_id, depends_on, condition)
         SELECT {MANY} + 1, n, 'success' FROM generate_series(1, {MANY}) AS n;
         INSERT INTO task_engine.suspended_tasks (task_id, attempt, signals, blocked_on)
         VALUES ({MANY} + 1, 0, '{{}}', 1);
         PREPARE resolve AS {}",
        statement_of("resolve")
    );
    client.batch_execute(&create).await.unwrap();
    let mut read = 0;
    for end in 1..=MANY {
        let end_one = format!(
            "INSERT INTO task_engine.ended_executions
               (task_id, attempt, retry_number, stopped_at, ends_task)
             VALUES ({end}, 1, 0, now(), 'stopped')"
        );
        client.batch_execute(&end_one).await.unwrap();
        read += pages(&client, "resolve", &format!("'{{{end}}}', '{{}}'")).await;
    }
    assert!(read < MANY * 300, "{} pages for each end", read / MANY);
    let started = "SELECT FROM task_engine.waiting_tasks WHERE queue = 'q'";
    assert_eq!(client.query(started, &[]).await.unwrap().len(), 1);
}

/// The first call of a session, and of one whose tables were vacuumed meanwhile, also reads the
/// catalog.
async fn least(client: &Client) -> Vec<u64> {
    let mut least = measure(client).await;
    for _ in 0..4 {
        let pages = measure(client).await;
        least.iter_mut().zip(pages).for_each(|(least, pages)| *least = pages.min(*least));
    }
    least
}

/// Each call in a transaction of its own that is rolled back.
async fn measure(client: &Client) -> Vec<u64> {
    let mut read = Vec::new();
    for (_, name, arguments) in CALLS {
        client.batch_execute("BEGIN").await.unwrap();
        read.push(pages(client, name, arguments).await);
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    read
}

/// Flows with these numbers. Task 2n-1 is blocked by task 2n, which has failed, or succeeded if
/// n is even.
async fn fill(client: &Client, from: u32, to: u32) {
    let sql = format!(
        "INSERT INTO task_engine.created_tasks (id, task_class, task_parameters, context, queue,
           priority, created_at, scheduled_at) OVERRIDING SYSTEM VALUE
         SELECT n, 'a', '{{}}', jsonb_build_object('correlation_id', 'f' || (n + 1) / 2), 'q', 0,
           now(), now()
         FROM generate_series({from} * 2 - 1, {to} * 2) AS n;
         SELECT setval(pg_get_serial_sequence('task_engine.created_tasks', 'id')::regclass, {to} * 2);
         INSERT INTO task_engine.ended_executions (task_id, attempt, retry_number, stopped_at, ends_task)
         SELECT 2 * n, 1, 0, now(),
           CASE WHEN n % 2 = 0 THEN 'stopped' ELSE 'failed' END::task_engine.task_status
         FROM generate_series({from}, {to}) AS n;
         INSERT INTO task_engine.waiting_tasks
           (task_id, due_at, priority, attempt, retry_number, queue, task_class)
         SELECT 2 * n - 1, now(), 0, 1, 0, chr(30) || 'q', 'a' FROM generate_series({from}, {to}) AS n;
         INSERT INTO task_engine.task_dependencies (task_id, depends_on, condition)
         SELECT 2 * n - 1, 2 * n, 'success' FROM generate_series({from}, {to}) AS n;
         INSERT INTO task_engine.suspended_tasks (task_id, attempt, signals, blocked_on)
         SELECT 2 * n - 1, 0, '{{}}', 2 * n FROM generate_series({from}, {to}) AS n;
         INSERT INTO task_engine.flows (correlation_id, created_at)
         SELECT 'f' || n, now() FROM generate_series({from}, {to}) AS n;"
    );
    client.batch_execute(&sql).await.unwrap();
}
