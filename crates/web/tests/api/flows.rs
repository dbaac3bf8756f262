//! Flows: created, listed, shown and drawn.

use std::fmt::Write as _;

use serde_json::{Value, json};
use task_engine_core::task::TaskId;

use crate::client::{Client, Tables, postgres, sqlite};

fn nightly() -> Value {
    json!({
        "name": "nightly",
        "correlation_id": "night-1",
        "tasks": {
            "report": {"class": "report", "after": ["load"], "after_end": "extract"},
            "extract": {"class": "extract", "parameters": {"n": 1}, "priority": 5},
            "load": {"class": "load", "after": "extract", "queue": "slow"},
            "alert": {"class": "alert", "after_failure": ["extract", "load"]},
        }
    })
}

async fn no_task(client: &Client) -> bool {
    client.get("/api/v1/tasks").await.ok()["tasks"].as_array().unwrap().is_empty()
}

async fn flow_is_created_and_shown(tables: Tables) {
    let client = tables.open();
    let created = client.post("/api/v1/flows", &nightly()).await;
    assert_eq!(created.status, 201, "{}", created.text);
    assert_eq!(created.header("location"), "/api/v1/flows/night-1");
    let created = created.ok();
    assert_eq!(created["correlation_id"], "night-1");
    let id = |name: &str| created["tasks"][name].as_i64().unwrap();

    let list = client.get("/api/v1/flows").await.ok();
    let flow = &list["flows"][0];
    assert_eq!((&flow["name"], &flow["state"]), (&json!("nightly"), &json!("open")));
    assert_eq!((&flow["counts"]["blocked"], &flow["counts"]["waiting"]), (&json!(3), &json!(1)));
    assert_eq!(list["next"], Value::Null);
    let page = client.get("/api/v1/flows?limit=1").await.ok();
    let next = page["next"].as_i64().unwrap();
    let older = client.get(&format!("/api/v1/flows?before={next}")).await.ok();
    assert_eq!(older["flows"], json!([]));

    let shown = client.get("/api/v1/flows/night-1").await.ok();
    assert_eq!((&shown["name"], &shown["state"]), (&json!("nightly"), &json!("open")));
    let tasks = shown["tasks"].as_array().unwrap();
    let report = tasks.iter().find(|task| task["name"] == "report").unwrap();
    assert_eq!((&report["is_blocked"], &report["status"]), (&json!(true), &json!("waiting")));
    let mut on: Vec<_> = report["dependencies"].as_array().unwrap().clone();
    on.sort_by_key(|one| one["name"].to_string());
    assert_eq!(
        on,
        [
            json!({"id": id("extract"), "condition": "end", "name": "extract", "status": "waiting"}),
            json!({"id": id("load"), "condition": "success", "name": "load", "status": "waiting"}),
        ]
    );
    let first = client.get("/api/v1/flows/night-1?limit=2").await.ok();
    let rest = client.get(&format!("/api/v1/flows/night-1?after={}", first["next"])).await.ok();
    assert_eq!(rest["tasks"].as_array().unwrap().len(), 2);

    let task = client.get(&format!("/api/v1/tasks/{}", id("load"))).await.ok();
    assert_eq!((&task["queue"], &task["is_blocked"]), (&json!("slow"), &json!(true)));
    assert_eq!(task["dependencies"][0]["name"], "extract");
    let mut after: Vec<_> =
        task["dependents"].as_array().unwrap().iter().map(|it| it["name"].to_string()).collect();
    after.sort();
    assert_eq!(after, [r#""alert""#, r#""report""#]);
    let why = client.get(&format!("/api/v1/tasks/{}/why", id("load"))).await.ok();
    assert_eq!(why["reasons"][0]["reason"], "blocked");

    // A task on its own after existing ones; it joins their flow.
    let one = json!({"tasks": {"later": {"class": "later", "after": [id("load")]}}});
    let joined = client.post("/api/v1/flows", &one).await.ok();
    assert_eq!(joined["correlation_id"], "night-1");

    let page = client.get("/flows").await.text;
    assert!(page.contains("/flows/night-1") && page.contains("nightly"), "{page}");
    let page = client.get("/flows/night-1").await.text;
    for words in [
        r#"class="scroll graph""#,
        r#"class="edge failure""#,
        r#"class="edge end""#,
        "load, task",
        &format!("/tasks/{}", id("load")),
        "Cancel 5 open…",
        r#"<a class="node blocked""#,
        r#"<a class="node waiting""#,
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let page = client.get(&format!("/tasks/{}", id("load"))).await.text;
    for words in ["It depends on", "Depend on it", "waiting for other tasks", "/flows/night-1"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let metrics = client.get("/metrics").await.text;
    for line in ["task_engine_flow_tasks_blocked 4\n", "task_engine_flow_tasks_overdue 0\n"] {
        assert!(metrics.contains(line), "{metrics}");
    }
    let checks = client.get("/api/v1/checks?depth=standard").await.ok();
    let check =
        checks["checks"].as_array().unwrap().iter().find(|it| it["name"] == "flows").unwrap();
    let message = "4 tasks wait for others, which have not ended";
    assert_eq!((&check["verdict"], &check["message"]), (&json!("ok"), &json!(message)));

    // Cancelled and run again, with the same dependencies.
    let all = json!({"filter": "correlation=night-1"});
    client.post("/api/v1/tasks/cancel", &all).await.ok();
    let shown = client.get("/api/v1/flows/night-1").await.ok();
    assert_eq!(shown["state"], "cancelled", "{shown}");
    let page = client.get("/flows/night-1").await.text;
    assert!(page.contains("Rerun 5 ended…"), "{page}");
    let report = client.post("/api/v1/tasks/rerun", &all).await.ok();
    assert_eq!(report["counts"], json!({"rerun": 5}), "{report}");
    let counts = client.get("/api/v1/flows").await.ok()["flows"][0]["counts"].clone();
    assert_eq!((&counts["blocked"], &counts["waiting"]), (&json!(4), &json!(1)), "{counts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_is_created_and_shown_on_sqlite() {
    flow_is_created_and_shown(sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_is_created_and_shown_on_postgresql() {
    flow_is_created_and_shown(postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_flows_create_nothing() {
    let tables = sqlite().await;
    let client = tables.open();
    let task = json!({"class": "a"});
    let with = |name: &str, value: Value| {
        let mut task = json!({"class": "a"});
        task[name] = value;
        json!({"tasks": {"extract": {"class": "a"}, "b": task}})
    };
    for (body, status, pointer, words) in [
        (json!([]), 400, "", "Expected an object"),
        (json!({}), 400, "/tasks", "a flow needs a task"),
        (json!({"tasks": [task]}), 400, "/tasks", "expected an object of tasks by name"),
        (with("after", json!("extrat")), 400, "/tasks/b/after", "did you mean \"extract\"?"),
        (with("after", json!(["b"])), 400, "/tasks/b", "wait for each other: b → b"),
        (with("after", json!(true)), 400, "/tasks/b/after", "expected the name"),
        (with("after", json!([99])), 409, "", "ask 99 does not exist"),
        (with("key", json!("k")), 400, "/tasks/b/key", "Unknown field"),
        (with("parameters", json!(5)), 400, "/tasks/b/parameters", "parameters"),
        (with("class", json!("")), 400, "/tasks/b/class", "class"),
    ] {
        let problem = client.post("/api/v1/flows", &body).await.problem(status);
        assert_eq!(problem["pointer"].as_str().unwrap_or_default(), pointer, "{body}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{body}: {detail}");
    }
    let twice = r#"{"tasks": {"a": {"class": "a"}, "a": {"class": "b"}}}"#;
    let problem = client.ask("POST", "/api/v1/flows", Some(twice)).await.problem(400);
    assert_eq!(problem["pointer"], "/tasks/a");
    let mut many = String::from(r#"{"tasks": {"#);
    for n in 0..=10_000 {
        let _ = write!(many, r#"{}"t{n}": {{"class": "a"}}"#, if n > 0 { "," } else { "" });
    }
    many.push_str("}}");
    let problem = client.ask("POST", "/api/v1/flows", Some(&many)).await.problem(400);
    assert!(problem["detail"].as_str().unwrap().contains("at most 10000 tasks"), "{problem}");
    assert!(no_task(&client).await);
    client.get("/api/v1/flows/none").await.problem(404);
    assert_eq!(client.get("/flows/none").await.status, 404);
    assert_eq!(client.get("/flows?show=..").await.status, 404);
    assert!(client.get("/flows").await.text.contains("There are no flows"));
}

async fn repeated_request_creates_one_flow(tables: Tables) {
    let client = tables.open();
    let mut flow = nightly();
    flow.as_object_mut().unwrap().remove("correlation_id");
    let keyed = client.header("idempotency-key", "k-1");
    let first = keyed.post("/api/v1/flows", &flow).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let first = first.ok();
    let again = keyed.post("/api/v1/flows", &flow).await;
    assert_eq!(again.status, 200, "{}", again.text);
    assert_eq!(again.ok(), first);
    flow["tasks"]["load"]["priority"] = json!(9);
    let other = keyed.post("/api/v1/flows", &flow).await.problem(422);
    assert!(other["detail"].as_str().unwrap().contains("another request"), "{other}");
    let new = client.header("idempotency-key", "k-2").post("/api/v1/flows", &flow).await;
    assert_eq!(new.status, 201, "{}", new.text);
    assert_eq!(client.get("/api/v1/tasks").await.ok()["tasks"].as_array().unwrap().len(), 8);

    // At the same time.
    let keyed = client.header("idempotency-key", "k-3");
    let (one, two) =
        tokio::join!(keyed.post("/api/v1/flows", &flow), keyed.post("/api/v1/flows", &flow));
    assert_eq!(one.ok(), two.ok());
    assert_eq!(client.get("/api/v1/tasks").await.ok()["tasks"].as_array().unwrap().len(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_creates_one_flow_on_sqlite() {
    repeated_request_creates_one_flow(sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_creates_one_flow_on_postgresql() {
    repeated_request_creates_one_flow(postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_flow_is_collapsed() {
    let tables = sqlite().await;
    let client = tables.open();
    let mut tasks = serde_json::Map::new();
    tasks.insert("split".into(), json!({"class": "split"}));
    for n in 0..998 {
        tasks.insert(format!("part {n}"), json!({"class": "resize", "after": "split"}));
    }
    let all: Vec<_> = (0..998).map(|n| format!("part {n}")).collect();
    tasks.insert("join".into(), json!({"class": "join", "after": all}));
    let flow = json!({"correlation_id": "images", "tasks": tasks});
    let created = client.post("/api/v1/flows", &flow).await.ok();
    let split = TaskId(created["tasks"]["split"].as_i64().unwrap());
    tables.store.cancel(&[split]).await.unwrap();
    let page = client.get("/flows/images").await.text;
    assert!(page.contains("998 × resize") && page.contains("drawn as one node"), "{page}");
    assert_eq!(page.matches(r#"<a class="node"#).count(), 3);
}
