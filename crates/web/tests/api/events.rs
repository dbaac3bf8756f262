//! Programs hear that something has changed.

use futures_util::StreamExt as _;
use serde_json::json;

use crate::client::sqlite;

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_told() {
    let tables = sqlite().await;
    let client = tables.open();
    let mut events = client.stream("/api/v1/events").await;
    let first = String::from_utf8(events.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(first.contains("event: figures"), "{first}");
    client.post("/api/v1/tasks", &json!({"class": "a"})).await.ok();
    let second = String::from_utf8(events.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(second.contains(r#""newest_task":1"#), "{second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_hear_no_more_than_that() {
    let tables = sqlite().await;
    let mut events = tables.open().stream("/events").await;
    let first = String::from_utf8(events.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(first.contains("event: figures") && first.contains("data: {}"), "{first}");
}
