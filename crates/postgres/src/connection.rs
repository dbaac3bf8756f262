//! Sockets, on a thread of their own.
//!
//! Every connection is driven by a runtime that belongs to the store, so that a
//! handler that blocks the application's runtime cannot hold up a heartbeat.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use futures_util::future::BoxFuture;
use task_engine_model::StoreError;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{pool_error, store_error};
use crate::session::{Manner, Session};
use crate::tls;

/// What a store is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Engines and those who create tasks.
    Work,
    /// Those who look.
    Watch,
}

impl Purpose {
    /// For heartbeats and recovery: never in the queue behind other work.
    fn lifeline_connections(self) -> usize {
        match self {
            Self::Work => 2,
            Self::Watch => 1,
        }
    }

    fn work_connections(self) -> usize {
        match self {
            Self::Work => 8,
            Self::Watch => 4,
        }
    }

    fn settings(self) -> String {
        match self {
            Self::Work => SETTINGS.to_owned(),
            Self::Watch => {
                format!("{SETTINGS}; SET statement_timeout = '5s'; SET lock_timeout = '2s'")
            }
        }
    }

    fn application(self) -> &'static str {
        match self {
            Self::Work => "task-engine",
            Self::Watch => "task-engine-web",
        }
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a statement waits for a free connection.
const POOL_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a dead peer goes unnoticed.
const TCP_TIMEOUT: Duration = Duration::from_secs(15);

/// Settings of every connection. Plans are made once and kept, often while the
/// tables are still empty: without the first of these they would be full scans
/// for ever. The server's own `tcp_user_timeout` frees the locks of an engine
/// that was suspended before it read its answer. "Lock, then look again in a
/// second statement" needs a new snapshot for each statement.
const SETTINGS: &str = "SET enable_seqscan = off; SET enable_hashjoin = off; \
    SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan; SET jit = off; \
    SET statement_timeout = '60s'; SET lock_timeout = '10s'; \
    SET idle_in_transaction_session_timeout = '60s'; SET tcp_user_timeout = '30s'; \
    SET default_transaction_isolation = 'read committed'";

/// Knows how to reach the server.
#[derive(Clone)]
pub(crate) struct Connector {
    config: Config,
    tls: MakeRustlsConnect,
    io: Handle,
    purpose: Purpose,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("to", &self.place()).finish_non_exhaustive()
    }
}

impl Connector {
    pub(crate) fn new(url: &str, io: Handle, purpose: Purpose) -> Result<Self, StoreError> {
        let (url, verify) = tls::take_verify(url);
        let mut config: Config = url.parse().map_err(|e: tokio_postgres::Error| {
            let cause = std::error::Error::source(&e).map_or(e.to_string(), ToString::to_string);
            StoreError::Refused(format!(
                "not a database URL ({cause}); it looks like postgres://user:password@host:5432/database"
            ))
        })?;
        if config.get_hosts().is_empty() {
            return Err(StoreError::Refused(
                "the database URL names no host; it looks like postgres://user:password@host:5432/database".into(),
            ));
        }
        if config.get_application_name().is_none() {
            config.application_name(purpose.application());
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(TCP_TIMEOUT);
        }
        config.keepalives(true);
        config.keepalives_idle(Duration::from_secs(5));
        config.keepalives_interval(Duration::from_secs(3));
        config.keepalives_retries(3);
        if config.get_ssl_mode() == SslMode::Prefer && config.get_hosts().iter().all(is_local) {
            config.ssl_mode(SslMode::Disable);
        }
        Ok(Self { config, tls: tls::connector(verify)?, io, purpose })
    }

    /// Where the server is, without the password.
    pub(crate) fn place(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "?".into(),
        };
        let port = self.config.get_ports().first().map_or(String::new(), |p| format!(":{p}"));
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("postgres://{host}{port}/{database}")
    }

    /// A connection outside the pools, with its messages.
    pub(crate) async fn dedicated(
        &self,
    ) -> Result<
        (
            Client,
            tokio_postgres::Connection<
                tokio_postgres::Socket,
                <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<
                    tokio_postgres::Socket,
                >>::Stream,
            >,
        ),
        StoreError,
    > {
        let (config, tls) = (self.config.clone(), self.tls.clone());
        let connecting = self.io.spawn(async move { config.connect(tls).await });
        match connecting.await {
            Ok(connected) => connected.map_err(|e| self.explain(&e)),
            Err(gone) => Err(StoreError::Unavailable(format!("the store was closed: {gone}"))),
        }
    }

    /// The same, driven by the store's thread; nobody hears what it is told.
    pub(crate) async fn client(&self) -> Result<Client, StoreError> {
        let (client, connection) = self.dedicated().await?;
        self.io.spawn(connection);
        Ok(client)
    }

    fn explain(&self, error: &tokio_postgres::Error) -> StoreError {
        let place = self.place();
        match store_error(error) {
            StoreError::Unavailable(why) => {
                StoreError::Unavailable(format!("{place} cannot be reached: {why}"))
            }
            StoreError::Refused(why) => StoreError::Refused(format!(
                "{place} refuses the connection: {why}; check user, password and database in the URL"
            )),
            other => other,
        }
    }

    fn pool(&self, size: usize, manner: &Arc<Manner>) -> Result<Pool, StoreError> {
        let manner = manner.clone();
        let manager = Manager::from_connect(
            self.config.clone(),
            self.clone(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        Pool::builder(manager)
            .max_size(size)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(POOL_TIMEOUT))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .post_create(Hook::async_fn(move |client, _| {
                let manner = manner.clone();
                Box::pin(async move {
                    if manner.is_behind_pooler() {
                        // It would stay there for whichever program comes next.
                        return Ok(());
                    }
                    client.batch_execute(&manner.settings).await.map_err(HookError::Backend)
                })
            }))
            .build()
            .map_err(|e| StoreError::Refused(e.to_string()))
    }
}

impl deadpool_postgres::Connect for Connector {
    fn connect(
        &self,
        config: &Config,
    ) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), tokio_postgres::Error>> {
        let (config, tls, io) = (config.clone(), self.tls.clone(), self.io.clone());
        Box::pin(async move {
            // The socket belongs to the runtime that it was opened on.
            let connecting = io.spawn(async move { config.connect(tls).await });
            let (client, connection) =
                connecting.await.expect("the store's runtime outlives its pools")?;
            let driver = io.spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to PostgreSQL ended");
                }
            });
            Ok((client, driver))
        })
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
        Host::Unix(_) => true,
    }
}

/// The connections of one store.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) connector: Connector,
    work: Pool,
    lifeline: Pool,
    manner: Arc<Manner>,
}

impl Connections {
    pub(crate) fn new(connector: Connector, behind_pooler: bool) -> Result<Self, StoreError> {
        let purpose = connector.purpose;
        let manner = Arc::new(Manner::new(purpose.settings(), behind_pooler));
        let work = connector.pool(purpose.work_connections(), &manner)?;
        let lifeline = connector.pool(purpose.lifeline_connections(), &manner)?;
        Ok(Self { connector, work, lifeline, manner })
    }

    pub(crate) fn are_behind_pooler(&self) -> bool {
        self.manner.is_behind_pooler()
    }

    /// A connection for the work: creation, claims, records, reading.
    pub(crate) async fn work(&self) -> Result<Session, StoreError> {
        self.get(&self.work).await
    }

    /// A connection for what must not wait behind the work.
    pub(crate) async fn lifeline(&self) -> Result<Session, StoreError> {
        self.get(&self.lifeline).await
    }

    /// Somebody got no answer, on a connection that is back in its pool and looks
    /// as good as any. Others may be no better: all that nobody uses are closed.
    pub(crate) fn distrust(&self) {
        for pool in [&self.work, &self.lifeline] {
            pool.retain(|_, _| false);
        }
    }

    async fn get(&self, pool: &Pool) -> Result<Session, StoreError> {
        let object = pool.get().await.map_err(|error| match &error {
            deadpool_postgres::PoolError::Backend(error) => self.connector.explain(error),
            other => pool_error(other),
        })?;
        Ok(Session::new(object, self.manner.clone()))
    }
}
