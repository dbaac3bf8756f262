//! Connections, driven by a separate thread.
//!
//! Every connection is driven by a runtime of the store, so that a handler that blocks
//! the application's runtime cannot delay a heartbeat.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use futures_util::future::BoxFuture;
use task_engine_store::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{pool_error, store_error};
use crate::executor::{PooledConnection, StatementMode};
use crate::hosts::{Connected, Hosts};
use crate::{encoding, pooler, tls};

/// The purpose of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Engines and clients.
    Work,
    /// Readers, like a dashboard.
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

/// How long a statement waits for a free connection.
const POOL_TIMEOUT: Duration = Duration::from_secs(15);
/// After this time without a reply, the server is probed by a new connection.
const PROBE_AFTER: Duration = Duration::from_secs(2);
/// How often it is probed after that.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Callers within this time share one answer.
const PROBE_KEPT: Duration = Duration::from_secs(1);

/// How long the end of a process waits for the server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

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

/// Connects to the server.
#[derive(Clone)]
pub(crate) struct Connector {
    hosts: Arc<Hosts>,
    tls: MakeRustlsConnect,
    io: Handle,
    purpose: Purpose,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("to", &self.location()).finish_non_exhaustive()
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
        let hosts = Arc::new(Hosts::new(&config, url.contains("target_session_attrs"))?);
        Ok(Self { hosts, tls: tls::connector(verify)?, io, purpose })
    }

    /// Where the server is, without the password.
    pub(crate) fn location(&self) -> String {
        self.hosts.location()
    }

    /// The time limit of a connection attempt.
    pub(crate) fn timeout(&self) -> Duration {
        self.hosts.timeout()
    }

    /// A connection outside the pools, with its messages.
    pub(crate) async fn dedicated(&self) -> Result<Connected, StoreError> {
        // The socket belongs to the runtime that it was opened on.
        let (hosts, tls) = (self.hosts.clone(), self.tls.clone());
        match self.io.spawn(async move { hosts.connect(&tls).await }).await {
            Ok(connected) => connected,
            Err(gone) => Err(StoreError::Unavailable(format!("the store was closed: {gone}"))),
        }
    }

    /// The same, driven by the store's thread; its notifications are dropped.
    pub(crate) async fn client(&self) -> Result<Client, StoreError> {
        let (client, connection) = self.dedicated().await?;
        self.io.spawn(connection);
        Ok(client)
    }

    /// Whether the server answers a new connection.
    async fn server_answers(&self) -> bool {
        let (hosts, tls) = (self.hosts.clone(), self.tls.clone());
        self.io.spawn(async move { hosts.answers(&tls).await }).await.unwrap_or(true)
    }

    fn pool(&self, size: usize, mode: &Arc<StatementMode>) -> Result<ConnectionPool, StoreError> {
        let failure = Arc::new(Mutex::new(None));
        let connect =
            PoolConnect { connector: self.clone(), mode: mode.clone(), failure: failure.clone() };
        let recycling_method = RecyclingMethod::Fast;
        // The URL is of no use to the pool: it connects by the line above.
        let manager =
            Manager::from_connect(Config::new(), connect, ManagerConfig { recycling_method });
        let pool = Pool::builder(manager)
            .max_size(size)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(POOL_TIMEOUT))
            .build()
            .map_err(|e| StoreError::Refused(e.to_string()))?;
        Ok(ConnectionPool { pool, failure })
    }
}

/// Opens the connections of a pool, each within the time limits of the hosts.
struct PoolConnect {
    connector: Connector,
    mode: Arc<StatementMode>,
    failure: Arc<Mutex<Option<StoreError>>>,
}

impl PoolConnect {
    async fn connect(&self) -> Result<(Client, JoinHandle<()>), StoreError> {
        let (client, connection) = self.connector.dedicated().await?;
        let driver = self.connector.io.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        // Behind a pooler the setting would stay for the next program.
        if !self.mode.is_behind_pooler() {
            let timeout = self.connector.timeout();
            match tokio::time::timeout(timeout, client.batch_execute(&self.mode.settings)).await {
                Ok(set) => set.map_err(|e| store_error(&e))?,
                Err(_) => return Err(no_answer(timeout)),
            }
        }
        Ok((client, driver))
    }
}

impl deadpool_postgres::Connect for PoolConnect {
    fn connect(
        &self,
        _: &Config,
    ) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), tokio_postgres::Error>> {
        Box::pin(async move {
            self.connect().await.map_err(|error| {
                // The driver's error does not contain the errors of several hosts; the
                // caller of the pool reads them from here.
                *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                tokio_postgres::Error::__private_api_timeout()
            })
        })
    }
}

#[derive(Debug)]
struct ConnectionPool {
    pool: Pool,
    /// The error of the last failed connection.
    failure: Arc<Mutex<Option<StoreError>>>,
}

impl ConnectionPool {
    async fn get(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|error| match &error {
            PoolError::Backend(backend) => {
                let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.clone().unwrap_or_else(|| store_error(backend))
            }
            other => pool_error(other),
        })
    }
}

fn no_answer(timeout: Duration) -> StoreError {
    StoreError::Unavailable(format!("PostgreSQL has not answered within {timeout:?}"))
}

/// The connections of one store.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) connector: Connector,
    work: ConnectionPool,
    lifeline: ConnectionPool,
    mode: Arc<StatementMode>,
    examined: OnceCell<()>,
    /// When the server was last probed, and whether it answered.
    probed: tokio::sync::Mutex<Option<(Instant, bool)>>,
    /// How often connections were given up.
    discards: watch::Sender<u64>,
}

impl Connections {
    pub(crate) fn new(connector: Connector) -> Result<Self, StoreError> {
        let purpose = connector.purpose;
        let mode = Arc::new(StatementMode::new(purpose.settings()));
        let work = connector.pool(purpose.work_connections(), &mode)?;
        let lifeline = connector.pool(purpose.lifeline_connections(), &mode)?;
        let (probed, discards) = (tokio::sync::Mutex::default(), watch::Sender::default());
        let examined = OnceCell::new();
        Ok(Self { connector, work, lifeline, mode, examined, probed, discards })
    }

    /// Before the first use: checks that the database can be used, and whether a
    /// pooler is in between.
    async fn examine(&self) -> Result<(), StoreError> {
        let examined = self.examined.get_or_try_init(async || {
            if examine(&self.connector).await? {
                tracing::info!(
                    "{} is a pooler that gives each transaction another connection: \
                     engines look for work once a second",
                    self.connector.location()
                );
                self.mode.set_behind_pooler();
            }
            Ok(())
        });
        examined.await.copied()
    }

    pub(crate) fn are_behind_pooler(&self) -> bool {
        self.mode.is_behind_pooler()
    }

    /// A connection for the work: creation, claims, records, reading.
    pub(crate) async fn work(&self) -> Result<PooledConnection, StoreError> {
        self.examine().await?;
        Ok(PooledConnection::new(self.work.get().await?, self.mode.clone()))
    }

    /// A connection for calls that must not wait behind the work.
    pub(crate) async fn lifeline(&self) -> Result<PooledConnection, StoreError> {
        self.examine().await?;
        Ok(PooledConnection::new(self.lifeline.get().await?, self.mode.clone()))
    }

    /// A call got no reply on a connection that is back in its pool and looks valid.
    /// Others may be broken too, so all idle ones are closed.
    fn discard_pools(&self) {
        for pool in [&self.work, &self.lifeline] {
            pool.pool.retain(|_, _| false);
        }
        self.discards.send_modify(|count| *count += 1);
    }

    /// Closes connections that are not in use, once the server has done all that was sent on them.
    /// A transaction that was dropped is rolled back by a message without a reply. A process that
    /// ends before the server has got it would leave an error in the server's log.
    pub(crate) async fn close(&self) {
        for ConnectionPool { pool, .. } in [&self.work, &self.lifeline] {
            let finished = async {
                let mut idle = Vec::new();
                for _ in 0..pool.status().available {
                    idle.extend(pool.get().await.ok());
                }
                for client in &idle {
                    let _ = client.batch_execute("").await;
                }
            };
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, finished).await;
            pool.close();
        }
    }

    /// Ends when connections that there were at this call are given up.
    pub(crate) async fn pools_discarded(&self) {
        let mut discards = self.discards.subscribe();
        // Its sender is in this value.
        let _ = discards.changed().await;
    }

    /// Waits for a reply within the limit, and only while the server answers probes.
    /// Without a reply, no current connection is used again.
    pub(crate) async fn with_time_limit<T>(
        &self,
        limit: Option<Duration>,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let error = {
            // Dropped before the connections are given up, with the one it has.
            tokio::pin!(call);
            match self.reply_within(limit, call).await {
                Ok(reply) => return reply,
                Err(error) => error,
            }
        };
        self.discard_pools();
        Err(error)
    }

    async fn reply_within<T>(
        &self,
        limit: Option<Duration>,
        mut call: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let mut next_probe = PROBE_AFTER;
        loop {
            let until = limit.map_or(next_probe, |limit| limit.min(next_probe));
            let left = until.saturating_sub(begun.elapsed());
            if let Ok(reply) = tokio::time::timeout(left, call.as_mut()).await {
                return Ok(reply);
            }
            if let Some(limit) = limit
                && begun.elapsed() >= limit
            {
                return Err(no_answer(limit));
            }
            tokio::select! {
                reply = call.as_mut() => return Ok(reply),
                answers = self.server_answers() => if !answers {
                    return Err(StoreError::Unavailable(format!(
                        "{} takes no new connection within {:?} and has not answered for {:.0} s: it is suspended, overloaded, or cut off",
                        self.connector.location(),
                        self.connector.timeout(),
                        begun.elapsed().as_secs_f64()
                    )));
                },
            }
            next_probe = begun.elapsed() + PROBE_INTERVAL;
        }
    }

    /// One probe at a time, for all waiting calls.
    async fn server_answers(&self) -> bool {
        let mut probed = self.probed.lock().await;
        if let Some((at, answers)) = *probed
            && at.elapsed() < PROBE_KEPT
        {
            return answers;
        }
        let answers = self.connector.server_answers().await;
        *probed = Some((Instant::now(), answers));
        answers
    }
}

/// Connecting has its own time limits; this one is for the statements.
const EXAMINE_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks that the database can be used; returns whether there is a pooler in
/// between. Without a second connection that cannot be found out, and counts as none.
async fn examine(connector: &Connector) -> Result<bool, StoreError> {
    let location = connector.location();
    let first = connector.client().await?;
    let second = connector.client().await.ok();
    let examined = async {
        encoding::check(&first, &location).await?;
        match &second {
            Some(second) => pooler::is_between(&first, second).await,
            None => Ok(false),
        }
    };
    tokio::time::timeout(EXAMINE_TIMEOUT, examined).await.unwrap_or_else(|_| {
        Err(StoreError::Unavailable(format!(
            "{location} takes connections, but has answered nothing within {EXAMINE_TIMEOUT:?}"
        )))
    })
}
