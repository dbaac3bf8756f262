//! A dashboard with its own store, and engines that are only recorded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use jiff::tz::TimeZone;
use task_engine::postgres::PgStore;
use task_engine::sqlite::SqliteStore;
use task_engine_core::claim::ClaimIds;
use task_engine_core::instance::{InstanceId, NewInstance};
use task_engine_core::queue::{Lanes, Pool};
use task_engine_core::retry::RetryRule;
use task_engine_core::task::TaskOptions;
use task_engine_store::contract::Store;
use task_engine_test_harness::TestServer;
use task_engine_web::{Access, Dashboard, Role};
use tempfile::TempDir;
use tower::ServiceExt;

pub(crate) struct Site {
    pub(crate) store: Arc<dyn Store>,
    router: Router,
    role: Role,
    _folder: Option<TempDir>,
}

/// A response.
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) text: String,
    /// The redirect.
    pub(crate) to: String,
}

impl Page {
    #[track_caller]
    pub(crate) fn must_say(&self, text: &str) -> &Self {
        assert!(self.text.contains(text), "{text:?} is not in ({}) {}", self.status, self.text);
        self
    }

    /// The links with this prefix.
    pub(crate) fn links(&self, begin: &str) -> Vec<String> {
        let links = self.text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        links
            .filter(|link| link.starts_with(begin))
            .map(|link| link.replace("&amp;", "&"))
            .collect()
    }
}

impl Site {
    /// On SQLite; anonymous requests have this role.
    pub(crate) async fn new(role: Role) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("tasks.db")).unwrap();
        Self::on(Arc::new(store), role, Some(folder)).await
    }

    pub(crate) async fn on_postgres(role: Role) -> Self {
        let url = TestServer::shared().create_database().await;
        let store = PgStore::connect(&url).await.unwrap();
        Self::on(Arc::new(store), role, None).await
    }

    async fn on(store: Arc<dyn Store>, role: Role, folder: Option<TempDir>) -> Self {
        store.migrate().await.unwrap();
        let router = Self::router(&store, role);
        Self { store, router, role, _folder: folder }
    }

    fn router(store: &Arc<dyn Store>, role: Role) -> Router {
        Dashboard::new(Arc::clone(store), Access::open_to(role)).time_zone(TimeZone::UTC).router()
    }

    /// A dashboard with an empty cache.
    pub(crate) fn uncached(self) -> Self {
        Self { router: Self::router(&self.store, self.role), ..self }
    }

    pub(crate) fn encoded(&self, text: &str) -> String {
        form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
    }

    pub(crate) async fn get(&self, path: &str) -> Page {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn get_with_token(&self, path: &str, token: &str) -> Page {
        let request = Request::get(path).header("authorization", format!("Bearer {token}"));
        self.send(request.body(Body::empty()).unwrap()).await
    }

    /// Sends a form like a browser.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(fields);
        let request = Request::post(path)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("sec-fetch-site", "same-origin");
        self.send(request.body(Body::from(body.finish())).unwrap()).await
    }

    async fn send(&self, mut request: Request<Body>) -> Page {
        request.headers_mut().insert(header::HOST, "127.0.0.1:8642".parse().unwrap());
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let to = answer.headers().get(header::LOCATION);
        let to = to.map_or_else(String::new, |to| to.to_str().unwrap().to_owned());
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        Page { status, text: String::from_utf8(body.to_vec()).unwrap(), to }
    }

    /// Audited actions, newest first, with the outcome of failures.
    pub(crate) async fn audit(&self) -> Vec<String> {
        let entries = self
            .store
            .audit_page(&task_engine_store::audit::AuditFilter::newest(1000))
            .await
            .unwrap();
        let ended = entries.into_iter().filter(|entry| entry.of.is_some());
        ended
            .map(|entry| match entry.outcome.as_str() {
                "done" => format!("{} {}", entry.action, entry.target),
                other => format!("{} {} {other}", entry.action, entry.target),
            })
            .collect()
    }
}

/// Registers an engine with one class.
pub(crate) async fn register(
    store: &dyn Store,
    name: &str,
    queues: &[&str],
    class: &str,
) -> InstanceId {
    let queues: Vec<_> = queues.iter().map(|queue| (*queue).to_owned()).collect();
    let instance = NewInstance {
        name: name.to_owned(),
        host: "elsewhere".to_owned(),
        pid: 4242,
        process: None,
        version: "0.1.0".to_owned(),
        workers: 3,
        lease: Duration::from_secs(600),
        queues: queues.clone(),
        pools: vec![Pool::new(queues, 3)],
        classes: BTreeMap::from([(
            class.to_owned(),
            TaskOptions::default().retry(RetryRule::default()),
        )]),
    };
    store.register(&instance).await.unwrap()
}

/// Claims all due tasks and returns their number.
pub(crate) async fn claim_all(
    store: &dyn Store,
    engine: InstanceId,
    queues: &[&str],
    class: &str,
) -> usize {
    let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
    let mut claimer = store.claimer(engine, Lanes::new(queues, vec![class.to_owned()]));
    claimer.claim(ClaimIds::new(engine).take(), 10).await.unwrap().tasks.len()
}
