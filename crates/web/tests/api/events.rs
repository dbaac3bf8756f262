//! Server-sent events.

use futures_util::StreamExt as _;
use serde_json::json;

use crate::client::sqlite;

#[tokio::test(flavor = "multi_thread")]
async fn change_sends_an_event() {
    let tables = sqlite().await;
    let client = tables.open();
    let mut events = client.stream("/api/v1/events").await;
    let first = String::from_utf8(events.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(first.contains("event: stats"), "{first}");
    client.post("/api/v1/tasks", &json!({"class": "a"})).await.ok();
    let second = String::from_utf8(events.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(second.contains(r#""newest_task":1"#), "{second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_events_have_no_data() {
    let tables = sqlite().await;
    let mut events = tables.open().stream("/events").await;
    let first = String::from_utf8(events.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(first.contains("event: stats") && first.contains("data: {}"), "{first}");
}
