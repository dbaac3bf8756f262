//! Steps of durable tasks, signals to them, and reruns from a step, on both stores.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use task_engine::{Context, Failure, StopHandle, Task, TaskEngine};
use task_engine_conformance::waiting::wait_for;
use task_engine_web::{Access, Role};

use crate::client::{Client, Tables, postgres, sqlite};

const CARD: &str = "canary-7f3a91";
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Serialize, Deserialize)]
struct Order {
    card: String,
}

impl Task for Order {
    const CLASS: &'static str = "order";
    const SECRETS: &'static [&'static str] = &["card"];
}

async fn order(order: Order, cx: Context<()>) -> Result<Value, Failure> {
    let charge = || async { Ok::<_, Failure>(json!({"card": order.card, "amount": 7})) };
    cx.step("charge", charge).await?;
    let approved: Value = cx.wait_for("approved", HOUR).await?;
    cx.step("ship", || async { Ok::<_, Failure>(approved) }).await
}

/// An engine that executes orders.
struct Shop {
    stop: StopHandle,
    running: tokio::task::JoinHandle<Result<task_engine::Stopped, task_engine::EngineError>>,
}

impl Shop {
    /// Returns as soon as clients see the engine, whose class declares its secrets.
    async fn open(tables: &Tables, client: &Client) -> Self {
        let engine =
            TaskEngine::new(tables.store.clone()).engine(()).instance("shop").handle(order);
        let stop = engine.stop_handle();
        let running = tokio::spawn(engine.run_until(std::future::pending()));
        wait_for("the engine is listed", async || {
            let engines = client.get("/api/v1/instances").await.ok();
            (!engines["instances"].as_array()?.is_empty()).then_some(())
        })
        .await;
        Self { stop, running }
    }

    async fn close(self) {
        self.stop.stop();
        self.running.await.expect("no panic").expect("a good end");
    }
}

async fn create(client: &Client, key: &str) -> i64 {
    let task = json!({"class": "order", "parameters": {"card": CARD}, "key": key});
    client.post("/api/v1/tasks", &task).await.ok()["tasks"][0]["id"].as_i64().expect("an id")
}

/// The steps, as soon as the last one has this state.
async fn steps_until(client: &Client, id: i64, state: &str) -> Value {
    let path = format!("/api/v1/tasks/{id}/steps");
    wait_for(&format!("a step is {state}"), async || {
        let steps = client.get(&path).await.ok();
        let last = steps["steps"].as_array()?.last()?["state"].clone();
        (last == state).then_some(steps)
    })
    .await
}

/// The task as soon as it waits: its attempt has ended.
async fn suspended(client: &Client, id: i64) {
    steps_until(client, id, "waiting").await;
    wait_for("the task waits", async || {
        let task = client.get(&format!("/api/v1/tasks/{id}")).await.ok();
        (task["status"] == "waiting").then_some(())
    })
    .await;
}

async fn succeeds(client: &Client, id: i64) -> Value {
    wait_for("the task succeeds", async || {
        let task = client.get(&format!("/api/v1/tasks/{id}")).await.ok();
        (task["status"] == "stopped").then_some(task)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_and_steps_on_sqlite() {
    signals_and_steps(sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_and_steps_on_postgres() {
    signals_and_steps(postgres().await).await;
}

async fn signals_and_steps(tables: Tables) {
    let client = tables.open();
    let shop = Shop::open(&tables, &client).await;
    signal_continues_task(&client).await;
    signal_finds_unique_key(&client).await;
    early_signal_is_kept(&tables, &client).await;
    rerun_keeps_steps(&client).await;
    shop.close().await;
}

async fn signal_continues_task(client: &Client) {
    let id = create(client, "one").await;
    suspended(client, id).await;
    let steps = client.get(&format!("/api/v1/tasks/{id}/steps")).await;
    assert!(!steps.text.contains(CARD), "secrets are redacted: {}", steps.text);
    let steps = steps.ok();
    let [charge, wait] = steps["steps"].as_array().unwrap().as_slice() else { panic!("{steps}") };
    assert_eq!(charge["result"], json!({"card": "[secret]", "amount": 7}));
    assert_eq!((&charge["kind"], &charge["state"]), (&json!("step"), &json!("recorded")));
    assert_eq!((&wait["name"], &wait["kind"]), (&json!("approved"), &json!("wait")));
    assert!(wait["until"].is_string() && wait["ended_at"].is_null(), "{wait}");
    assert_eq!(steps["signals"], json!([]));

    let path = format!("/api/v1/tasks/{id}/signals/approved");
    let sent = client.post(&format!("{path}?reason=by+phone"), &json!({"by": CARD})).await.ok();
    assert_eq!((&sent["status"], &sent["task_id"]), (&json!("delivered"), &json!(id)));
    assert_eq!(sent["counts"], json!({"signal_delivered": 1}));
    let audit = client.get("/api/v1/audit?action=tasks.signal&limit=1").await.ok();
    assert_eq!(audit["entries"][0]["reason"], "by phone");
    assert_eq!(audit["entries"][0]["target"], format!("task {id}"));
    let task = succeeds(client, id).await;
    assert_eq!(task["executions"][1]["result"], json!({"by": "[secret]"}));
    let steps = client.get(&format!("/api/v1/tasks/{id}/steps")).await;
    assert!(!steps.text.contains(CARD), "also in signals: {}", steps.text);
    let steps = steps.ok();
    assert_eq!(steps["steps"][1]["state"], "received");
    assert_eq!(steps["steps"][1]["result"], json!({"by": "[secret]"}));
    assert_eq!(steps["signals"][0]["payload"], json!({"by": "[secret]"}));

    let refused = client.post(&path, &json!(2)).await.problem(409);
    assert_eq!(refused["outcome"], "task_ended", "{refused}");
}

async fn signal_finds_unique_key(client: &Client) {
    let id = create(client, "two").await;
    suspended(client, id).await;
    let signal =
        json!({"class": "order", "key": "two", "name": "approved", "payload": ["x", null, 1.50]});
    let sent = client.post("/api/v1/signals", &signal).await.ok();
    assert_eq!((&sent["status"], &sent["task_id"]), (&json!("delivered"), &json!(id)));
    let task = succeeds(client, id).await;
    assert_eq!(task["executions"][1]["result"], json!(["x", null, 1.5]));
    let other = json!({"class": "order", "key": "none", "name": "approved"});
    client.post("/api/v1/signals", &other).await.problem(404);
}

async fn early_signal_is_kept(tables: &Tables, client: &Client) {
    let later = json!({"class": "order", "parameters": {"card": CARD}, "after": "1h"});
    let created = client.post("/api/v1/tasks", &later).await.ok();
    let id = created["tasks"][0]["id"].as_i64().unwrap();
    let path = format!("/api/v1/tasks/{id}/signals/approved");
    let token = tables.token(&format!("shop {id}"), Role::Operator).await;
    let program = tables.with(Access::closed()).token(&token);
    // Without a body, and so without a type.
    let sent = program.ask("POST", &path, None).await.ok();
    assert_eq!(sent["status"], "kept");
    let refused = program.post(&path, &json!({"by": "bob"})).await.problem(409);
    assert_eq!(refused["outcome"], "duplicate");
    let steps = client.get(&format!("/api/v1/tasks/{id}/steps")).await.ok();
    assert_eq!(steps["steps"], json!([]));
    assert_eq!(steps["signals"].as_array().unwrap().len(), 1);
    assert_eq!(steps["signals"][0]["payload"], Value::Null, "the first one counts");
    client.post(&format!("/api/v1/tasks/{id}/cancel"), &json!({})).await.ok();
    let refused = client.post(&format!("{path}%232"), &json!({})).await.problem(409);
    assert_eq!(refused["outcome"], "task_ended");

    let viewer = tables.token(&format!("reader {id}"), Role::Viewer).await;
    let viewer = tables.with(Access::closed()).token(&viewer);
    viewer.get(&format!("/api/v1/tasks/{id}/steps")).await.ok();
    viewer.post(&path, &json!({})).await.problem(403);
}

async fn rerun_keeps_steps(client: &Client) {
    let id = create(client, "three").await;
    suspended(client, id).await;
    client.post(&format!("/api/v1/tasks/{id}/signals/approved"), &json!("ada")).await.ok();
    succeeds(client, id).await;
    let path = format!("/api/v1/tasks/{id}/rerun");
    let done = client.post(&path, &json!({"from": "ship", "reason": "again"})).await.ok();
    let copy = done["task_ids"][0].as_i64().expect("an id");
    let task = succeeds(client, copy).await;
    assert_eq!(task["executions"][0]["result"], "ada", "the signal is kept");
    let steps = client.get(&format!("/api/v1/tasks/{copy}/steps")).await.ok();
    let attempts: Vec<_> =
        steps["steps"].as_array().unwrap().iter().map(|it| it["attempt"].clone()).collect();
    assert_eq!(attempts, [json!(0), json!(0), json!(1)], "{steps}");
    let wrong = client.post(&path, &json!({"from": "shipp"})).await.problem(400);
    assert_eq!(wrong["pointer"], "/from");
    assert!(wrong["detail"].as_str().unwrap().contains("ship"), "{wrong}");
    let all = client.post(&path, &json!({})).await.ok();
    let copy = all["task_ids"][0].as_i64().expect("an id");
    suspended(client, copy).await;
}

#[tokio::test]
async fn invalid_signals_are_refused() {
    let tables = sqlite().await;
    let client = tables.open();
    let created = client.post("/api/v1/tasks", &json!({"class": "a", "key": "k"})).await.ok();
    let id = created["tasks"][0]["id"].as_i64().unwrap();
    let at = |name: &str| format!("/api/v1/tasks/{id}/signals/{name}");
    let long = "x".repeat(201);
    for name in ["a%0Ab", "a%23b", "a%231", "%232", long.as_str()] {
        let problem = client.post(&at(name), &json!({})).await.problem(400);
        assert_eq!(problem["parameter"], "name", "{name}: {problem}");
    }
    let huge = format!("\"{}\"", "x".repeat(1 << 20));
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    for payload in ["{", "nonsense", "{} {}", "\"\\u0000\"", &huge, &deep] {
        let problem = client.ask("POST", &at("go"), Some(payload)).await.problem(400);
        assert_eq!(problem["pointer"], "", "{problem}");
        assert!(problem["detail"].as_str().unwrap().ends_with('.'), "{problem}");
    }
    let typo = client.post(&format!("{}?reson=x", at("go")), &json!({})).await.problem(400);
    assert_eq!(typo["parameter"], "reson");
    for (body, pointer) in [
        (json!({"key": "k", "name": "go"}), "/class"),
        (json!({"class": "a", "name": "go"}), "/key"),
        (json!({"class": "a", "key": "k"}), "/name"),
        (json!({"class": "a", "key": "k", "name": "a#b"}), "/name"),
        (json!({"class": "a", "key": "k", "name": "go", "payload": "\u{0}"}), "/payload"),
        (json!({"class": "a", "key": "k", "name": "go", "body": 1}), "/body"),
    ] {
        let problem = client.post("/api/v1/signals", &body).await.problem(400);
        assert_eq!(problem["pointer"], pointer, "{problem}");
    }
    client.post("/api/v1/tasks/999/signals/go", &json!({})).await.problem(404);
    client.get("/api/v1/tasks/999/steps").await.problem(404);
    let steps = client.get(&format!("/api/v1/tasks/{id}/steps")).await.ok();
    assert_eq!((&steps["steps"], &steps["signals"]), (&json!([]), &json!([])));
    assert_eq!(client.get("/api/v1/audit").await.ok()["entries"], json!([]), "nothing was done");
    assert_eq!(client.post(&at("go"), &json!({})).await.ok()["status"], "kept");
}
