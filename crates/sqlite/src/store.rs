//! The store: its file and the threads that own its connections. The methods of the contract
//! are in `engine`, `readers` and `operators`; each passes one job to a thread.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use task_engine_store::contract::{SchemaVersion, Store, StoreBase, StoreFuture};
use task_engine_store::error::StoreError;

use crate::connection::FileMark;
use crate::connection_thread::{ConnectionThread, read_all};
use crate::limits::LimitCache;
use crate::listen::WakeUpSender;
use crate::writer::write_all;
use crate::{connection, migrate};

/// A store of tasks in a file of SQLite.
///
/// It is cheap to clone; its threads end with the last clone.
///
/// ```
/// # mod task_engine { pub use task_engine_sqlite as sqlite; }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use task_engine::sqlite::SqliteStore;
///
/// let store = SqliteStore::open_in_memory()?;      // or SqliteStore::open("app.db")?
/// store.migrate().await?;
/// // let tasks = TaskEngine::new(store);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct SqliteStore {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// `None` for a private database in memory.
    pub(crate) path: Option<PathBuf>,
    pub(crate) location: Arc<str>,
    writer: ConnectionThread,
    /// `None` where there is one connection only, and the writer reads too.
    reader: Option<ConnectionThread>,
    pub(crate) wake_ups: WakeUpSender,
    limit_cache: LimitCache,
}

impl SqliteStore {
    /// Opens a file, and creates it if it does not exist.
    ///
    /// Its folder must exist.
    ///
    /// The file is switched to SQLite's write-ahead log, and stays so.
    ///
    /// # Errors
    /// Fails with a [`StoreError`] if the file cannot be opened or is no database of SQLite.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        if path == Path::new(":memory:") {
            return Self::open_in_memory();
        }
        let location: Arc<str> = format!("sqlite:{}", path.display()).into();
        let writer = connection::open(path, &location)?;
        let reader = connection::open(path, &location)?;
        Self::start(Some(path.to_owned()), location, writer, Some(reader))
    }

    /// Creates a private database in memory, for experiments and tests.
    ///
    /// It is removed with the last clone of the store.
    pub fn open_in_memory() -> Result<Self, StoreError> {
        let location: Arc<str> = "sqlite::memory:".into();
        let connection = connection::open_in_memory(&location)?;
        Self::start(None, location, connection, None)
    }

    fn start(
        path: Option<PathBuf>,
        location: Arc<str>,
        writer: rusqlite::Connection,
        reader: Option<rusqlite::Connection>,
    ) -> Result<Self, StoreError> {
        let wake_ups = WakeUpSender::new();
        let mark = || {
            let mark = path.as_deref().map(FileMark::of).transpose();
            mark.map_err(|e| StoreError::Unavailable(format!("{location}: {e}")))
        };
        let (file, file_to_read) = (mark()?, mark()?);
        let write = {
            let (location, wake_ups) = (location.clone(), wake_ups.clone());
            move |inbox| write_all(&writer, file.as_ref(), &inbox, &location, &wake_ups)
        };
        let reader = reader.zip(file_to_read).map(|(reader, file)| {
            let at = location.clone();
            let read = move |inbox| read_all(&reader, &file, &inbox, &at);
            ConnectionThread::spawn("task-engine-sqlite-reader", location.clone(), read)
        });
        let shared = Shared {
            path,
            writer: ConnectionThread::spawn("task-engine-sqlite-writer", location.clone(), write)?,
            reader: reader.transpose()?,
            location,
            wake_ups,
            limit_cache: LimitCache::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A job for the writer that is not part of the contract.
    #[cfg(feature = "testing")]
    pub(crate) async fn run_on_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(
            &crate::connection_thread::JobTransaction<'_>,
        ) -> Result<T, crate::error::JobError>
        + Send
        + 'static,
    ) -> Result<T, StoreError> {
        self.writer().run(work).await
    }

    pub(crate) fn writer(&self) -> &ConnectionThread {
        &self.shared.writer
    }

    pub(crate) fn limit_cache(&self) -> &LimitCache {
        &self.shared.limit_cache
    }

    pub(crate) fn reader(&self) -> &ConnectionThread {
        self.shared.reader.as_ref().unwrap_or(&self.shared.writer)
    }
}

/// So that the methods of the contract need no import of its traits.
impl Deref for SqliteStore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        self
    }
}

impl From<SqliteStore> for Arc<dyn Store> {
    fn from(store: SqliteStore) -> Self {
        Arc::new(store)
    }
}

impl StoreBase for SqliteStore {
    fn location(&self) -> String {
        self.shared.location.to_string()
    }

    fn migrate(&self) -> StoreFuture<'_, Vec<String>> {
        let location = self.location();
        Box::pin(self.writer().run(move |tx| migrate::migrate(tx, &location)))
    }

    fn schema_version(&self) -> StoreFuture<'_, SchemaVersion> {
        Box::pin(self.reader().run(migrate::schema_version))
    }
}

/// The methods of a contract. Each passes copies of its arguments to a job of the writer or
/// the reader; the function of the job is in the file of its verb, with its SQL.
macro_rules! jobs {
    ($($thread:ident fn $name:ident<$a:lifetime>($($arg:ident: $type:ty),*) -> $value:ty =>
        $job:expr;)*) => {$(
        fn $name<$a>(&$a self, $($arg: $type),*) -> StoreFuture<$a, $value> {
            $(let $arg = $arg.to_owned();)*
            Box::pin(self.$thread().run($job))
        }
    )*};
}

pub(crate) use jobs;
