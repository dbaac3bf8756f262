//! Pages with many rows are limited.

use serde_json::json;

use crate::client::sqlite;

#[tokio::test]
async fn queues_page_is_limited() {
    let tables = sqlite().await;
    let client = tables.open();
    let tasks: Vec<_> = (0..250).map(|n| json!({"class": "a", "queue": format!("q{n}")})).collect();
    client.post("/api/v1/tasks", &json!(tasks)).await.ok();
    let page = client.get("/queues").await.text;
    assert!(page.contains("200 of 250 queues"), "{page}");
    assert_eq!(page.matches("<tr data-key=").count(), 200);
}
