//! Where the bench takes place: a throw-away schema or file, and what can be
//! read about the database meanwhile.

use std::sync::Arc;
use std::time::Duration;

use task_engine::Store;

use super::options::Settings;
use super::postgres::PgArena;
use super::sqlite::FileArena;
use crate::database::Database;
use crate::error::CliError;

#[derive(Debug)]
pub(super) enum Arena {
    Postgres(Box<PgArena>),
    File(FileArena),
}

/// What a database has used so far; a difference of two readings is a cost.
/// What cannot be read is left out.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reading {
    pub(super) cpu: Option<Duration>,
    pub(super) wal_bytes: Option<f64>,
    /// Transactions that wrote something: each of them waited for the disk.
    pub(super) writes: Option<i64>,
}

/// Connections of others. What they use is counted as if it were ours.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Strangers {
    pub(super) on_server: i64,
    pub(super) in_database: i64,
}

/// Rows go into the past and the future in portions, so that nobody has to
/// wait long for Ctrl-C.
pub(super) const PORTION: u64 = 100_000;

impl Arena {
    /// Finds the place. Nothing is created before [`Self::prepare`].
    pub(super) async fn find(database: &Database) -> Result<Self, CliError> {
        Ok(match database {
            Database::Postgres { url, .. } => {
                Self::Postgres(Box::new(PgArena::connect(url).await?))
            }
            Database::File(path) => Self::File(FileArena::beside(path)?),
            Database::Memory => {
                return Err(CliError::Usage(
                    "sqlite::memory: cannot be shared with the engines of a bench, which are processes of their own; name a file, like sqlite:bench.db".to_owned(),
                ));
            }
        })
    }

    /// Creates the tables, and what is to be in them from the beginning.
    pub(super) async fn prepare(&self, settings: &Settings) -> Result<(), CliError> {
        self.store().await?.migrate().await?;
        for (count, what) in [
            (settings.history, Rows::Past),
            (settings.future, Rows::Future),
            (settings.crowd, Rows::Crowd),
        ] {
            let mut missing = count;
            while missing > 0 {
                let portion = missing.min(PORTION);
                match self {
                    Self::Postgres(arena) => arena.fill(what, portion).await?,
                    Self::File(arena) => arena.fill(what, portion).await?,
                }
                missing -= portion;
            }
        }
        match self {
            Self::Postgres(arena) => arena.settle(settings.hold_snapshot).await,
            Self::File(arena) => arena.settle(settings.hold_snapshot).await,
        }
    }

    /// Removes what the last measurement has left.
    pub(super) async fn tidy(&self, settings: &Settings) -> Result<(), CliError> {
        let keep = Keep {
            rows: settings.history > 0 || settings.future > 0 || settings.crowd > 0,
            dead_rows: settings.hold_snapshot,
        };
        match self {
            Self::Postgres(arena) => arena.tidy(keep).await,
            Self::File(arena) => arena.tidy(keep).await,
        }
    }

    /// A handle of its own, as another process would have.
    pub(super) async fn store(&self) -> Result<Arc<dyn Store>, CliError> {
        match self {
            Self::Postgres(arena) => arena.store().await,
            Self::File(arena) => arena.store(),
        }
    }

    /// One handle a producer. In SQLite producers share one, as the threads of
    /// an application do: its commits gather what all of them bring.
    pub(super) async fn stores(&self, producers: u16) -> Result<Vec<Arc<dyn Store>>, CliError> {
        let first = self.store().await?;
        let mut stores = vec![first.clone()];
        for _ in 1..producers {
            stores.push(match self {
                Self::Postgres(arena) => arena.store().await?,
                Self::File(_) => first.clone(),
            });
        }
        Ok(stores)
    }

    /// The URL for engines.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Postgres(arena) => arena.url(),
            Self::File(arena) => arena.url(),
        }
    }

    pub(super) fn schema_option(&self) -> Vec<String> {
        match self {
            Self::Postgres(arena) => vec!["--schema".to_owned(), arena.schema()],
            Self::File(_) => Vec::new(),
        }
    }

    /// Which database this is, and of which version.
    pub(super) fn database(&self) -> String {
        match self {
            Self::Postgres(arena) => arena.database(),
            Self::File(arena) => arena.database(),
        }
    }

    /// The throw-away part, by its name.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Postgres(arena) => format!("schema {}", arena.schema()),
            Self::File(arena) => arena.url(),
        }
    }

    /// What the database has used so far. An embedded one is a part of the
    /// engine, and so are its costs.
    pub(super) async fn read(&self) -> Result<Reading, CliError> {
        match self {
            Self::Postgres(arena) => arena.read().await,
            Self::File(_) => Ok(Reading::default()),
        }
    }

    /// Who else was at work on the same server a short while ago. Whoever comes
    /// and goes in between is not seen.
    pub(super) async fn strangers(&self, within: Duration) -> Result<Strangers, CliError> {
        match self {
            Self::Postgres(arena) => arena.strangers(within).await,
            Self::File(_) => Ok(Strangers::default()),
        }
    }

    /// Rows that have died so far. Counted when their connections have ended,
    /// not before: until then backends keep the counts to themselves.
    pub(super) async fn dead_rows(&self) -> Result<Option<i64>, CliError> {
        match self {
            Self::Postgres(arena) => arena.dead_rows().await.map(Some),
            Self::File(_) => Ok(None),
        }
    }

    /// Commits so far, those that only read included; counted as the dead rows.
    pub(super) async fn commits(&self) -> Result<Option<i64>, CliError> {
        match self {
            Self::Postgres(arena) => arena.commits().await.map(Some),
            Self::File(_) => Ok(None),
        }
    }

    /// Takes wake-ups out of creation, or puts them back. False if this cannot
    /// be done here.
    pub(super) async fn silence(&self, silent: bool) -> Result<bool, CliError> {
        match self {
            Self::Postgres(arena) => arena.silence(silent).await,
            // Engines of other processes look for themselves: nothing is sent.
            Self::File(_) => Ok(false),
        }
    }

    /// Removes everything.
    pub(super) async fn remove(self) -> Result<(), CliError> {
        match self {
            Self::Postgres(arena) => arena.remove().await,
            Self::File(arena) => arena.remove(),
        }
    }
}

/// Rows that are there from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    /// Tasks that did their work an hour ago.
    Past,
    /// Tasks of a higher priority that are due tomorrow.
    Future,
    /// Tasks of a lower priority that are due, in a queue that no engine serves.
    Crowd,
}

/// What must outlive a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    /// The rows that were there from the beginning.
    pub(super) rows: bool,
    /// What a snapshot that is held keeps from being removed: that is the point.
    pub(super) dead_rows: bool,
}
