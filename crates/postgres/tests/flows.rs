//! Flows created by SQL, and by programs at the same time.

use serde_json::{Value, json};
use task_engine_core::dependency::{DependencyCondition, Flow};
use task_engine_core::json::Json;
use task_engine_core::limit::{Limit, LimitOptions};
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_postgres::{PgStore, Schema};
use task_engine_store::contract::{
    FlowStore as _, LimitStore as _, OperatorStore as _, ReadStore as _, StoreBase as _,
};
use task_engine_test_harness::{TestServer, connect};

struct Fresh {
    url: String,
    store: PgStore,
    app: tokio_postgres::Client,
}

async fn fresh() -> Fresh {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    Fresh { app: connect(&url).await, url, store }
}

const CREATE: &str = "SELECT name, task_id FROM task_engine.create_flow($1::text::jsonb)";

fn tasks(flow: &Value) -> Value {
    json!({ "tasks": flow })
}

fn named(class: &str) -> NewTask {
    NewTask::new(class, Json::empty_object()).unwrap()
}

impl Fresh {
    async fn create(&self, flow: &Value) -> Result<Vec<(String, TaskId)>, String> {
        let rows = self.app.query(CREATE, &[&flow.to_string()]).await;
        let rows =
            rows.map_err(|error| error.as_db_error().expect("an answer").message().to_owned())?;
        Ok(rows.iter().map(|row| (row.get(0), TaskId(row.get(1)))).collect())
    }

    async fn tasks(&self) -> i64 {
        let sql = "SELECT count(*) FROM task_engine.created_tasks";
        self.app.query_one(sql, &[]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn sql_creates_flow_in_order() {
    let fresh = fresh().await;
    let flow = json!({
        "name": "nightly",
        "correlation_id": "night 1",
        "tasks": {
            "load": {"class": "load", "after": "extract", "queue": "etl", "priority": 3},
            "alert": {"class": "alert", "after_failure": ["extract", "load"], "delay": "1 hour"},
            "extract": {"class": "extract", "parameters": {"day": "monday"}},
        }
    });
    let created = fresh.create(&flow).await.unwrap();
    let names: Vec<&str> = created.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["extract", "load", "alert"]);
    let [extract, load, alert] = [0, 1, 2].map(|place: usize| created[place].1);
    let task = fresh.store.task(load).await.unwrap().unwrap();
    assert_eq!((task.row.queue.as_str(), task.row.priority), ("etl", 3));
    assert!(task.row.is_blocked);
    assert_eq!(task.correlation_id, "night 1");
    let context: Value = task.context.decode().unwrap();
    assert_eq!(
        context,
        json!({"awaited": true, "dependent": true, "flow_task": "load", "correlation_id": "night 1"})
    );
    assert!(!fresh.store.task(extract).await.unwrap().unwrap().row.is_blocked);
    let rows = fresh.store.dependencies(&[alert], 10).await.unwrap();
    let rows: Vec<_> = rows.iter().map(|row| (row.depends_on, row.condition)).collect();
    let failure = DependencyCondition::Failure;
    assert_eq!(rows, [(extract, failure), (load, failure)]);
    assert_eq!(fresh.store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn limits_of_sql_keep_null_keys() {
    let fresh = fresh().await;
    let limit = Limit::named("api", LimitOptions::max(1).key("account")).unwrap();
    fresh.store.set_limit(&limit).await.unwrap();
    let flow = json!({ "tasks": {
        "one": {"class": "call", "parameters": {"account": "acme"}, "limits": {"api": null}},
        "two": {"class": "call", "limits": null},
    }});
    let created = fresh.create(&flow).await.unwrap();
    let mut contexts = Vec::new();
    for (_, id) in &created {
        let task = fresh.store.task(*id).await.unwrap().unwrap();
        contexts.push(task.context.decode::<Value>().unwrap()["limits"].clone());
    }
    assert_eq!(contexts, [json!({"api": null}), Value::Null]);
}

/// Nothing is created, and the message says what is wrong.
#[tokio::test]
async fn invalid_flows_of_sql_are_refused() {
    let fresh = fresh().await;
    let a = json!({"class": "a"});
    let after = |name: Value| json!({"class": "a", "after": name});
    let many: serde_json::Map<String, Value> =
        (0..10_001).map(|n| (n.to_string(), a.clone())).collect();
    let firsts: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let dense: serde_json::Map<String, Value> = firsts
        .iter()
        .map(|name| (name.clone(), a.clone()))
        .chain((0..101).map(|n| (format!("x{n}"), after(json!(firsts)))))
        .collect();
    for (flow, message) in [
        (tasks(&json!({})), "a flow needs a task before its dependencies"),
        (tasks(&json!({"a": after(json!("b")), "b": after(json!("a"))})), "wait for each other: "),
        (tasks(&json!({"a": after(json!("a"))})), "wait for each other: a → a"),
        (
            tasks(&json!({"a": a, "b": after(json!("c"))})),
            r#"task "b" depends on "c", which is no task of the flow"#,
        ),
        (
            tasks(&json!({"a": a, "b": {"class": "b", "after": "a", "after_end": "a"}})),
            r#"task "b" depends on "a" under two conditions; use one"#,
        ),
        (tasks(&json!({"a": after(json!(17))})), "task 17 does not exist, or was removed"),
        (tasks(&Value::Object(many)), "a flow has at most 10000 tasks, this one has 10001"),
        (
            tasks(&Value::Object(dense)),
            "a flow has at most 100000 dependencies, this one has 101000",
        ),
    ] {
        let refused = fresh.create(&flow).await.unwrap_err();
        assert!(refused.contains(message), "{refused}");
        assert_eq!(fresh.tasks().await, 0, "{message}");
    }
    for flow in [json!([]), json!({"tasks": []}), tasks(&json!({"a": 1})), tasks(&json!({"a": {}}))]
    {
        fresh.create(&flow).await.unwrap_err();
        assert_eq!(fresh.tasks().await, 0, "{flow}");
    }
}

/// The flow exists when the transaction of the application commits, and not before.
#[tokio::test]
async fn flow_belongs_to_transaction() {
    let mut fresh = fresh().await;
    let flow = || Flow::new().add("a", named("a")).add("b", named("b")).after("a");
    for commit in [false, true] {
        let tx = fresh.app.transaction().await.unwrap();
        let flow = flow().resolve().unwrap();
        let created = Schema::default().create_flow_in(&tx, &flow).await.unwrap();
        assert_eq!(created.ids.len(), 2);
        assert!(fresh.store.task(created.ids[0]).await.unwrap().is_none());
        if commit {
            tx.commit().await.unwrap();
            assert!(fresh.store.task(created.ids[1]).await.unwrap().unwrap().row.is_blocked);
        } else {
            tx.rollback().await.unwrap();
        }
    }
    assert_eq!(fresh.tasks().await, 2);
    assert_eq!(fresh.store.verify().await.unwrap(), []);
}

/// A parent is cancelled while a transaction that depends on it is open: the cancel waits, and
/// the new task is cancelled because of it.
#[tokio::test]
async fn end_waits_for_creation_of_dependent() {
    let mut fresh = fresh().await;
    let parent = fresh.create(&tasks(&json!({"a": {"class": "a"}}))).await.unwrap()[0].1;
    let tx = fresh.app.transaction().await.unwrap();
    let flow = Flow::new().add("b", named("b")).after(parent).resolve().unwrap();
    let child = Schema::default().create_flow_in(&tx, &flow).await.unwrap().ids[0];
    let other = PgStore::connect(&fresh.url).await.unwrap();
    let mut cancel = tokio::spawn(async move { other.cancel(&[parent]).await.unwrap() });
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    let watcher = connect(&fresh.url).await;
    while watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(!cancel.is_finished(), "the cancel did not wait");
        tokio::task::yield_now().await;
    }
    tx.commit().await.unwrap();
    (&mut cancel).await.unwrap();
    let task = fresh.store.task(child).await.unwrap().unwrap();
    assert_eq!(task.row.status, TaskStatus::Cancelled);
    assert_eq!(task.row.error.unwrap().message, format!("task {parent} (a) was cancelled"));
    assert_eq!(fresh.store.verify().await.unwrap(), []);
}
