//! Protection against other sites, and the security headers.

use serde_json::json;
use task_engine_web::{Access, Dashboard, Role};

use crate::client::{Client, HOST, sqlite};

async fn tasks_of(client: &Client) -> usize {
    client.get("/api/v1/tasks").await.ok()["tasks"].as_array().unwrap().len()
}

const TASK: &str = r#"{"class":"a"}"#;

#[tokio::test]
async fn cross_site_changes_are_refused() {
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
        // A cookie reveals a browser without other headers.
        &[("cookie", "task_engine_theme=dark")],
    ] {
        let mut other = client.clone();
        for (name, value) in headers {
            other = other.header(name, value);
        }
        let response = other.ask("POST", "/api/v1/tasks", Some(TASK)).await;
        let detail = response.problem(403)["detail"].to_string();
        assert!(detail.contains("must come from a page"), "{headers:?}: {detail}");
        let response = other.ask("POST", "/operations/retry", Some("ids=1")).await;
        assert_eq!(response.status, 403, "{headers:?}");
    }
    let response = client.header("cookie", "a=b").delete("/api/v1/tasks/1").await;
    response.problem(403);
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
async fn foreign_host_names_are_refused() {
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
async fn no_cors_headers_are_sent() {
    let tables = sqlite().await;
    let client = tables.open().header("origin", "http://evil.test");
    let client = client.header("access-control-request-method", "POST");
    let client = client.header("access-control-request-headers", "authorization, content-type");
    for route in Dashboard::routes() {
        let path = route.path.replace("{id}", "1").replace(['{', '}'], "");
        for method in ["OPTIONS", "GET"] {
            let response = client.head(method, &path, None).await;
            let allows =
                response.headers.keys().find(|name| name.as_str().starts_with("access-control"));
            assert_eq!(allows, None, "{method} {path}");
            if method == "OPTIONS" {
                assert_eq!(response.status, 405, "{path}");
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
async fn every_response_has_security_headers() {
    let tables = sqlite().await;
    for client in [tables.open(), tables.with(Access::closed())] {
        let nowhere = [("GET", "/nowhere"), ("GET", "/api/v1/nowhere"), ("PUT", "/login")];
        let routes: Vec<_> =
            Dashboard::routes().iter().map(|route| (route.method, route.path)).collect();
        for (method, path) in routes.into_iter().chain(nowhere) {
            let path = path.replace("{id}", "1").replace(['{', '}'], "");
            let body = (method != "GET").then_some("{}");
            let response = client.head(method, &path, body).await;
            for (name, value) in HEADERS {
                assert_eq!(response.header(name), value, "{method} {path}");
            }
            let caching = response.header("cache-control");
            let fits = if path.starts_with("/assets/") && response.status.is_success() {
                !caching.is_empty()
            } else {
                matches!(caching, "no-store" | "no-cache")
            };
            assert!(fits, "{method} {path}: cache-control {caching:?}");
        }
    }
}

#[tokio::test]
async fn task_content_is_not_markup() {
    let tables = sqlite().await;
    let client = tables.open();
    let nasty = "</script><script>alert(1)</script>";
    let task = json!({"class": nasty, "parameters": {"x": nasty}, "queue": nasty});
    client.post("/api/v1/tasks", &task).await.ok();
    let response = client.get("/api/v1/tasks/1").await;
    assert_eq!(response.header("content-type"), "application/json");
    assert_eq!(response.json()["class"], nasty);
    assert!(!client.get("/").await.text.contains("<script>alert"));
}
