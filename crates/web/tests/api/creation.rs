//! Idempotency keys and unique keys.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use task_engine_core::limit::{Limit, LimitOptions};

use crate::client::{Client, Tables, postgres, sqlite};

#[tokio::test(flavor = "multi_thread")]
async fn once_on_sqlite() {
    once(sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn once_on_postgres() {
    once(postgres().await).await;
}

async fn once(tables: Tables) {
    let client = tables.open();
    sixteen_at_once(&client).await;
    another_body(&client).await;
    many_with_one_key(&client).await;
    keys_of_their_own(&client).await;
    limits_are_in_context(&tables).await;
}

async fn count(client: &Client, class: &str) -> usize {
    let list = client.get(&format!("/api/v1/tasks?filter=class%3D{class}&limit=500")).await.ok();
    list["tasks"].as_array().unwrap().len()
}

async fn sixteen_at_once(client: &Client) {
    let keyed = client.header("idempotency-key", "8e03978e-40d5-43e8-bc93-6894a57f9324");
    let body = json!({"class": "once", "parameters": {"n": 1}, "after": "1h"});
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (keyed, body) = (keyed.clone(), body.clone());
        asking.spawn(async move { keyed.post("/api/v1/tasks", &body).await });
    }
    let response = asking.join_all().await;
    let new = response.iter().filter(|response| response.status == 201).count();
    assert_eq!(new, 1, "{response:?}");
    let ids: BTreeSet<i64> = response
        .into_iter()
        .map(|response| response.ok()["tasks"][0]["id"].as_i64().unwrap())
        .collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(count(client, "once").await, 1);
    // An equivalent body.
    let same = r#" { "after": "1h", "parameters" : {"n" : 1}, "class": "once" } "#;
    let same = keyed.ask("POST", "/api/v1/tasks", Some(same)).await;
    assert_eq!((same.status.as_u16(), same.json()["tasks"][0]["new"].clone()), (200, json!(false)));
    // Also after the task has ended.
    let id = *ids.first().unwrap();
    client.post(&format!("/api/v1/tasks/{id}/cancel"), &json!({})).await.ok();
    let after = keyed.post("/api/v1/tasks", &body).await.ok();
    assert_eq!(after["tasks"][0], json!({"id": id, "new": false, "outcome": "kept"}));
}

async fn another_body(client: &Client) {
    let keyed = client.header("idempotency-key", "another");
    keyed.post("/api/v1/tasks", &json!({"class": "body", "parameters": {"n": 1}})).await.ok();
    for other in [
        json!({"class": "body", "parameters": {"n": 2}}),
        json!({"class": "body", "parameters": {"n": 1}, "priority": 1}),
        json!([{"class": "body", "parameters": {"n": 1}}]),
    ] {
        let problem = keyed.post("/api/v1/tasks", &other).await.problem(422);
        assert!(problem["detail"].as_str().unwrap().contains("Idempotency-Key"), "{problem}");
    }
    assert_eq!(count(client, "body").await, 1);
}

async fn many_with_one_key(client: &Client) {
    let keyed = client.header("idempotency-key", "many");
    let tasks = |n: usize| -> Value { json!({"tasks": vec![json!({"class": "many"}); n]}) };
    let first = keyed.post("/api/v1/tasks", &tasks(150)).await.ok();
    let again = keyed.post("/api/v1/tasks", &tasks(150)).await.ok();
    let ids = |response: &Value| -> Vec<i64> {
        response["tasks"].as_array().unwrap().iter().map(|it| it["id"].as_i64().unwrap()).collect()
    };
    assert_eq!(ids(&first), ids(&again));
    assert_eq!(count(client, "many").await, 150);
    keyed.post("/api/v1/tasks", &tasks(149)).await.problem(422);
    keyed.post("/api/v1/tasks", &tasks(152)).await.problem(422);
    assert_eq!(count(client, "many").await, 150, "new tasks were removed again");
    assert_eq!(ids(&keyed.post("/api/v1/tasks", &tasks(150)).await.ok()), ids(&first));
}

async fn limits_are_in_context(tables: &Tables) {
    let client = tables.open();
    let limit = Limit::named("api", LimitOptions::max(1)).unwrap();
    tables.store.set_limit(&limit).await.unwrap();
    let body = json!({"class": "limited", "limits": {"api": "acme"}});
    let id = client.post("/api/v1/tasks", &body).await.ok()["tasks"][0]["id"].clone();
    let shown = client.get(&format!("/api/v1/tasks/{id}")).await.ok();
    assert_eq!(shown["context"]["limits"], json!({"api": "acme"}));
    let unknown = json!({"class": "limited", "limits": {"nope": null}});
    let problem = client.post("/api/v1/tasks", &unknown).await;
    assert!((400..500).contains(&problem.status.as_u16()), "{problem:?}");
}

async fn keys_of_their_own(client: &Client) {
    let keyed = client.header("idempotency-key", "k");
    keyed.post("/api/v1/tasks", &json!({"class": "own", "key": "x"})).await.problem(400);
    for bad in ["", " ", "é", &"x".repeat(256)] {
        let response = client.header("idempotency-key", bad);
        response.post("/api/v1/tasks", &json!({"class": "own"})).await.problem(400);
    }
    let twice = keyed.header("idempotency-key", "l");
    twice.post("/api/v1/tasks", &json!({"class": "own"})).await.problem(400);
    assert_eq!(count(client, "own").await, 0);

    let own = json!({"class": "own", "key": "x", "parameters": {"n": 1}, "after": "1h"});
    let first = client.post("/api/v1/tasks", &own).await;
    assert_eq!(first.status, 201);
    let id = first.json()["tasks"][0]["id"].clone();
    let mut other = own.clone();
    other["parameters"] = json!({"n": 2});
    let kept = client.post("/api/v1/tasks", &other).await;
    assert_eq!(kept.status, 200);
    assert_eq!(kept.json()["tasks"][0], json!({"id": id, "new": false, "outcome": "kept"}));
    other["on_conflict"] = json!("replace");
    let replaced = client.post("/api/v1/tasks", &other).await.ok();
    assert_eq!(replaced["tasks"][0]["outcome"], "replaced");
    let shown = client.get(&format!("/api/v1/tasks/{id}")).await.ok();
    assert_eq!(shown["parameters"], json!({"n": 2}));
    other["scope"] = json!("1 h");
    assert_eq!(client.post("/api/v1/tasks", &other).await.status, 200);
}
