//! Creation is atomic on every path.

mod common;

use common::{File, task};
use task_engine_core::task::{TaskId, TaskListQuery, TaskStatus};
use task_engine_sqlite::create_in;
use task_engine_store::error::StoreError;

async fn waiting(file: &File) -> usize {
    let filter =
        TaskListQuery { status: Some(TaskStatus::Waiting), limit: 100, ..TaskListQuery::default() };
    file.open().tasks(&filter).await.unwrap().len()
}

#[tokio::test]
async fn task_follows_application_transaction() {
    let file = File::with_tables().await;
    let mut connection = file.connect();

    let transaction = connection.transaction().unwrap();
    create_in(&transaction, &[task("work"), task("work")]).unwrap();
    transaction.rollback().unwrap();
    assert_eq!(waiting(&file).await, 0);

    let transaction = connection.transaction().unwrap();
    let ids = create_in(&transaction, &[task("work"), task("work")]).unwrap();
    transaction.commit().unwrap();
    assert_eq!(waiting(&file).await, 2);
    assert!(ids[0] < ids[1]);
    assert_eq!(file.open().verify().await.unwrap(), []);
}

#[tokio::test]
async fn invalid_task_fails_its_whole_call() {
    let file = File::with_tables().await;
    let mut connection = file.connect();
    let mut bad = task("work");
    bad.class.clear();

    let transaction = connection.transaction().unwrap();
    create_in(&transaction, &[task("work")]).unwrap();
    let error = create_in(&transaction, &[task("work"), bad]).unwrap_err();
    assert!(
        matches!(&error, StoreError::InvalidData(why) if why.contains("a_task_class_has_a_name"))
    );
    transaction.commit().unwrap();
    assert_eq!(waiting(&file).await, 1);
}

#[tokio::test]
async fn creation_opens_its_own_transaction() {
    let file = File::with_tables().await;
    let connection = file.connect();
    create_in(&connection, &[task("work")]).unwrap();
    assert!(connection.is_autocommit());
    assert_eq!(waiting(&file).await, 1);
}

#[tokio::test]
async fn missing_tables_name_the_remedy() {
    let file = File::new();
    let error = create_in(&file.connect(), &[task("work")]).unwrap_err();
    assert!(
        matches!(&error, StoreError::Version(why) if why.contains("task-engine migrate")),
        "{error}"
    );
}

#[tokio::test]
async fn plain_insert_creates_task() {
    let file = File::with_tables().await;
    let connection = file.connect();
    connection
        .execute_batch(
            r#"INSERT INTO task_engine_tasks (task_class) VALUES ('work');
               INSERT INTO task_engine_tasks (task_class, task_parameters, scheduled_at, queue, priority, context)
               VALUES ('work', '{"a": 1}', '2100-01-31 12:00:00', 'mails', 7, '{"correlation_id": "x"}');
               INSERT INTO task_engine_tasks (task_class, scheduled_at) VALUES ('work', 4102444800);"#,
        )
        .unwrap();
    let store = file.open();
    let first = store.task(TaskId(1)).await.unwrap().unwrap();
    assert_eq!(first.row.status, TaskStatus::Waiting);
    assert_eq!(first.row.queue, "default");
    assert_eq!(first.parameters.as_str(), "{}");
    assert_eq!(first.row.scheduled_at, first.row.created_at);
    let second = store.task(TaskId(2)).await.unwrap().unwrap();
    assert_eq!(second.row.scheduled_at.to_string(), "2100-01-31T12:00:00Z");
    assert_eq!((second.row.queue.as_str(), second.row.priority), ("mails", 7));
    assert_eq!(second.parameters.as_str(), r#"{"a": 1}"#);
    let third = store.task(TaskId(3)).await.unwrap().unwrap();
    assert_eq!(third.row.scheduled_at.to_string(), "2100-01-01T00:00:00Z");
    assert_eq!(store.verify().await.unwrap(), []);

    let shown: (String, String, String) = connection
        .query_row(
            "SELECT status, scheduled_at, context FROM task_engine_tasks WHERE id = 2",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!(shown.0, "waiting");
    assert_eq!(shown.1, "2100-01-31T12:00:00.000Z");
    assert_eq!(shown.2, r#"{"correlation_id":"x","retry_number":0}"#);
}

#[tokio::test]
async fn views_have_results_and_ids() {
    let file = File::with_tables().await;
    let connection = file.connect();
    connection
        .execute_batch(
            r#"INSERT INTO task_engine_tasks (task_class) VALUES ('work'), ('work');
               DELETE FROM task_engine_waiting_tasks WHERE task_id = 1;
               INSERT INTO task_engine_ended_executions
                   (task_id, attempt, retry_number, started_at, stopped_at, result, error, ends_task)
               VALUES (1, 2, 1, 1, 2, '{"sent": 3}', NULL, 'stopped'),
                      (1, 1, 0, 1, 2, NULL, '{"exception": "Snoozed", "message": "m"}', NULL);"#,
        )
        .unwrap();
    let mut read = connection.prepare("SELECT result FROM task_engine_tasks ORDER BY id").unwrap();
    let results = read.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
    let results: Vec<_> = results.map(Result::unwrap).collect();
    assert_eq!(results, [Some(r#"{"sent": 3}"#.to_owned()), None]);
    let mut read = connection
        .prepare("SELECT id, attempt, status FROM task_engine_task_executions ORDER BY id")
        .unwrap();
    let rows = read.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let rows: Vec<(i64, i32, String)> = rows.map(Result::unwrap).collect();
    let expected = [(2_147_483_649, 1, "snoozed"), (2_147_483_650, 2, "success")];
    assert_eq!(rows, expected.map(|(id, attempt, status)| (id, attempt, status.to_owned())));
}

#[tokio::test]
async fn flows_have_columns() {
    let file = File::with_tables().await;
    let connection = file.connect();
    connection
        .execute_batch(
            r#"INSERT INTO task_engine_tasks (task_class, correlation_id) VALUES ('work', 'x');
               INSERT INTO task_engine_tasks (task_class, parent_id, context)
               VALUES ('work', 1, '{"correlation_id": "x"}');
               INSERT INTO task_engine_tasks (task_class, context) VALUES ('work', '{"parent_id": 1e300}');"#,
        )
        .unwrap();
    let mut shown = connection
        .prepare("SELECT id, correlation_id, parent_id FROM task_engine_tasks ORDER BY id")
        .unwrap();
    let shown: Vec<(i64, String, Option<i64>)> = shown
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let row = |id, flow: &str, parent| (id, flow.to_owned(), parent);
    assert_eq!(shown, [row(1, "x", None), row(2, "x", Some(1)), row(3, "3", None)]);
    assert_eq!(file.open().verify().await.unwrap(), []);
}

#[tokio::test]
async fn invalid_plain_insert_names_the_reason() {
    let file = File::with_tables().await;
    let connection = file.connect();
    for (columns, values, why) in [
        ("queue", "'a'", "needs a task_class"),
        ("task_class", "''", "needs a task_class"),
        ("task_class, task_parameters", "'a', '[1]'", "task_parameters must be a JSON object"),
        ("task_class, task_parameters", "'a', '{'", "task_parameters must be a JSON object"),
        ("task_class, context", "'a', '1'", "context must be a JSON object"),
        ("task_class, correlation_id", "'a', ''", "a_correlation_id_is_a_text_of_1_to_200_bytes"),
        ("task_class, correlation_id", "'a', 17", "a_correlation_id_is_a_text_of_1_to_200_bytes"),
        ("task_class, scheduled_at", "'a', 'soon'", "scheduled_at must be a time"),
        ("task_class, queue", "'a', ''", "a_queue_has_a_name"),
        ("task_class, priority", "'a', 'high'", "cannot store TEXT value in INTEGER"),
    ] {
        let insert = format!("INSERT INTO task_engine_tasks ({columns}) VALUES ({values})");
        let error = connection.execute(&insert, []).unwrap_err().to_string();
        assert!(error.contains(why), "{insert}: {error}");
    }
    assert_eq!(waiting(&file).await, 0);
}
