//! Parameters that do not fit the schema of their class.

use std::time::Duration;

use serde_json::{Value, json};
use task_engine_conformance::fixture::{LONG_LEASE, new_instance};
use task_engine_core::instance::NewInstance;
use task_engine_core::task::TaskOptions;

use crate::client::{Client, Tables, postgres, sqlite};

async fn tables_with_schema(tables: Tables) -> Tables {
    let schema = json!({
        "type": "object",
        "properties": {"to": {"type": "string"}, "card": {"type": "integer"}},
        "required": ["to"],
    });
    let options = TaskOptions::default().schema(schema).secret(["card"]);
    let classes = [("send_mail".to_owned(), options)].into();
    let lease = LONG_LEASE.max(Duration::from_secs(60));
    let new = NewInstance { classes, lease, ..new_instance("engine") };
    tables.store.register(&new).await.expect("register");
    tables
}

async fn number(client: &Client) -> usize {
    client.get("/api/v1/tasks").await.ok()["tasks"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_checked_on_sqlite() {
    checked(tables_with_schema(sqlite().await).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_checked_on_postgres() {
    checked(tables_with_schema(postgres().await).await).await;
}

async fn checked(tables: Tables) {
    let client = tables.open();
    let bad = json!({"class": "send_mail", "parameters": {"to": 7}});
    let good = json!({"class": "send_mail", "parameters": {"to": "ada"}, "after": "1h"});
    let pointer = |problem: &Value| problem["pointer"].as_str().unwrap_or_default().to_owned();

    let problem = client.post("/api/v1/tasks", &bad).await.problem(400);
    assert_eq!(pointer(&problem), "/parameters/to");
    assert_eq!(
        problem["detail"],
        "Class send_mail does not accept these parameters: /to: expected a string, found a number."
    );
    let problem = client.post("/api/v1/tasks", &json!([good, bad])).await.problem(400);
    assert_eq!(pointer(&problem), "/1/parameters/to");
    let problem = client.post("/api/v1/tasks", &json!({"tasks": [good, bad]})).await.problem(400);
    assert_eq!(pointer(&problem), "/tasks/1/parameters/to");
    let flow = json!({"tasks": {"a/b": {"class": "send_mail"}}});
    let problem = client.post("/api/v1/flows", &flow).await.problem(400);
    assert_eq!(pointer(&problem), "/tasks/a~1b/parameters/to");
    let secret = json!({"class": "send_mail", "parameters": {"to": "a", "card": "4711-0815"}});
    let problem = client.post("/api/v1/tasks", &secret).await.problem(400);
    assert!(!problem.to_string().contains("4711"), "{problem}");
    let schedule = json!({"name": "s", "rule": "every 1h", "class": "send_mail"});
    let problem = client.post("/api/v1/schedules", &schedule).await.problem(400);
    assert_eq!(pointer(&problem), "/parameters/to");
    assert_eq!(number(&client).await, 0, "nothing was created");
    client.get("/api/v1/schedules/s").await.problem(404);

    let task = client.post("/api/v1/tasks", &good).await.ok()["tasks"][0]["id"].clone();
    let path = format!("/api/v1/tasks/{task}");
    let edit = json!({"parameters": {"card": 1}}).to_string();
    let problem = client.ask("PATCH", &path, Some(&edit)).await.problem(400);
    assert_eq!(pointer(&problem), "/parameters/to");
    client.ask("PATCH", &format!("{path}?check=false"), Some(&edit)).await.ok();
    client.ask("PATCH", &path, Some(r#"{"priority": 3}"#)).await.ok();

    for (path, body) in [
        ("/api/v1/tasks?check=false", &bad),
        ("/api/v1/flows?check=false", &flow),
        ("/api/v1/schedules?check=false", &schedule),
    ] {
        client.post(path, body).await.ok();
    }
    let replaced = json!({"rule": "every 2h", "class": "send_mail"}).to_string();
    client.ask("PUT", "/api/v1/schedules/s", Some(&replaced)).await.ok();
    let replaced = json!({"rule": "every 2h", "class": "send_mail", "parameters": {"to": 1}});
    let replaced = replaced.to_string();
    client.ask("PUT", "/api/v1/schedules/s", Some(&replaced)).await.problem(400);
    client.ask("PUT", "/api/v1/schedules/s?check=false", Some(&replaced)).await.ok();
    let problem = client.post("/api/v1/tasks?check=maybe", &good).await.problem(400);
    assert_eq!(problem["parameter"], "check");
}
