//! A read-only database: pages work, changes are refused.

use std::sync::Arc;

use serde_json::json;
use task_engine::postgres::PgStore;
use task_engine_core::json::Json;
use task_engine_core::task::NewTask;
use task_engine_store::contract::Store;
use task_engine_test_harness::TestServer;
use task_engine_web::{Access, Dashboard, Role};

use crate::client::Client;

#[tokio::test(flavor = "multi_thread")]
async fn read_only_database_refuses_changes() {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    store.create(&[NewTask::new("a", Json::empty_object()).unwrap()]).await.unwrap();
    let only_read = format!("{url}?options=-cdefault_transaction_read_only%3Don");
    let store: Arc<dyn Store> = Arc::new(PgStore::connect(&only_read).await.unwrap());
    let client = Client::of(Dashboard::new(store, Access::open_to(Role::Admin)));
    for path in ["/", "/tasks", "/tasks/1", "/queues", "/schedules", "/audit", "/api/v1/stats"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    let response = client.post("/api/v1/tasks/1/cancel", &json!({})).await;
    let detail = response.problem(503)["detail"].to_string();
    assert!(detail.contains("is read-only"), "{detail}");
}
