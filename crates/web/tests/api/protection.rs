//! What no page of another site may do, and what every answer says.

use serde_json::json;
use task_engine_web::{Access, Dashboard, Role};

use crate::client::{Client, HOST, sqlite};

async fn tasks_of(client: &Client) -> usize {
    client.get("/api/v1/tasks").await.ok()["tasks"].as_array().unwrap().len()
}

const TASK: &str = r#"{"class":"a"}"#;

#[tokio::test]
async fn other_sites_change_nothing() {
    let tables = sqlite().await;
    let client = tables.open();
    for headers in [
        &[("origin", "http://evil.test")][..],
        &[("origin", "http://evil.test"), ("content-type", "text/plain")],
        &[("origin", "null")],
        &[("origin", "http://127.0.0.1:9999")],
        &[("origin", "https://127.0.0.1.evil.test")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1:8642")],
        &[("content-type", "text/plain")],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "multipart/form-data; boundary=x")],
        &[("content-type", "text/plain; application/json")],
        // A browser that says nothing else shows that it is one by its cookie.
        &[("cookie", "task_engine_theme=dark")],
    ] {
        let mut other = client.clone();
        for (name, value) in headers {
            other = other.header(name, value);
        }
        let told = other.ask("POST", "/api/v1/tasks", Some(TASK)).await;
        let detail = told.problem(403)["detail"].to_string();
        assert!(detail.contains("does not come from a page"), "{headers:?}: {detail}");
        let told = other.ask("POST", "/actions/retry", Some("ids=1")).await;
        assert_eq!(told.status, 403, "{headers:?}");
    }
    let told = client.header("cookie", "a=b").delete("/api/v1/tasks/1").await;
    told.problem(403);
    assert_eq!(tasks_of(&client).await, 0);
    for headers in [
        &[("sec-fetch-site", "same-origin")][..],
        &[("origin", "http://127.0.0.1:8642")],
        &[("origin", "http://127.0.0.1:8642"), ("cookie", "a=b")],
        &[("content-type", "application/json; charset=utf-8")],
    ] {
        let mut own = client.clone();
        for (name, value) in headers {
            own = own.header(name, value);
        }
        assert_eq!(own.ask("POST", "/api/v1/tasks", Some(TASK)).await.status, 201, "{headers:?}");
    }
    assert_eq!(tasks_of(&client).await, 4);
}

#[tokio::test]
async fn names_that_are_not_of_this_server_are_refused() {
    let tables = sqlite().await;
    let named = Access::open_to(Role::Admin).public_url("https://tasks.example.com").unwrap();
    let client = tables.with(named);
    for host in ["evil.test", "localhost.evil.test", "127.0.0.1.evil.test", "evil.test:8642", ""] {
        let other = client.header("host", host);
        for path in ["/api/v1/tasks", "/metrics", "/livez", "/events", "/api/v1/openapi.json"] {
            other.get(path).await.problem(421);
        }
        assert_eq!(other.get("/").await.status, 421, "{host}");
        other.ask("POST", "/api/v1/tasks", Some(TASK)).await.problem(421);
    }
    for host in ["tasks.example.com", "localhost:8642", "[::1]:8642", HOST] {
        client.header("host", host).get("/api/v1/tasks").await.ok();
    }
}

#[tokio::test]
async fn no_other_origin_reads_anything() {
    let tables = sqlite().await;
    let client = tables.open().header("origin", "http://evil.test");
    let client = client.header("access-control-request-method", "POST");
    let client = client.header("access-control-request-headers", "authorization, content-type");
    for route in Dashboard::routes() {
        let path = route.path.replace("{id}", "1").replace(['{', '}'], "");
        for method in ["OPTIONS", "GET"] {
            let told = client.head(method, &path, None).await;
            let allows =
                told.headers.keys().find(|name| name.as_str().starts_with("access-control"));
            assert_eq!(allows, None, "{method} {path}");
            if method == "OPTIONS" {
                assert_eq!(told.status, 405, "{path}");
            }
        }
    }
}

const HEADERS: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; \
         require-trusted-types-for 'script'; trusted-types task-engine",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

#[tokio::test]
async fn every_answer_is_on_its_guard() {
    let tables = sqlite().await;
    for client in [tables.open(), tables.with(Access::closed())] {
        let nowhere = [("GET", "/nowhere"), ("GET", "/api/v1/nowhere"), ("PUT", "/login")];
        let routes: Vec<_> =
            Dashboard::routes().iter().map(|route| (route.method, route.path)).collect();
        for (method, path) in routes.into_iter().chain(nowhere) {
            let path = path.replace("{id}", "1").replace(['{', '}'], "");
            let body = (method != "GET").then_some("{}");
            let told = client.head(method, &path, body).await;
            for (name, value) in HEADERS {
                assert_eq!(told.header(name), value, "{method} {path}");
            }
            let keeps = told.header("cache-control");
            let fits = if path.starts_with("/assets/") && told.status.is_success() {
                !keeps.is_empty()
            } else {
                matches!(keeps, "no-store" | "no-cache")
            };
            assert!(fits, "{method} {path}: cache-control {keeps:?}");
        }
    }
}

#[tokio::test]
async fn what_is_in_a_task_stays_text() {
    let tables = sqlite().await;
    let client = tables.open();
    let nasty = "</script><script>alert(1)</script>";
    let task = json!({"class": nasty, "parameters": {"x": nasty}, "queue": nasty});
    client.post("/api/v1/tasks", &task).await.ok();
    let told = client.get("/api/v1/tasks/1").await;
    assert_eq!(told.header("content-type"), "application/json");
    assert_eq!(told.json()["class"], nasty);
    assert!(!client.get("/").await.text.contains("<script>alert"));
}
