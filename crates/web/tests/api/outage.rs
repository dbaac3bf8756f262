//! Without its database, the dashboard reports an error without internals.

use std::sync::Arc;

use task_engine::postgres::PgStore;
use task_engine_store::contract::Store;
use task_engine_test_harness::TestServer;
use task_engine_web::{Access, Dashboard, Role};

use crate::client::{Client, Response};

const INTERNALS: [&str; 12] = [
    "postgres",
    "127.0.0.1:",
    "select",
    "insert",
    "update ",
    "task_engine.",
    "connection refused",
    "os error",
    "sqlstate",
    "panicked",
    ".sql",
    "backtrace",
];

#[tokio::test(flavor = "multi_thread")]
async fn errors_hide_internals() {
    let server = TestServer::start();
    let url = server.create_database().await;
    let store: Arc<dyn Store> = Arc::new(PgStore::connect(&url).await.unwrap());
    store.migrate().await.unwrap();
    let client = Client::of(Dashboard::new(Arc::clone(&store), Access::open_to(Role::Admin)));
    assert_eq!(client.get("/readyz").await.status, 200);
    server.stop_immediate();
    assert_eq!(client.get("/livez").await.status, 200, "it stays alive");
    client.get("/readyz").await.problem(503);
    let mut seen = 0;
    for route in Dashboard::routes() {
        let endless = route.path.ends_with("/events");
        if endless || matches!(route.path, "/livez" | "/readyz" | "/login" | "/logout" | "/theme") {
            continue;
        }
        let path = route.path.replace("{id}", "1").replace(['{', '}'], "");
        let response = match route.method {
            "GET" => client.get(&path).await,
            method => client.ask(method, &path, Some(body_for(&path))).await,
        };
        hides_internals(&path, &response);
        if response.status == 503 {
            assert_eq!(response.header("retry-after"), "5", "{path}");
            seen += 1;
        } else {
            assert!(!response.status.is_server_error(), "{path}: {response:?}");
        }
    }
    assert!(seen > 25, "only {seen} routes were unavailable");
    server.start_again();
    assert_eq!(client.get("/readyz").await.status, 200, "it is there again");
}

fn body_for(path: &str) -> &'static str {
    match path {
        "/api/v1/tasks" => r#"{"class":"a"}"#,
        "/api/v1/tasks/1" => r#"{"priority":1}"#,
        "/api/v1/tokens" => r#"{"name":"a","role":"viewer"}"#,
        "/api/v1/schedules" => r#"{"name":"a","rule":"@daily","class":"a"}"#,
        "/api/v1/schedules/name" => r#"{"rule":"@daily","class":"a"}"#,
        path if path.starts_with("/api/v1/tasks/1") => "{}",
        path if path.starts_with("/api/v1/tasks/") => r#"{"filter":"status=failed"}"#,
        _ => "{}",
    }
}

fn hides_internals(path: &str, response: &Response) {
    if response.status.is_success() {
        return;
    }
    let text = response.text.to_lowercase();
    for word in INTERNALS {
        assert!(!text.contains(word), "{path} says {word:?}: {}", response.text);
    }
}
