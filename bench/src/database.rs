//! The temporary schema or file that is measured, and counters of the server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use task_engine::Store;

use crate::error::BenchError;
use crate::options::BenchSettings;
use crate::postgres::PostgresDatabase;
use crate::sqlite::SqliteDatabase;

#[derive(Debug)]
pub(crate) enum BenchDatabase {
    Postgres(Box<PostgresDatabase>),
    Sqlite(SqliteDatabase),
}

/// Totals of the server. The difference of two readings is a cost. `None`: not
/// readable here.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) cpu: Option<Duration>,
    pub(crate) wal_bytes: Option<f64>,
    /// Transactions that wrote something: each of them waited for the disk.
    pub(crate) writes: Option<i64>,
}

/// Connections of other programs. Their costs are part of the measured costs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OtherConnections {
    pub(crate) on_server: i64,
    pub(crate) in_database: i64,
}

/// Tasks that are inserted before the first measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExistingTasks {
    /// Tasks that ended an hour ago.
    History,
    /// Tasks of a higher priority that are due tomorrow.
    Future,
    /// Due tasks of a lower priority in a queue that no engine serves.
    Unserved,
    /// Tasks that sleep, or wait for a signal, for another week.
    Sleepers,
}

/// How the tasks of flows went. Each has one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowOrder {
    /// Tasks that have succeeded.
    pub(crate) succeeded: i64,
    pub(crate) dependencies: i64,
    /// Dependencies whose task began before the one that it depends on had ended.
    pub(crate) not_respected: i64,
}

/// What [`BenchDatabase::clear`] leaves in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    /// The rows of [`BenchDatabase::prepare`].
    pub(crate) rows: bool,
    /// Dead rows, which an open snapshot is meant to keep.
    pub(crate) dead_rows: bool,
}

/// Rows are inserted in batches, so that Ctrl-C is obeyed soon.
const BATCH: u64 = 100_000;

impl BenchDatabase {
    /// Connects. Nothing is created before [`Self::prepare`].
    pub(crate) async fn connect(url: &str) -> Result<Self, BenchError> {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres(Box::new(PostgresDatabase::connect(url).await?)));
        }
        match url.strip_prefix("sqlite:") {
            Some(":memory:") => Err(BenchError::Usage(
                "sqlite::memory: cannot be shared with engines in other processes: name a file, like sqlite:bench.db".to_owned(),
            )),
            Some(path) if !path.is_empty() => Ok(Self::Sqlite(SqliteDatabase::beside(Path::new(path))?)),
            _ => Err(BenchError::Usage(
                "--database must be postgres://… or sqlite:FILE".to_owned(),
            )),
        }
    }

    /// Creates the tables and the rows that the settings ask for.
    pub(crate) async fn prepare(&self, settings: &BenchSettings) -> Result<(), BenchError> {
        self.store().await?.migrate().await?;
        for (count, rows) in [
            (settings.history, ExistingTasks::History),
            (settings.future, ExistingTasks::Future),
            (settings.unserved, ExistingTasks::Unserved),
            (settings.sleepers, ExistingTasks::Sleepers),
        ] {
            let mut missing = count;
            while missing > 0 {
                let batch = missing.min(BATCH);
                match self {
                    Self::Postgres(database) => database.insert(rows, batch).await?,
                    Self::Sqlite(database) => database.insert(rows, batch).await?,
                }
                missing -= batch;
            }
        }
        match self {
            Self::Postgres(database) => database.settle(settings.hold_snapshot).await,
            Self::Sqlite(database) => database.settle(settings.hold_snapshot).await,
        }
    }

    /// Removes the tasks of the last measurement.
    pub(crate) async fn clear(&self, settings: &BenchSettings) -> Result<(), BenchError> {
        let keep = Keep { rows: settings.inserts_tasks(), dead_rows: settings.hold_snapshot };
        match self {
            Self::Postgres(database) => database.clear(keep).await,
            Self::Sqlite(database) => database.clear(keep).await,
        }
    }

    /// A store with its own connections, as another process would have.
    pub(crate) async fn store(&self) -> Result<Arc<dyn Store>, BenchError> {
        match self {
            Self::Postgres(database) => database.store().await,
            Self::Sqlite(database) => database.store(),
        }
    }

    /// One store per producer. SQLite producers share one, as the threads of an
    /// application do: its commits batch the tasks of all of them.
    pub(crate) async fn stores(&self, producers: u16) -> Result<Vec<Arc<dyn Store>>, BenchError> {
        let first = self.store().await?;
        let mut stores = vec![first.clone()];
        for _ in 1..producers {
            stores.push(match self {
                Self::Postgres(database) => database.store().await?,
                Self::Sqlite(_) => first.clone(),
            });
        }
        Ok(stores)
    }

    /// The URL for engines.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres(database) => database.url(),
            Self::Sqlite(database) => database.url(),
        }
    }

    pub(crate) fn schema_option(&self) -> Vec<String> {
        match self {
            Self::Postgres(database) => vec!["--schema".to_owned(), database.schema()],
            Self::Sqlite(_) => Vec::new(),
        }
    }

    /// Product and version.
    pub(crate) fn version(&self) -> String {
        match self {
            Self::Postgres(database) => database.version(),
            Self::Sqlite(database) => database.version(),
        }
    }

    /// The name of the temporary schema or file.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Postgres(database) => format!("schema {}", database.schema()),
            Self::Sqlite(database) => database.url(),
        }
    }

    /// Totals of the server. SQLite runs inside the engine; its costs are the
    /// engine's.
    pub(crate) async fn counters(&self) -> Result<Counters, BenchError> {
        match self {
            Self::Postgres(database) => database.counters().await,
            Self::Sqlite(_) => Ok(Counters::default()),
        }
    }

    /// Other programs that used the same server recently. Connections that were
    /// opened and closed in between are not counted.
    pub(crate) async fn other_connections(
        &self,
        within: Duration,
    ) -> Result<OtherConnections, BenchError> {
        match self {
            Self::Postgres(database) => database.other_connections(within).await,
            Self::Sqlite(_) => Ok(OtherConnections::default()),
        }
    }

    /// Rows that died so far. Read after connections have closed: until then
    /// backends have not published their counts.
    pub(crate) async fn dead_rows(&self) -> Result<Option<i64>, BenchError> {
        match self {
            Self::Postgres(database) => database.dead_rows().await.map(Some),
            Self::Sqlite(_) => Ok(None),
        }
    }

    /// Reads all tasks and dependencies: after a measurement.
    pub(crate) async fn flow_order(&self) -> Result<FlowOrder, BenchError> {
        match self {
            Self::Postgres(database) => database.flow_order().await,
            Self::Sqlite(database) => database.flow_order().await,
        }
    }

    /// Commits so far, including read-only ones; read as [`Self::dead_rows`].
    pub(crate) async fn commits(&self) -> Result<Option<i64>, BenchError> {
        match self {
            Self::Postgres(database) => database.commits().await.map(Some),
            Self::Sqlite(_) => Ok(None),
        }
    }

    /// Removes notifications from creation, or restores them. False if the
    /// database sends none.
    pub(crate) async fn mute_notifications(&self, mute: bool) -> Result<bool, BenchError> {
        match self {
            Self::Postgres(database) => database.mute_notifications(mute).await,
            Self::Sqlite(_) => Ok(false),
        }
    }

    /// Removes the schema or file.
    pub(crate) async fn remove(self) -> Result<(), BenchError> {
        match self {
            Self::Postgres(database) => database.remove().await,
            Self::Sqlite(database) => database.remove(),
        }
    }
}
