//! What an application sets.

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

/// The pages and the API for the tasks of one store.
///
/// Give it a store of its own: its connections are then its own, too, and
/// however many pages are open, engines do not wait behind them.
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
    /// For those whom `access` lets in.
    pub fn new(store: Arc<dyn Store>, access: Access) -> Self {
        Self {
            store,
            access,
            base: String::new(),
            metrics: None,
            zone: TimeZone::system(),
            stop: CancellationToken::new(),
        }
    }

    /// Where the application nests the router, like `/tasks`; links need it.
    ///
    /// # Panics
    /// If it is not empty and does not begin with a slash, or ends with one.
    pub fn base_path(mut self, path: &str) -> Self {
        let fits = path.is_empty() || (path.starts_with('/') && !path.ends_with('/'));
        assert!(fits, "a base path looks like /tasks, not {path:?}");
        path.clone_into(&mut self.base);
        self
    }

    /// The zone in which times are shown; that of this machine if it is not set.
    pub fn time_zone(mut self, zone: TimeZone) -> Self {
        self.zone = zone;
        self
    }

    /// What `/metrics` shows besides what is in the store: the figures of an
    /// engine in this process, in the text format of Prometheus.
    pub fn engine_metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Arc::new(render));
        self
    }

    /// Ends streams of events, which have no end of their own, when this is
    /// cancelled: a server that waits for its last request would wait for ever.
    pub fn stop_with(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }

    /// The router, to be served or to be nested.
    pub fn router(self) -> Router {
        routes::router(App::new(self))
    }

    /// Every route, with the role that it needs.
    #[must_use]
    pub fn routes() -> Vec<Route> {
        routes::all()
    }
}
