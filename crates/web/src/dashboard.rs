//! The settings of the dashboard.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use jiff::tz::TimeZone;
use task_engine_store::contract::Store;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::app::App;
use crate::routes::{self, Route};

pub(crate) type Render = dyn Fn() -> String + Send + Sync;

/// The settings of the dashboard and the HTTP API for the tasks of one store.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use task_engine::sqlite::SqliteStore;
/// use task_engine_web::{Access, Dashboard};
///
/// let store = SqliteStore::open_in_memory()?;
/// let access = Access::closed().password("correct horse")?;
/// let router = Dashboard::new(store, access).base_path("/tasks").router();
/// let application: axum::Router = axum::Router::new().nest_service("/tasks", router);
/// # Ok(()) }
/// ```
///
/// Give it a store of its own. Then it has its own connections, and engines do not wait for pages.
#[must_use = "a dashboard does nothing until its router is served"]
pub struct Dashboard {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) access: Access,
    pub(crate) base: String,
    pub(crate) metrics: Option<Arc<Render>>,
    pub(crate) zone: TimeZone,
    pub(crate) stop: CancellationToken,
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard")
            .field("store", &self.store)
            .field("access", &self.access)
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

impl Dashboard {
    /// Creates a dashboard of this store for the users that have access.
    pub fn new(store: impl Into<Arc<dyn Store>>, access: Access) -> Self {
        Self {
            store: store.into(),
            access,
            base: String::new(),
            metrics: None,
            zone: TimeZone::system(),
            stop: CancellationToken::new(),
        }
    }

    /// Sets the path at which the application nests the router, like `/tasks`.
    ///
    /// The links on the pages need it.
    ///
    /// # Panics
    /// Panics if it is not empty and does not begin with a slash, or ends with one.
    pub fn base_path(mut self, path: &str) -> Self {
        let fits = path.is_empty() || (path.starts_with('/') && !path.ends_with('/'));
        assert!(fits, "a base path looks like /tasks, not {path:?}");
        path.clone_into(&mut self.base);
        self
    }

    /// Sets the time zone of the pages.
    ///
    /// Default: that of this machine.
    pub fn time_zone(mut self, zone: TimeZone) -> Self {
        self.zone = zone;
        self
    }

    /// Adds the metrics of an engine in this process to `/metrics`, in the text
    /// format of Prometheus.
    pub fn engine_metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Arc::new(render));
        self
    }

    /// Ends the event streams of pages when this token is cancelled.
    ///
    /// Without it, a server that waits for its last request waits forever.
    pub fn stop_with(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }

    /// Returns the router, to serve or to nest.
    pub fn router(self) -> Router {
        routes::router(App::new(self))
    }

    /// Returns every route, with the role that it needs.
    #[must_use]
    pub fn routes() -> Vec<Route> {
        routes::all()
    }
}
