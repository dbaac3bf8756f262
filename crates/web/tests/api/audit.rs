//! The audit contains changes of operators, not created tasks or refused requests.

use serde_json::{Value, json};
use task_engine_core::task::TaskId;
use task_engine_store::audit::AuditFilter;

use crate::client::{Tables, postgres, sqlite};

async fn rows(tables: &Tables) -> usize {
    tables.store.audit_page(&AuditFilter::newest(1000)).await.unwrap().len()
}

async fn volume(tables: Tables) {
    let client = tables.open();
    let created = client.post("/api/v1/tasks", &json!({"class": "a", "after": "1h"})).await.ok();
    let id = created["tasks"][0]["id"].as_i64().unwrap();
    let keyed = client.header("idempotency-key", "k");
    keyed.post("/api/v1/tasks", &json!({"class": "b"})).await.ok();
    keyed.post("/api/v1/tasks", &json!({"class": "b", "priority": 1})).await.problem(422);
    let context = tables.store.task(TaskId(id)).await.unwrap().unwrap().context;
    assert_eq!(context.decode::<Value>().unwrap()["created_by"], "anonymous");

    let schedule = json!({"rule": "@daily", "class": "a"});
    for (method, path, body, status) in [
        ("POST", "/api/v1/tasks/999/retry", json!({}), 404),
        ("POST", "/api/v1/tasks/999/cancel", json!({}), 404),
        ("PATCH", "/api/v1/tasks/999", json!({"priority": 1}), 404),
        ("POST", "/api/v1/schedules/none/pause", json!({}), 404),
        ("POST", "/api/v1/schedules/none/run", json!({}), 404),
        ("POST", "/api/v1/instances/none/recover", json!({}), 404),
    ] {
        client.ask(method, path, Some(&body.to_string())).await.problem(status);
    }
    client.delete("/api/v1/tokens/none").await.problem(404);
    client.delete("/api/v1/tasks/999").await.problem(404);
    assert_eq!(rows(&tables).await, 0);

    client.ask("PUT", "/api/v1/schedules/s", Some(&schedule.to_string())).await.ok();
    let named = json!({"name": "s", "rule": "@daily", "class": "a"});
    client.post("/api/v1/schedules", &named).await.problem(409);
    client.post("/api/v1/tokens", &json!({"name": "t", "role": "viewer"})).await;
    client.post("/api/v1/tokens", &json!({"name": "t", "role": "viewer"})).await.problem(409);
    client.post(&format!("/api/v1/tasks/{id}/cancel"), &json!({"reason": "why not"})).await.ok();
    let path = format!("/api/v1/tasks/{id}");
    client.ask("PATCH", &path, Some(r#"{"priority": 1}"#)).await.problem(409);
    assert_eq!(rows(&tables).await, 6, "three actions, each before and after");

    let of_task = client.get(&format!("/api/v1/audit?task={id}")).await.ok();
    assert_eq!(of_task["entries"].as_array().unwrap().len(), 2, "{of_task}");
    let count = async |query: &str| {
        let page = client.get(&format!("/api/v1/audit?{query}")).await.ok();
        page["entries"].as_array().unwrap().len()
    };
    assert_eq!(count("action=schedules").await, 2);
    assert_eq!(count("action=tokens.create&actor=nony&since=2020-01-01T00:00:00Z").await, 2);
    assert_eq!(count("until=2020-01-01T00:00:00Z").await, 0);
    assert_eq!(count("actor=%00").await, 0);
    client.get("/api/v1/audit?since=soon").await.problem(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_volume_on_sqlite() {
    volume(sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_volume_on_postgres() {
    volume(postgres().await).await;
}
