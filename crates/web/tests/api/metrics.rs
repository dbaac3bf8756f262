//! Metrics in the format of Prometheus.

use serde_json::json;
use task_engine_web::{Access, Role};

use crate::client::sqlite;

#[tokio::test(flavor = "multi_thread")]
async fn store_and_engine_are_measured() {
    let tables = sqlite().await;
    let client = tables.open();
    let tasks = json!([{"class": "a", "queue": "odd \" \\ name"}, {"class": "a"}, {"class": "b"},
        {"class": "b", "after": "1h"}]);
    client.post("/api/v1/tasks", &tasks).await.ok();
    client.post("/api/v1/queues/default/pause", &json!({})).await.ok();
    client.post("/api/v1/tasks/cancel", &json!({"ids": [3]})).await.ok();
    let response = client.get("/metrics").await;
    assert_eq!(response.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let text = response.text;
    for line in [
        r#"task_engine_queue_due{queue="default"} 1"#,
        r#"task_engine_queue_due{queue="odd \" \\ name"} 1"#,
        r#"task_engine_queue_later{queue="default"} 1"#,
        r#"task_engine_queue_running{queue="default"} 0"#,
        r#"task_engine_queue_paused{queue="default"} 1"#,
        r#"task_engine_queue_paused{queue="odd \" \\ name"} 0"#,
        "task_engine_tasks_failed 0",
        "task_engine_tasks_cancelled 1",
        "task_engine_newest_task_id 4",
        "task_engine_engines_alive 0",
        "task_engine_engines_to_recover 0",
        "of_the_engine 1",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
    }
    assert!(
        text.contains(r#"task_engine_oldest_due_seconds{queue="default",class="a"} "#),
        "{text}"
    );
    assert!(!text.contains(r#"queue="default",class="b""#), "what is not due has not waited");
    is_exposition(&text);
    // Needs the role viewer.
    let closed = tables.with(Access::closed());
    closed.get("/metrics").await.problem(401);
    let token = tables.token("prometheus", Role::Viewer).await;
    assert_eq!(closed.token(&token).get("/metrics").await.status, 200);
}

/// Each family once, with its type before its samples, and numbers as values.
fn is_exposition(text: &str) {
    let mut families = std::collections::BTreeSet::new();
    let mut family = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap();
            assert!(families.insert(family), "{family} twice");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            assert_eq!(name, family, "{line}");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(families.len() > 10, "{families:?}");
}
