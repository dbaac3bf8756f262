//! Reads a database URL and opens the database. A URL may hold a password, so no
//! message repeats it.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use task_engine::postgres::tokio_postgres::Config;
use task_engine::postgres::tokio_postgres::config::Host;
use task_engine::postgres::{PgStore, Schema};
use task_engine::sqlite::SqliteStore;
use task_engine::{DatabaseUrl, Store, StoreError};

use crate::console::quoted;
use crate::error::CliError;

pub(crate) const URL_VARIABLE: &str = "TASK_ENGINE_DATABASE_URL";
pub(crate) const DEFAULT_URL: &str = "sqlite:task-engine.db";

/// A database that was named, not yet opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Database {
    Postgres { url: String, schema: Schema },
    File(PathBuf),
    Memory,
}

/// How a command opens a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// It creates the file, and the tables, if they do not exist.
    CreateIfMissing,
    /// It has nothing to do without an existing database.
    MustExist,
}

impl Database {
    pub(crate) fn parse(url: &str, schema: Option<&str>) -> Result<Self, CliError> {
        let usage = |error: StoreError| CliError::Usage(error.to_string());
        let parsed = DatabaseUrl::parse(url).map_err(usage)?;
        if schema.is_some() && !matches!(parsed, DatabaseUrl::Postgres(_)) {
            return Err(CliError::Usage(
                "--schema is for PostgreSQL; in SQLite, use another file instead".to_owned(),
            ));
        }
        match parsed {
            DatabaseUrl::Postgres(url) => {
                let schema = schema.map_or(Ok(Schema::default()), Schema::named).map_err(usage)?;
                check(&url).map_err(CliError::Usage)?;
                Ok(Self::Postgres { url, schema })
            }
            DatabaseUrl::SqliteFile(path) => Ok(Self::File(path)),
            _ => Ok(Self::Memory),
        }
    }

    /// Opens it and checks the connection.
    pub(crate) async fn open(&self, mode: OpenMode) -> Result<Arc<dyn Store>, CliError> {
        match self {
            Self::Postgres { url, schema } => connect(url, schema.clone()).await,
            Self::File(path) => {
                if mode == OpenMode::MustExist && !path.exists() {
                    return Err(missing(path));
                }
                Ok(Arc::new(SqliteStore::open(path)?))
            }
            Self::Memory => Err(CliError::Usage(
                "sqlite::memory: is lost when a command ends, so only `demo` can use it; name a file, like sqlite:task-engine.db".to_owned(),
            )),
        }
    }

    /// The same for a dashboard: with its own connections and short time limits.
    pub(crate) async fn open_to_watch(&self) -> Result<Arc<dyn Store>, CliError> {
        match self {
            Self::Postgres { url, schema } => {
                let store = PgStore::connect_to_watch(url, schema.clone()).await;
                Ok(keep_open(Arc::new(store.map_err(unreachable)?)))
            }
            other => other.open(OpenMode::MustExist).await,
        }
    }

    /// The same for a command that may use a database in memory.
    pub(crate) async fn open_for_one(&self) -> Result<Arc<dyn Store>, CliError> {
        match self {
            Self::Memory => Ok(Arc::new(SqliteStore::open_in_memory()?)),
            lasting => lasting.open(OpenMode::CreateIfMissing).await,
        }
    }

    /// Where it is, without secrets.
    pub(crate) fn location(&self) -> String {
        match self {
            Self::Postgres { url, .. } => {
                let Ok(config) = url.parse::<Config>() else { return "postgres".to_owned() };
                let hosts = config.get_hosts().iter().map(|host| match host {
                    Host::Tcp(name) => name.clone(),
                    Host::Unix(path) => path.display().to_string(),
                });
                let hosts = hosts.collect::<Vec<_>>().join(",");
                format!("postgres://{hosts}/{}", config.get_dbname().unwrap_or_default())
            }
            Self::File(path) => format!("sqlite:{}", path.display()),
            Self::Memory => "sqlite::memory:".to_owned(),
        }
    }

    /// As an option for another command, without secrets.
    pub(crate) fn as_option(&self) -> String {
        match self {
            Self::Postgres { .. } => " --database …".to_owned(),
            Self::File(path) => {
                format!(" --database {}", quoted(&format!("sqlite:{}", path.display())))
            }
            Self::Memory => String::new(),
        }
    }
}

/// Stores on servers, to be closed at the end of the process.
static OPENED: Mutex<Vec<Arc<dyn Store>>> = Mutex::new(Vec::new());

fn keep_open(store: Arc<dyn Store>) -> Arc<dyn Store> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner).push(store.clone());
    store
}

/// Closes all connections to servers.
pub(crate) async fn close_all() {
    let opened = std::mem::take(&mut *OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    for store in opened {
        if let Err(error) = store.close().await {
            tracing::debug!(%error, "could not close the connections");
        }
    }
}

/// Checks the URL with the driver, so that its errors differ from the server's.
fn check(url: &str) -> Result<(), String> {
    // The store knows these two modes, the driver does not.
    let known = url
        .replace("sslmode=verify-full", "sslmode=require")
        .replace("sslmode=verify-ca", "sslmode=require");
    let config = known.parse::<Config>().map_err(|error| {
        let cause = error.source().map_or(error.to_string(), ToString::to_string);
        format!("the database URL is wrong: {cause}")
    })?;
    if config.get_hosts().is_empty() {
        return Err("the database URL names no host".to_owned());
    }
    Ok(())
}

async fn connect(url: &str, schema: Schema) -> Result<Arc<dyn Store>, CliError> {
    let store = PgStore::connect_schema(url, schema).await.map_err(unreachable)?;
    Ok(keep_open(Arc::new(store)))
}

fn unreachable(error: StoreError) -> CliError {
    match error {
        StoreError::Unavailable(why) => {
            let advice = if why.contains("password missing") {
                "The server asks for a password: postgres://user:password@host:5432/database."
            } else if why.contains("server does not support TLS") {
                "Set the server up for TLS, or remove sslmode from the URL if the network is trusted."
            } else {
                "Check that the server is running, that host and port in the URL are right, and that this machine may reach it."
            };
            CliError::Failure(format!("{why}\n{advice}"))
        }
        error => error.into(),
    }
}

fn missing(path: &Path) -> CliError {
    CliError::NotFound(format!(
        "there is no database {} yet; change to its folder, name another with --database or {URL_VARIABLE}, or create it with `task-engine migrate`",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_errors_hide_the_password() {
        for (url, schema, why) in [
            ("mysql://u:secret@h/d", None, "mysql:// is not a database"),
            ("postgres://", None, "names no host"),
            ("postgres://u:secret@h:99999/d", None, "invalid value for option `port`"),
            ("postgres://u:secret@h/d?nonsense=1", None, "unknown option `nonsense`"),
            ("sqlite:a.db", Some("jobs"), "--schema is for PostgreSQL"),
            ("postgres://h/d", Some("a b"), "cannot be a schema"),
        ] {
            let error = Database::parse(url, schema).unwrap_err();
            assert!(matches!(error, CliError::Usage(_)), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(why) && !text.contains("secret"), "{url}: {text}");
        }
    }
}
