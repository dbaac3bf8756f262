//! A database moved to another one, of the other kind, and back: nothing is lost.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use task_engine::postgres::PgStore;
use task_engine::sqlite::SqliteStore;
use task_engine::{Context, Failure, StopHandle, Store, Task, TaskEngine, TaskId};
use task_engine_conformance::everything::fill;
use task_engine_test_harness::TestServer;

use super::support::{sandbox, sandbox_on};
use task_engine_test_harness::{Sandbox, wait_until};

fn values(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Line by line, but for the header; as values, because PostgreSQL keeps no order
/// of the names in an object.
#[track_caller]
fn assert_same(one: &str, other: &str) {
    let (one, other) = (values(one), values(other));
    assert!(one[0]["header"].is_object() && other[0]["header"].is_object());
    for (line, other) in one.iter().zip(&other).skip(1) {
        assert_eq!(line, other);
    }
    assert_eq!(one.len(), other.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn moves_from_sqlite_to_postgresql_back() {
    let file = sandbox();
    file.ok(&["migrate"]);
    let store = SqliteStore::open(file.path("task-engine.db")).unwrap();
    let left = fill(std::sync::Arc::new(store)).await;
    let first = file.ok(&["export"]);
    assert!(first.contains("123456789012345678901234567890"), "numbers are kept as they are");
    for kind in ["waiting", "running", "stopped", "failed", "cancelled"] {
        assert!(first.contains(&format!("\"status\":\"{kind}\"")), "{kind}");
    }
    for word in ["late_results", "logs", "cancellations", "has_unique_key", "fired_slots"]
        .into_iter()
        .chain(["steps", "signals", "depends_on", "suspended", "limit", "closed_keys"])
        .chain(["flow", "dependencies", "reopened"])
    {
        assert!(first.contains(&format!("\"{word}\":")), "{word}");
    }

    // Without the tasks that run, everything comes back as it was.
    let ended = ["export", "--status", "waiting", "--status", "stopped"];
    let ended = [&ended[..], &["--status", "failed", "--status", "cancelled"]].concat();
    let rest = file.ok(&ended);
    let url = TestServer::shared().create_database().await;
    let server = sandbox_on(&url);
    let imported = server.run_with_input(&["import"], rest.as_bytes());
    assert_eq!((imported.code, imported.out.as_str()), (Some(0), ""), "{imported:?}");
    let there = server.ok(&ended);
    assert_same(&rest, &there);
    assert!(there.contains("123456789012345678901234567890"));
    server.ok(&["verify"]);
    let back = sandbox();
    fs::write(back.path("file"), &there).unwrap();
    back.ok(&["import", "file"]);
    assert_same(&rest, &back.ok(&ended));
    back.ok(&["verify"]);
    // For those who read only: the same page of the same task.
    for task in file.tasks() {
        if task["status"] != "running" {
            let id = task["id"].to_string();
            assert_eq!(file.task(&id)["executions"], server.task(&id)["executions"], "task {id}");
            assert_eq!(file.task(&id)["executions"], back.task(&id)["executions"], "task {id}");
        }
    }

    // Those that ran are those of an engine that died.
    let url = TestServer::shared().create_database().await;
    let whole = sandbox_on(&url);
    let imported = whole.run_with_input(&["import", "--json"], first.as_bytes());
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let report: Value = serde_json::from_str(&imported.out).unwrap();
    assert_eq!((&report["reclaimed"], &report["ids_grew_by"]), (&3.into(), &0.into()));
    whole.ok(&["verify"]);
    let became = [(left.retried, "waiting"), (left.once, "failed"), (left.cancelled, "cancelled")];
    for (id, status) in became {
        let task = whole.task(&id.to_string());
        assert_eq!(task["status"], status, "{task}");
        assert_eq!(task["executions"][0]["instance"], "dead", "{task}");
    }
    let lost = whole.task(&left.once.to_string());
    assert_eq!(lost["executions"][0]["error"]["exception"], "InstanceLost");
    assert!(whole.ok(&["logs", &left.retried.to_string()]).contains("the last words"));
    // Ids go on after the last, and the schedules are there.
    let last = values(&first)[0]["header"]["last_task_id"].as_i64().unwrap();
    assert_eq!(whole.ok(&["create", "a"]), format!("{}\n", last + 1));
    assert!(whole.ok(&["schedules", "list"]).contains("hourly"));
    drop(PgStore::connect(&url).await.unwrap());
}

fn engine_runs_imported_tasks(from: &Sandbox, to: &Sandbox) {
    from.ok(&["create", "WitnessTask", r#"{"ms": 0}"#, "--count", "5"]);
    from.ok(&["create", "WitnessTask", r#"{"ms": 0}"#, "--unique", "key"]);
    let file = from.ok(&["export"]);
    // It is alive, and gets a notification for each task.
    to.witness();
    let engine = to.start(&["start", "--config", "witness.toml"]);
    engine.wait_for_log("started with");
    assert_eq!(to.run_with_input(&["import"], file.as_bytes()).code, Some(0));
    wait_until("all are done", || to.tasks().iter().all(|task| task["status"] == "stopped"));
    assert_eq!(to.tasks().len(), 6);
    // The key of a task that has ended is free again, and belongs to the next.
    assert_eq!(to.ok(&["create", "WitnessTask", r#"{"ms": 0}"#, "--unique", "key"]), "7\n");
    let live = to.run(&["export"]);
    assert_eq!((live.code, live.out.as_str()), (Some(4), ""), "{live:?}");
    assert!(live.err.contains("an engine is alive") && live.err.contains("--live"), "{}", live.err);
    to.ok(&["export", "--live"]);
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
    to.ok(&["verify"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_tasks_run_after_move() {
    let server = sandbox_on(&TestServer::shared().create_database().await);
    engine_runs_imported_tasks(&sandbox(), &server);
    let server = sandbox_on(&TestServer::shared().create_database().await);
    engine_runs_imported_tasks(&server, &sandbox());
}

/// A flow of which one task has ended, one failed and was retried, and the others are blocked.
fn flow_continues(from: &Sandbox, to: &Sandbox) {
    let witness =
        |after: &str| json!({"class": "WitnessTask", "parameters": {"ms": 0}, "after": after});
    let tasks = json!({
        "first": {"class": "WaitingTask", "parameters": {"waiting_time": 0}},
        "fails": {"class": "FailingNotRetryTask", "after": "first"},
        "second": witness("first"),
        "third": {"class": "WitnessTask", "parameters": {"ms": 0}, "after": ["second", "fails"]},
        "alert": {"class": "WitnessTask", "parameters": {"ms": 0}, "after_failure": "second"},
    });
    let flow = json!({"name": "moved", "correlation_id": "moved", "tasks": tasks});
    fs::write(from.path("flow.json"), flow.to_string()).unwrap();
    from.ok(&["flow", "run", "flow.json"]);
    // No engine knows the class of the witness yet.
    let engine = from.start(&["start", "--samples"]);
    wait_until("the third is cancelled", || from.status("5") == "cancelled");
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
    from.ok(&["retry", "2"]);
    let states = |sandbox: &Sandbox| {
        let tasks = values(&sandbox.ok(&["tasks", "--jsonl"]));
        let state =
            |task: &Value| (task["id"].clone(), task["status"].clone(), task["is_blocked"].clone());
        tasks.iter().map(state).collect::<Vec<_>>()
    };
    let file = from.ok(&["export"]);
    to.witness();
    assert_eq!(to.run_with_input(&["import"], file.as_bytes()).code, Some(0));
    to.ok(&["verify"]);
    assert_eq!(states(from), states(to));
    assert_eq!(to.ok(&["export"]).lines().count(), file.lines().count());
    assert_eq!(from.ok(&["flow", "list", "--json"]), to.ok(&["flow", "list", "--json"]));
    // The second ends, the retried one is cancelled, and the third with it.
    to.ok(&["cancel", "2"]);
    let engine = to.start(&["start", "--config", "witness.toml"]);
    wait_until("all have ended", || {
        to.tasks().iter().all(|task| task["status"] != "waiting" && task["status"] != "running")
    });
    engine.signal("TERM");
    assert_eq!(engine.end().code, Some(0));
    let status: Vec<_> = ["1", "2", "3", "4", "5"].iter().map(|id| to.status(id)).collect();
    assert_eq!(status, ["stopped", "cancelled", "stopped", "cancelled", "cancelled"]);
    to.ok(&["verify"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_continues_after_move() {
    let server = sandbox_on(&TestServer::shared().create_database().await);
    flow_continues(&sandbox(), &server);
    let server = sandbox_on(&TestServer::shared().create_database().await);
    flow_continues(&server, &sandbox());
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {}

impl Task for Order {
    const CLASS: &'static str = "Order";
}

#[derive(Debug, Serialize, Deserialize)]
struct Cart {}

impl Task for Cart {
    const CLASS: &'static str = "Cart";
}

async fn order(_: Order, cx: Context<()>) -> Result<Value, Failure> {
    let charged = cx.step("charge", async || Ok::<_, Failure>("once".to_owned())).await?;
    let by: String = cx.wait_for("approved", Duration::from_secs(3600)).await?;
    Ok(json!([charged, by]))
}

async fn cart(_: Cart, cx: Context<()>) -> Result<Value, Failure> {
    let outcome: Value = cx.call(Order {}).await?;
    Ok(json!({ "order": outcome }))
}

struct Shop {
    tasks: TaskEngine,
    stop: StopHandle,
    end: tokio::task::JoinHandle<()>,
}

impl Shop {
    fn open(store: Arc<dyn Store>) -> Self {
        let tasks = TaskEngine::new(store);
        let engine = tasks.engine(()).instance("shop").handle(order).handle(cart);
        let stop = engine.stop_handle();
        let end = tokio::spawn(async move {
            engine.run_until(std::future::pending()).await.unwrap();
        });
        Self { tasks, stop, end }
    }

    async fn close(self) {
        self.stop.stop();
        self.end.await.unwrap();
    }
}

/// A cart (1) that waits for its order (2), and the order for a signal.
async fn suspended_tasks_continue(
    from: (&Sandbox, Arc<dyn Store>),
    to: (&Sandbox, Arc<dyn Store>),
) {
    let shop = Shop::open(from.1);
    from.0.ok(&["create", "Cart", "{}"]);
    let suspended = |sandbox: &Sandbox, id: &str| {
        let task = sandbox.run(&["show", id, "--json"]);
        task.code == Some(0) && task.out.contains("Snoozed")
    };
    wait_until("both wait", || suspended(from.0, "1") && suspended(from.0, "2"));
    shop.close().await;
    let file = from.0.ok(&["export"]);
    assert!(file.contains(r#""suspended":{"signals":["approved"]}"#), "{file}");
    assert!(file.contains(r#""suspended":{"watching":2}"#), "{file}");
    assert_eq!(to.0.run_with_input(&["import"], file.as_bytes()).code, Some(0));
    to.0.ok(&["verify"]);
    let shop = Shop::open(to.1);
    let sent = shop.tasks.signal(TaskId(2), "approved", &"ada").await.unwrap();
    assert_eq!(sent.status.as_str(), "delivered");
    wait_until("both end", || to.0.tasks().iter().all(|task| task["status"] == "stopped"));
    shop.close().await;
    let executions = to.0.task("1")["executions"].clone();
    let result = &executions.as_array().unwrap().last().unwrap()["result"];
    assert_eq!(*result, json!({ "order": ["once", "ada"] }), "{executions}");
    assert_eq!(to.0.tasks().len(), 2, "the order was created once");
    to.0.ok(&["verify"]);
}

fn sqlite_store(sandbox: &Sandbox) -> Arc<dyn Store> {
    sandbox.ok(&["migrate"]);
    Arc::new(SqliteStore::open(sandbox.path("task-engine.db")).unwrap())
}

async fn postgres_store() -> (Sandbox, Arc<dyn Store>) {
    let url = TestServer::shared().create_database().await;
    let sandbox = sandbox_on(&url);
    sandbox.ok(&["migrate"]);
    let store = PgStore::connect(&url).await.unwrap();
    (sandbox, Arc::new(store))
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_tasks_continue_on_postgresql() {
    let (file, (server, store)) = (sandbox(), postgres_store().await);
    let from = sqlite_store(&file);
    suspended_tasks_continue((&file, from), (&server, store)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_tasks_continue_on_sqlite() {
    let (file, (server, store)) = (sandbox(), postgres_store().await);
    let to = sqlite_store(&file);
    suspended_tasks_continue((&server, store), (&file, to)).await;
}

fn refuses_wrong_files(sandbox: &Sandbox) {
    let source = crate::support::sandbox();
    source.ok(&["create", "a", "--count", "3"]);
    let good = source.ok(&["export"]);
    let lines: Vec<&str> = good.lines().collect();
    let join = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let header = lines[0];
    for (file, words) in [
        (String::new(), "line 1: the file is empty"),
        ("hello\n".to_owned(), "line 1: this is not the file of an export"),
        (join(&lines[1..]), "line 1: this is not the file of an export"),
        (good.replacen("export\":1", "export\":2", 1), "format 2, this program knows format 1"),
        (join(&lines[..3]), "line 4: the last line is missing"),
        (good[..good.len() - 1].to_owned(), "line 5: the line is cut off"),
        (good[..good.len() / 2].to_owned(), "the line is cut off"),
        (join(&[header, lines[1], lines[1]]), "line 3: task 1 comes after task 1"),
        (join(&[header, lines[1], lines[2], lines[4]]), "line 4: lines are missing: 3 tasks"),
        (
            join(&[header, r#"{"task": {"id": 1}}"#]),
            "line 2, column 18: task 1: missing field `status`",
        ),
        (join(&[header, header]), "line 2: a second header"),
        (good.replacen("\"status\":\"waiting\"", "\"status\":\"stopped\"", 1), "but is waiting"),
        (good.replacen("\"queue\":\"default\"", "\"queue\":\"\"", 1), "line 2: task 1: "),
        (format!("{good}{header}\n"), "line 6: something follows the last line"),
        (
            join(&[header, r#"{"step": {"task_id": 1, "name": "charge"}}"#]),
            "line 2, column 7: unknown variant `step`",
        ),
        (
            good.replacen("\"priority\":0", "\"priority\":0,\"depends_on\":[9]", 1),
            "line 2: task 1: it depends on task 9",
        ),
        (
            good.replacen("\"priority\":0", "\"priority\":0,\"suspended\":{}", 1),
            "line 2: task 1: it is suspended, but does not wait for another attempt",
        ),
    ] {
        let refused = sandbox.run_with_input(&["import"], file.as_bytes());
        assert_eq!(refused.code, Some(2), "{words}: {refused:?}");
        assert!(refused.err.contains(words), "{words}: {}", refused.err);
        assert!(refused.err.contains("nothing was imported"), "{}", refused.err);
    }
    assert_eq!(sandbox.run(&["import", "no such file"]).code, Some(3));
    assert_eq!(sandbox.run(&["export", "--status", "done"]).code, Some(2));
    sandbox.ok(&["migrate"]);
    assert_eq!(sandbox.tasks().len(), 0, "nothing of all that is there");
    // A file that the store refuses causes no panic, and nothing is imported.
    let far = good.replacen("\"priority\":0", "\"priority\":0,\"logs\":[{\"attempt\":1}]", 1);
    assert_eq!(sandbox.run_with_input(&["import"], far.as_bytes()).code, Some(2));
    assert_eq!(sandbox.run_with_input(&["import"], good.as_bytes()).code, Some(0));
    let twice = sandbox.run_with_input(&["import"], good.as_bytes());
    assert_eq!(twice.code, Some(4), "{twice:?}");
    assert!(twice.err.contains("--new-ids"), "{}", twice.err);
    let moved = sandbox.run_with_input(&["import", "--new-ids"], good.as_bytes());
    assert_eq!(moved.code, Some(0), "{moved:?}");
    assert_eq!(moved.out, "task ids grew by 3: task N of the file is task N + 3\n");
    assert_eq!(sandbox.tasks().len(), 6);
    sandbox.ok(&["verify"]);
}

#[test]
fn wrong_files_on_sqlite() {
    refuses_wrong_files(&sandbox());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_files_on_postgresql() {
    refuses_wrong_files(&sandbox_on(&TestServer::shared().create_database().await));
}
