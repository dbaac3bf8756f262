//! Limits: set, read, cleared and opened.

use std::time::Duration;

use serde_json::{Value, json};
use task_engine_core::limit::{
    ClosedKey, DeclaredLimits, Limit, LimitId, LimitOptions, LimitTarget,
};

use crate::client::{Tables, postgres, sqlite};

async fn declare(tables: &Tables, max: u32) {
    let limit = Limit {
        name: "sync".into(),
        target: LimitTarget::Class("sync".into()),
        options: LimitOptions::max(max).key("customer"),
    };
    let declared = DeclaredLimits { classes: vec!["sync".into()], limits: vec![limit] };
    tables.store.declare_limits(&declared).await.expect("declare_limits");
}

async fn limits_are_written(tables: Tables) {
    let client = tables.open();
    let new = json!({"queue": "mail", "max": 5, "rate": {"max": 100, "per": "1s", "even": true}});
    let added = client.ask("PUT", "/api/v1/limits/mail", Some(&new.to_string())).await;
    assert_eq!(added.status, 201, "{}", added.text);
    let report = added.ok();
    assert_eq!(report["counts"], json!({"added": 1}));
    assert_eq!(
        report["message"],
        "Limit mail was added: for queue mail, at most 5 running, at most 100 starts in 1s, spread evenly."
    );
    // What was read can be written.
    let read = client.get("/api/v1/limits/mail").await.ok();
    assert_eq!(read["rate"], json!({"max": 100, "per_ms": 1000, "even": true}));
    let again = json!({"queue": "mail", "max": read["max"], "rate": read["rate"]}).to_string();
    let unchanged = client.ask("PUT", "/api/v1/limits/mail", Some(&again)).await;
    assert_eq!(unchanged.ok()["counts"], json!({"unchanged": 1}));
    // All options are replaced, the target stays.
    let less = json!({"max": 2}).to_string();
    let changed = client.ask("PUT", "/api/v1/limits/mail", Some(&less)).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    let limit = client.get("/api/v1/limits/mail").await.ok();
    assert_eq!(limit["target"], json!({"queue": "mail"}));
    assert_eq!((&limit["max"], &limit["rate"]), (&json!(2), &Value::Null));
    assert_eq!((&limit["running"], &limit["keys"]), (&json!(0), &json!([])));

    for (body, status, pointer, words) in [
        (json!({"max": 0}), 400, "/max", "1 to 10000, not 0"),
        (json!({"max": "2"}), 400, "/max", "found a string"),
        (json!({"max": -1}), 400, "/max", "a whole number from 1 to 10000"),
        (json!({"rate": {"max": 1}}), 400, "/rate/per", "missing"),
        (json!({"rate": {"max": 1, "per": "soon"}}), 400, "/rate/per", "not a duration"),
        (json!({"rate": {"max": 0, "per": "1s"}}), 400, "/rate", "1 to 1000000"),
        (json!({"max": 1, "weights": {"a": "b"}}), 400, "/weights", "whole numbers"),
        (json!({"max": 1, "weights": {"a": 2}}), 400, "/weights", "needs a key"),
        (json!({"maxx": 1}), 400, "/maxx", "did you mean max?"),
        (json!({}), 400, "", "has no effect"),
        (json!({"class": "a", "queue": "b"}), 400, "/queue", "give one"),
        (json!({"class": "a", "max": 1}), 409, "", "applies to queue mail"),
    ] {
        let reply = client.ask("PUT", "/api/v1/limits/mail", Some(&body.to_string())).await;
        let problem = reply.problem(status);
        assert_eq!(problem["pointer"].as_str().unwrap_or_default(), pointer, "{body}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{body}: {detail}");
    }
    let problem = client.get("/api/v1/limits/mial").await.problem(404);
    assert!(problem["detail"].as_str().unwrap().contains("did you mean mail?"), "{problem}");
    let cleared = client.ask("DELETE", "/api/v1/limits/mail?reason=done", None).await.ok();
    assert_eq!(cleared["counts"], json!({"removed": 1}));
    client.ask("DELETE", "/api/v1/limits/mail", None).await.problem(404);
    assert_eq!(client.get("/api/v1/limits").await.ok()["limits"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_written_on_sqlite() {
    limits_are_written(sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_written_on_postgresql() {
    limits_are_written(postgres().await).await;
}

async fn declared_limits_and_closed_keys(tables: Tables) {
    let client = tables.open();
    declare(&tables, 2).await;
    let problem = client.ask("DELETE", "/api/v1/limits/sync", None).await.problem(409);
    assert!(problem["detail"].as_str().unwrap().contains("ngines declare limit sync"));
    let own = json!({"max": 9, "key": "customer"}).to_string();
    client.ask("PUT", "/api/v1/limits/sync", Some(&own)).await.ok();
    declare(&tables, 3).await;
    let limit = client.get("/api/v1/limits/sync").await.ok();
    assert_eq!((&limit["max"], &limit["set_by_operator"]), (&json!(9), &json!(true)));
    assert_eq!(limit["declared"], json!({"key": "customer", "max": 3}));

    let id = LimitId(i32::try_from(limit["id"].as_i64().unwrap()).unwrap());
    let closed = ClosedKey {
        limit: id,
        key: "acme".into(),
        closed_for: Duration::from_secs(600),
        reason: "429 too many requests".into(),
    };
    tables.store.close_limit_keys(&[closed]).await.unwrap();
    let limit = client.get("/api/v1/limits/sync").await.ok();
    assert_eq!(limit["closed_keys"], 1, "{limit}");
    let key = &limit["keys"][0];
    assert_eq!((&key["key"], &key["waits_for"]), (&json!("acme"), &json!("closed")));
    assert_eq!(key["closed"]["because"], "429 too many requests");
    let page = client.get("/limits/sync").await.text;
    for words in ["429 too many requests", "/operations/open-limit", "closed", "Declared"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let metrics = client.get("/metrics").await.text;
    for line in [
        r#"task_engine_limit_running{limit="sync"} 0"#,
        r#"task_engine_limit_blocked{limit="sync"} 0"#,
        r#"task_engine_limit_closed_keys{limit="sync"} 1"#,
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} in\n{metrics}");
    }
    let open = json!({"key": "acme"});
    let opened = client.post("/api/v1/limits/sync/open", &open).await.ok();
    assert_eq!(opened["message"], "Limit sync: customer acme was opened.");
    let again = client.post("/api/v1/limits/sync/open", &open).await.ok();
    assert_eq!(again["counts"], json!({"not_closed": 1}));
    let cleared = client.ask("DELETE", "/api/v1/limits/sync", None).await.ok();
    assert_eq!(cleared["counts"], json!({"cleared": 1}));
    assert_eq!(client.get("/api/v1/limits/sync").await.ok()["max"], 3);
    let audit = client.get("/api/v1/audit?action=limits").await.ok();
    let actions: Vec<_> =
        audit["entries"].as_array().unwrap().iter().map(|it| it["action"].as_str()).collect();
    assert!(actions.contains(&Some("limits.open")), "{actions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_limits_are_overridden_on_sqlite() {
    declared_limits_and_closed_keys(sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_limits_are_overridden_on_postgresql() {
    declared_limits_and_closed_keys(postgres().await).await;
}
