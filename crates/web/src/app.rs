//! The state that all requests share.

use std::ops::Deref;
use std::sync::Arc;

use jiff::tz::TimeZone;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use task_engine_store::contract::Store;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::cache::DashboardCache;
use crate::dashboard::{Dashboard, Render};
use crate::keys::SecretKeys;
use crate::session::FailureLimiter;

/// It is cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<AppState>);

pub(crate) struct AppState {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) access: Access,
    pub(crate) base: String,
    pub(crate) metrics: Option<Arc<Render>>,
    pub(crate) zone: TimeZone,
    pub(crate) stop: CancellationToken,
    pub(crate) keys: SecretKeys,
    /// Wrong passwords by address.
    pub(crate) login_failures: FailureLimiter,
    pub(crate) token_failures: FailureLimiter,
    pub(crate) cache: DashboardCache,
}

impl Deref for App {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}

impl App {
    pub(crate) fn new(dashboard: Dashboard) -> Self {
        let Dashboard { store, access, base, metrics, zone, stop } = dashboard;
        let keys = SecretKeys::new(access.password.clone());
        let cache = DashboardCache::new(Arc::clone(&store));
        let (login_failures, token_failures) =
            (FailureLimiter::default(), FailureLimiter::default());
        Self(Arc::new(AppState {
            store,
            access,
            base,
            metrics,
            zone,
            stop,
            keys,
            login_failures,
            token_failures,
            cache,
        }))
    }
}

impl AppState {
    /// A path of the dashboard as the browser needs it. Below another path the
    /// overview has no slash at its end: axum's `nest` does not answer there.
    pub(crate) fn path(&self, path: &str) -> String {
        match path.strip_prefix('/') {
            Some(rest) if !self.base.is_empty() && (rest.is_empty() || rest.starts_with('?')) => {
                format!("{}{rest}", self.base)
            }
            _ => format!("{}{path}", self.base),
        }
    }
}

/// Characters with a meaning in a path or a query.
const SPECIAL: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'\'')
    .add(b'+')
    .add(b'/')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A text as one path segment or as a value in a query.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, SPECIAL).to_string()
}
