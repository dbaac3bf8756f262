//! A dashboard with a new database and a simulated engine.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use serde_json::Value;
use task_engine::sqlite::SqliteStore;
use task_engine_conformance::fixture::{Fixture, TestEngine, new_instance, with_classes};
use task_engine_core::attempt::RetryAdvice;
use task_engine_core::attempt::{AttemptEnd, TaskError};
use task_engine_core::instance::NewInstance;
use task_engine_core::json::Json;
use task_engine_core::retry::RetryRule;
use task_engine_core::task::{NewTask, TaskId, TaskOptions, TaskStatus};
use task_engine_store::audit::AuditEntry;
use task_engine_store::contract::Store;
use task_engine_test_harness::TestServer;
use task_engine_web::{Access, Dashboard, Role};
use tempfile::TempDir;
use tower::ServiceExt;

pub(crate) struct Site {
    pub(crate) fixture: Fixture,
    router: Router,
    _folder: Option<TempDir>,
}

pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Site {
    pub(crate) async fn open() -> Self {
        Self::open_to(Role::Admin).await
    }

    pub(crate) async fn open_to(role: Role) -> Self {
        let folder = TempDir::new().unwrap();
        let store = SqliteStore::open(folder.path().join("tasks.db")).unwrap();
        let site = Self::over(Arc::new(store), role).await;
        Self { _folder: Some(folder), ..site }
    }

    pub(crate) async fn on_postgres() -> Self {
        let url = TestServer::shared().create_database().await;
        let store = task_engine::postgres::PgStore::connect(&url).await.unwrap();
        Self::over(Arc::new(store), Role::Admin).await
    }

    async fn over(store: Arc<dyn Store>, role: Role) -> Self {
        store.migrate().await.unwrap();
        let fixture = Fixture { store: Arc::clone(&store) };
        let site = Self { fixture, router: Router::new(), _folder: None };
        site.with_role(role)
    }

    /// The same tasks with another role.
    pub(crate) fn with_role(self, role: Role) -> Self {
        let store = Arc::clone(&self.fixture.store);
        let zone = jiff::tz::TimeZone::UTC;
        let dashboard = Dashboard::new(store, Access::open_to(role)).time_zone(zone);
        Self { router: dashboard.router(), ..self }
    }

    pub(crate) async fn get(&self, path: &str) -> Page {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = Request::post(path)
            .header("origin", "http://127.0.0.1:8642")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from(body))
            .unwrap();
        self.send(request).await
    }

    async fn send(&self, mut request: Request<Body>) -> Page {
        request.headers_mut().insert("host", "127.0.0.1:8642".parse().unwrap());
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Page { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) async fn create(&self, class: &str, parameters: &str) -> TaskId {
        let parameters = Json::parse(parameters).unwrap();
        self.fixture.create(NewTask::new(class, parameters).unwrap()).await
    }

    /// An engine that knows this class.
    pub(crate) async fn engine(&self, class: &str) -> TestEngine {
        self.fixture
            .register(with_classes(new_instance("web-1"), &[(class, RetryRule::default())]))
            .await
    }

    /// A live engine that publishes the schema of this class.
    pub(crate) async fn engine_with_schema(&self, class: &str, schema: Value) {
        let classes = [(class.to_owned(), TaskOptions::default().schema(schema))].into();
        self.fixture.register(NewInstance { classes, ..new_instance("web-2") }).await;
    }

    /// A task that failed without retry.
    pub(crate) async fn failed(
        &self,
        engine: &mut TestEngine,
        class: &str,
        error: TaskError,
    ) -> TaskId {
        let id = self.create(class, "{}").await;
        let hold = engine.claim_one().await;
        assert_eq!(hold.task_id(), id);
        let outcome = AttemptEnd::Failure(error, RetryAdvice::NoRetry);
        engine.record(&[hold.ends(outcome, &RetryRule::default())]).await;
        id
    }

    pub(crate) async fn status(&self, id: TaskId) -> TaskStatus {
        self.fixture.status(id).await
    }

    /// The audit, newest first.
    pub(crate) async fn audit(&self) -> Vec<AuditEntry> {
        self.fixture
            .store
            .audit_page(&task_engine_store::audit::AuditFilter::newest(100))
            .await
            .unwrap()
    }
}

impl Page {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        self.text
    }

    /// The redirect of a form.
    #[track_caller]
    pub(crate) fn goes_to(&self) -> &str {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.text);
        self.headers["location"].to_str().unwrap()
    }
}

#[track_caller]
pub(crate) fn has(text: &str, wanted: &str) {
    assert!(text.contains(wanted), "{wanted:?} is missing in {text}");
}

#[track_caller]
pub(crate) fn has_not(text: &str, unwanted: &str) {
    assert!(!text.contains(unwanted), "{unwanted:?} is in {text}");
}

pub(crate) fn rows(text: &str) -> usize {
    text.matches("<tr data-key").count()
}
