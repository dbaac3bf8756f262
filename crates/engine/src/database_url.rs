//! Database URLs. A URL may hold a password, so no message repeats it.

use std::path::PathBuf;
use std::sync::Arc;

use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;

const FORMS: &str = "A database URL looks like
  postgres://user:password@host:5432/database
  sqlite:task-engine.db (a file in the current folder)
  sqlite:/var/lib/app/tasks.db";

/// The database that a URL names.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatabaseUrl {
    /// A PostgreSQL server: `postgres://…`.
    Postgres(String),
    /// An SQLite file: `sqlite:tasks.db`.
    SqliteFile(PathBuf),
    /// An SQLite database in memory: `sqlite::memory:`.
    SqliteMemory,
}

/// Without the password.
impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Postgres(_) => f.write_str("Postgres(…)"),
            Self::SqliteFile(path) => write!(f, "SqliteFile({})", path.display()),
            Self::SqliteMemory => f.write_str("SqliteMemory"),
        }
    }
}

impl DatabaseUrl {
    /// Reads a URL.
    ///
    /// The parts of a PostgreSQL URL are checked when it is connected.
    pub fn parse(url: &str) -> Result<Self, StoreError> {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres(url.to_owned()));
        }
        let wrong = |why: &str| Err(StoreError::Refused(format!("{why}. {FORMS}")));
        let Some(path) = url.strip_prefix("sqlite:") else { return wrong(&url_error(url)) };
        match path.strip_prefix("//").unwrap_or(path) {
            ":memory:" => Ok(Self::SqliteMemory),
            "" => wrong("the database URL names no file"),
            path if path.contains('?') => {
                wrong("an SQLite URL has no options: remove the ? and all after it")
            }
            path => Ok(Self::SqliteFile(path.into())),
        }
    }

    pub(crate) async fn connect(self) -> Result<Arc<dyn Store>, StoreError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => {
                Ok(Arc::new(task_engine_postgres::PgStore::connect(&url).await?))
            }
            #[cfg(feature = "sqlite")]
            Self::SqliteFile(path) => Ok(Arc::new(task_engine_sqlite::SqliteStore::open(path)?)),
            #[cfg(feature = "sqlite")]
            Self::SqliteMemory => Ok(Arc::new(task_engine_sqlite::SqliteStore::open_in_memory()?)),
            #[allow(unreachable_patterns)] // With both features, none is left.
            _ => Err(StoreError::Refused(
                "this program was built without support for this database; add the feature `postgres` or `sqlite` of the crate task-engine".to_owned(),
            )),
        }
    }
}

/// What is wrong with a URL of neither form.
fn url_error(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once(':') else {
        return if url.is_empty() {
            "the database URL is empty".to_owned()
        } else if url.contains('@') {
            "the database URL does not begin with postgres:// or sqlite:".to_owned()
        } else {
            format!("{url:?} is not a database URL; for a file, write sqlite:{url}")
        };
    };
    let is_scheme = !scheme.is_empty()
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    match scheme {
        "postgres" | "postgresql" => {
            format!("the database URL lacks the slashes of {scheme}://")
        }
        _ if is_scheme && rest.starts_with("//") => {
            format!("{scheme}:// is not a database that Task Engine can use")
        }
        _ => "the database URL does not begin with postgres:// or sqlite:".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_urls_are_parsed() {
        let file = |path: &str| DatabaseUrl::SqliteFile(path.into());
        for (url, expected) in [
            ("sqlite:tasks.db", file("tasks.db")),
            ("sqlite:/tmp/tasks.db", file("/tmp/tasks.db")),
            ("sqlite://tasks.db", file("tasks.db")),
            ("sqlite:///tmp/tasks.db", file("/tmp/tasks.db")),
            ("sqlite::memory:", DatabaseUrl::SqliteMemory),
        ] {
            assert_eq!(DatabaseUrl::parse(url).unwrap(), expected, "{url}");
        }
        for url in ["postgres://u:p@h/d", "postgresql://h/d"] {
            assert_eq!(DatabaseUrl::parse(url).unwrap(), DatabaseUrl::Postgres(url.to_owned()));
        }
    }

    #[test]
    fn url_errors_hide_the_password() {
        for (url, why) in [
            ("", "is empty"),
            ("tasks.db", "write sqlite:tasks.db"),
            ("mysql://u:secret@h/d", "mysql:// is not a database"),
            ("u:secret@h/d", "does not begin with"),
            ("secret@h/d", "does not begin with"),
            ("postgres:h/secret", "slashes of postgres://"),
            ("sqlite:", "names no file"),
            ("sqlite:a.db?mode=rwc", "no options"),
        ] {
            let error = DatabaseUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{url}: {error}");
        }
        assert_eq!(
            format!("{:?}", DatabaseUrl::parse("postgres://u:secret@h/d").unwrap()),
            "Postgres(…)"
        );
    }
}
