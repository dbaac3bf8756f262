//! Flows in transactions of the application, and wide flows.

mod common;

use common::{Engine, File, task};
use task_engine_core::dependency::Flow;
use task_engine_core::task::{TaskId, TaskListQuery};
use task_engine_sqlite::create_flow_in;
use task_engine_store::contract::RetryReport;
use task_engine_store::error::StoreError;

#[tokio::test]
async fn flow_commits_with_own_rows() {
    let file = File::with_tables().await;
    let store = file.open();
    let mut connection = file.connect();
    connection.execute_batch("CREATE TABLE orders (id INTEGER)").unwrap();
    let flow = Flow::new().add("a", task("work")).add("b", task("work")).after("a");
    let flow = flow.resolve().unwrap();
    let known = store.create(&[task("work")]).await.unwrap();

    let transaction = connection.transaction().unwrap();
    create_flow_in(&transaction, &flow).unwrap();
    transaction.rollback().unwrap();
    assert_eq!(store.verify().await.unwrap(), []);

    // A refused flow leaves the rest of the transaction as it was.
    let transaction = connection.transaction().unwrap();
    transaction.execute("INSERT INTO orders VALUES (1)", []).unwrap();
    let missing = Flow::new().add("x", task("work")).add("y", task("work"));
    let missing = missing.after([known[0], TaskId(99)]).resolve().unwrap();
    let refused = create_flow_in(&transaction, &missing).unwrap_err();
    assert!(matches!(refused, StoreError::Refused(_)), "{refused}");
    assert_eq!(refused.to_string(), "task 99 does not exist, or was removed");
    let created = create_flow_in(&transaction, &flow).unwrap();
    transaction.commit().unwrap();

    let rows = store.tasks(&TaskListQuery { limit: 10, ..TaskListQuery::default() }).await.unwrap();
    let found: Vec<_> = rows.iter().rev().map(|row| (row.id, row.is_blocked)).collect();
    assert_eq!(found, [(known[0], false), (created.ids[0], false), (created.ids[1], true)]);
    let orders: i64 =
        connection.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!(orders, 1);
    assert_eq!(store.verify().await.unwrap(), []);
    let context = store.task(known[0]).await.unwrap().unwrap().context;
    assert_eq!(context.as_str(), "{}", "it is not awaited");
}

/// A failure far behind what a task waits for is found by a heartbeat, and its retry restores
/// thousands of tasks and the one that needs all of them.
#[tokio::test]
async fn wide_flow_is_repaired() {
    const WIDTH: usize = 3000;
    let file = File::with_tables().await;
    let store = file.open();
    let mut flow = Flow::new().add("first", task("other")).add("root", task("work"));
    let names: Vec<String> = (0..WIDTH).map(|n| format!("m{n}")).collect();
    for name in &names {
        flow = flow.add(name, task("work")).after("root");
    }
    let flow = flow.add("last", task("work")).after("first").after(names).resolve().unwrap();
    let root = flow.tasks.iter().position(|task| task.name == "root").unwrap();
    let ids = store.create_flow(&flow).await.unwrap().ids;
    let (root, last) = (ids[root], *ids.last().unwrap());
    store.cancel(&[root]).await.unwrap();
    assert_eq!(store.task(last).await.unwrap().unwrap().row.status.as_str(), "cancelled");
    assert_eq!(store.retry(&[root]).await.unwrap(), [RetryReport::Waiting]);
    assert!(store.task(last).await.unwrap().unwrap().row.is_blocked);

    // The end of one in the middle is recorded, and the look at its dependents is missed.
    let mut engine = Engine::register(&store, "a").await;
    let (claim_id, claim) = engine.claim(1).await;
    store.record(&[engine.success(claim_id, &claim.tasks[0])], &[]).await.unwrap();
    assert_eq!(store.resume_parents(&[root]).await.unwrap(), WIDTH as u64);
    let middle = ids[WIDTH / 2].0 + 1000;
    file.connect()
        .execute_batch(&format!(
            "DELETE FROM task_engine_waiting_tasks WHERE task_id = {middle};
             INSERT INTO task_engine_ended_executions
                (task_id, attempt, retry_number, stopped_at, error, ends_task)
             VALUES ({middle}, 2, 0, 0, '{{}}', 'failed');"
        ))
        .unwrap();
    for _ in 0..1000 {
        store.resume_missed(TaskId(0), 100).await.unwrap();
        if !store.task(last).await.unwrap().unwrap().row.is_blocked {
            break;
        }
    }
    let row = store.task(last).await.unwrap().unwrap().row;
    assert_eq!(row.status.as_str(), "cancelled");
    assert!(row.error.unwrap().message.contains("failed"));
}
