//! Many of everything make no page that nobody can read.

use serde_json::json;

use crate::client::sqlite;

#[tokio::test]
async fn a_page_of_queues_has_an_end() {
    let tables = sqlite().await;
    let client = tables.open();
    let tasks: Vec<_> = (0..250).map(|n| json!({"class": "a", "queue": format!("q{n}")})).collect();
    client.post("/api/v1/tasks", &json!(tasks)).await.ok();
    let page = client.get("/queues").await.text;
    assert!(page.contains("200 of 250 queues"), "{page}");
    assert_eq!(page.matches("<tr data-key=").count(), 200);
}
