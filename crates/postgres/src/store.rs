//! The store: its connections, its schema, and how long a call may take. The methods of the
//! contract are in `engine_store`, `read_store` and `operator_store`.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use task_engine_store::contract::{SchemaVersion, Store, StoreBase, StoreFuture};
use task_engine_store::error::StoreError;
use tokio::runtime::Runtime;

use crate::connection::{Connections, Connector, Purpose};
use crate::failover::WalWatch;
use crate::schema::Schema;

/// A store of tasks in PostgreSQL.
///
/// It is cheap to clone. Applications use `TaskEngine::connect` unless they choose the schema.
///
/// ```no_run
/// # mod task_engine { pub use task_engine_postgres as postgres; }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use task_engine::postgres::{PgStore, Schema};
///
/// let url = "postgres://app@localhost/shop";
/// let store = PgStore::connect_schema(url, Schema::named("shop_tasks")?).await?;
/// // let tasks = TaskEngine::new(store);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct PgStore {
    pub(crate) inner: Arc<StoreInner>,
}

#[derive(Debug)]
pub(crate) struct StoreInner {
    pub(crate) connections: Connections,
    pub(crate) schema: Schema,
    pub(crate) log_watch: WalWatch,
    _io: IoRuntime,
}

/// The thread that connections are driven on.
#[derive(Debug)]
struct IoRuntime(Option<Runtime>);

impl Drop for IoRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting for its end would panic inside an application's runtime.
            runtime.shutdown_background();
        }
    }
}

impl PgStore {
    /// Connects to PostgreSQL with the tables in the schema `task_engine`, and checks that the
    /// server answers.
    ///
    /// # Errors
    /// Fails with [`StoreError::Refused`] if the URL is wrong or the server refuses the user, and
    /// with [`StoreError::Unavailable`] if the server cannot be reached.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_schema(url, Schema::default()).await
    }

    /// Connects to PostgreSQL with the tables in this schema.
    pub async fn connect_schema(url: &str, schema: Schema) -> Result<Self, StoreError> {
        Self::connect_for(url, schema, Purpose::Work).await
    }

    /// Connects to PostgreSQL for reading, as a dashboard does.
    ///
    /// It opens few connections, and each statement may take five seconds.
    pub async fn connect_to_watch(url: &str, schema: Schema) -> Result<Self, StoreError> {
        Self::connect_for(url, schema, Purpose::Watch).await
    }

    /// Creates a store that connects when it is first used.
    pub fn connect_lazily(url: &str) -> Result<Self, StoreError> {
        Self::open(url, Schema::default(), Purpose::Work)
    }

    async fn connect_for(url: &str, schema: Schema, purpose: Purpose) -> Result<Self, StoreError> {
        let store = Self::open(url, schema, purpose)?;
        drop(store.inner.connections.work().await?);
        Ok(store)
    }

    fn open(url: &str, schema: Schema, purpose: Purpose) -> Result<Self, StoreError> {
        let io = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("task-engine-io")
            .enable_all()
            .build()
            .map_err(|e| StoreError::Unavailable(format!("no thread for connections: {e}")))?;
        let handle = io.handle().clone();
        let io = IoRuntime(Some(io));
        let connections = Connections::new(Connector::new(url, handle, purpose)?)?;
        let inner = StoreInner { connections, schema, log_watch: WalWatch::default(), _io: io };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Runs a call within a limit; without one, for as long as the server answers at all.
    pub(crate) fn call<'a, T: 'a>(
        &'a self,
        limit: Option<Duration>,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(self.inner.with_time_limit(limit, call))
    }

    /// Returns the schema of the tables, whose methods create tasks in transactions of the
    /// application.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.inner.schema
    }
}

impl StoreInner {
    /// Runs a call within the limit ([`Connections::with_time_limit`]). After a lock timeout
    /// the error names the session that holds the lock, if it can still be seen.
    pub(crate) async fn with_time_limit<T>(
        &self,
        limit: Option<Duration>,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let message = match self.connections.with_time_limit(limit, call).await {
            Err(StoreError::Locked(message)) => message,
            result => return result,
        };
        Err(self.name_blockers(&message).await)
    }
}

/// So that the methods of the contract need no import of its traits.
impl Deref for PgStore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        self
    }
}

impl From<PgStore> for Arc<dyn Store> {
    fn from(store: PgStore) -> Self {
        Arc::new(store)
    }
}

impl StoreBase for PgStore {
    fn location(&self) -> String {
        let location = self.inner.connections.connector.location();
        if self.inner.schema == Schema::default() {
            location
        } else {
            format!("{location} (schema {})", self.inner.schema)
        }
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {
            self.inner.connections.close().await;
            Ok(())
        })
    }

    fn migrate(&self) -> StoreFuture<'_, Vec<String>> {
        self.call(UNLIMITED, self.inner.migrate())
    }

    fn schema_version(&self) -> StoreFuture<'_, SchemaVersion> {
        self.call(STATEMENT, self.inner.schema_version())
    }

    fn schema_name(&self) -> &str {
        self.inner.schema.name()
    }
}

/// The methods of a contract, each run by the method of the same name of [`StoreInner`]: in the
/// file of its verb, with its SQL. Each line begins with the time limit of a call.
macro_rules! calls {
    ($($limit:expr => fn $name:ident<$a:lifetime>($($arg:ident: $type:ty),*) -> $value:ty;)*) => {$(
        fn $name<$a>(&$a self, $($arg: $type),*) -> StoreFuture<$a, $value> {
            self.call($limit, self.inner.$name($($arg),*))
        }
    )*};
}

pub(crate) use calls;

/// Longer than the server's own limit on a statement: it only ends calls to a server that
/// accepts connections and does not answer.
pub(crate) const STATEMENT: Option<Duration> = Some(Duration::from_secs(75));

/// A heartbeat that waits any longer on one connection would miss the usual lease.
pub(crate) const HEARTBEAT: Option<Duration> = Some(Duration::from_secs(10));

/// For calls of many statements: as long as the server answers at all.
pub(crate) const UNLIMITED: Option<Duration> = None;

/// Microseconds, the unit in which durations cross the wire.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn from_micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}
