//! A dashboard with its own store, and an HTTP client.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use serde_json::Value;
use task_engine::postgres::PgStore;
use task_engine::sqlite::SqliteStore;
use task_engine_store::contract::Store;
use task_engine_store::token::{NewToken, Role, TokenSecret};
use task_engine_test_harness::TestServer;
use task_engine_web::{Access, Dashboard};
use tower::ServiceExt as _;

pub(crate) const HOST: &str = "127.0.0.1:8642";

/// A migrated store and its directory.
pub(crate) struct Tables {
    pub(crate) store: Arc<dyn Store>,
    _directory: Option<tempfile::TempDir>,
}

pub(crate) async fn sqlite() -> Tables {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path().join("tasks.db")).expect("a file");
    store.migrate().await.expect("tables");
    Tables { store: Arc::new(store), _directory: Some(directory) }
}

pub(crate) async fn postgres() -> Tables {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.expect("a connection");
    store.migrate().await.expect("tables");
    Tables { store: Arc::new(store), _directory: None }
}

impl Tables {
    /// Anonymous requests have the role admin.
    pub(crate) fn open(&self) -> Client {
        self.with(Access::open_to(Role::Admin))
    }

    pub(crate) fn with(&self, access: Access) -> Client {
        let dashboard = Dashboard::new(Arc::clone(&self.store), access)
            .time_zone(jiff::tz::TimeZone::UTC)
            .engine_metrics(|| "# TYPE of_the_engine counter\nof_the_engine 1\n".to_owned());
        Client::of(dashboard)
    }

    pub(crate) async fn token(&self, name: &str, role: Role) -> String {
        let secret = TokenSecret::generate().expect("random numbers");
        let token = NewToken::new(name, role, secret.hash(), None).expect("a token");
        self.store.add_token(&token).await.expect("add_token");
        secret.text().to_owned()
    }
}

/// A client with fixed headers.
#[derive(Clone)]
pub(crate) struct Client {
    router: Router,
    headers: Vec<(String, String)>,
}

/// A response with its body.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|why| panic!("{why}: {} {}", self.status, self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("plain text"))
    }

    /// The body of a success.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, self.text);
        self.json()
    }

    /// The problem details of an error.
    #[track_caller]
    pub(crate) fn problem(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
        problem
    }
}

impl Client {
    pub(crate) fn of(dashboard: Dashboard) -> Self {
        Self { router: dashboard.router(), headers: Vec::new() }
    }

    pub(crate) fn header(&self, name: &str, value: &str) -> Self {
        let mut other = self.clone();
        other.headers.push((name.to_owned(), value.to_owned()));
        other
    }

    pub(crate) fn token(&self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Without reading the body, which may have no end.
    pub(crate) async fn head(&self, method: &str, path: &str, body: Option<&str>) -> Response {
        let response = self.send(method, path, body).await;
        let (parts, _) = response.into_parts();
        Response { status: parts.status, headers: parts.headers, text: String::new() }
    }

    pub(crate) async fn stream(&self, path: &str) -> axum::body::BodyDataStream {
        self.send("GET", path, None).await.into_body().into_data_stream()
    }

    async fn send(&self, method: &str, path: &str, body: Option<&str>) -> axum::response::Response {
        let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap());
        request = request.uri(path);
        let has = |wanted: &str| self.headers.iter().any(|(name, _)| name == wanted);
        if !has("host") {
            request = request.header("host", HOST);
        }
        if body.is_some() && !has("content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body.unwrap_or_default().to_owned())).unwrap();
        self.router.clone().oneshot(request).await.expect("a router cannot fail")
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Response {
        let (parts, body) = self.send(method, path, body).await.into_parts();
        let bytes = axum::body::to_bytes(body, 64 << 20).await.expect("a body");
        let text = String::from_utf8(bytes.into()).expect("UTF-8");
        Response { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.ask("GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.ask("POST", path, Some(&body.to_string())).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Response {
        self.ask("DELETE", path, None).await
    }
}
