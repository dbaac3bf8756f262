//! Opens the file, and explains errors.

use std::cell::OnceCell;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use task_engine_store::error::StoreError;

use crate::error::explain;

/// How long a connection waits for another one's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// More than there are statements: each is prepared once.
const STATEMENTS_MAX: usize = 250;

/// A connection that reads and writes; creates the file.
pub(crate) fn open(path: &Path, place: &str) -> Result<Connection, StoreError> {
    check(path)?;
    // Without SQLITE_OPEN_URI: a path is a path, even one that begins with `file:`.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
        .and_then(|connection| {
            connection.busy_timeout(BUSY_TIMEOUT)?;
            use_write_ahead_log(&connection)?;
            prepare(&connection)?;
            Ok(connection)
        })
        .map_err(|error| {
            may_not_open(&error, path, place).unwrap_or_else(|| explain(&error, place))
        })
        .and_then(|connection| match connection.is_readonly(rusqlite::MAIN_DB) {
            Ok(false) => Ok(connection),
            // SQLite falls back to reading in silence, and fails at the first write.
            _ => Err(StoreError::Refused(format!(
                "{place} is read-only; let this user write the file and its folder"
            ))),
        })
}

/// The identity of the files of a path. SQLite continues to write to a file that was
/// deleted or replaced, and reports commits: the data would be lost.
#[derive(Debug)]
pub(crate) struct FileMark {
    path: PathBuf,
    file: FileId,
    /// The write-ahead log and its index, once they are there. SQLite keeps both
    /// as long as a connection is open.
    log: OnceCell<[(PathBuf, FileId); 2]>,
}

/// Device and number.
type FileId = (u64, u64);

/// The beginning of the error if the write-ahead log is gone.
pub(crate) const LOG_GONE: &str = "its write-ahead log";

impl FileMark {
    /// Of a file that was just opened. The program may go to another folder later.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let file = number(&path)?;
        Ok(Self { path, file, log: OnceCell::new() })
    }

    /// Fails if the path refers to another file now or to none, or if its write-ahead log
    /// does.
    pub(crate) fn check(&self, connection: &Connection) -> rusqlite::Result<()> {
        if number(&self.path).is_ok_and(|file| file == self.file) {
            return self.check_log(connection);
        }
        Err(cannot_open(
            "the file was deleted, moved or replaced while it was open: put it back, or restart what uses it",
        ))
    }

    fn check_log(&self, connection: &Connection) -> rusqlite::Result<()> {
        let Some(log) = self.log.get() else {
            if let Some(found) = self.find_log() {
                let _ = self.log.set(found);
            }
            return Ok(());
        };
        let now = log.each_ref().map(|(path, file)| (path, number(path).ok(), *file));
        let Some((gone, _, _)) = now.iter().find(|(_, now, file)| *now != Some(*file)) else {
            return Ok(());
        };
        let replaced = now.iter().any(|(_, now, file)| now.is_some_and(|now| now != *file));
        let what = if replaced {
            "another program has made a new one: end all programs that use this file, then run `task-engine doctor --deep`"
        } else {
            // Committed data is still in the deleted log, and only processes that have it
            // open can save it.
            save_log(connection);
            "restart all programs that use this file"
        };
        Err(cannot_open(&format!(
            "{LOG_GONE} {} was deleted or replaced while it was in use; {what}",
            gone.display()
        )))
    }

    fn find_log(&self) -> Option<[(PathBuf, FileId); 2]> {
        let beside = |ending: &str| {
            let mut path = self.path.clone().into_os_string();
            path.push(ending);
            let path = PathBuf::from(path);
            let file = number(&path).ok()?;
            Some((path, file))
        };
        Some([beside("-wal")?, beside("-shm")?])
    }
}

/// Copies the content of the log into the file.
fn save_log(connection: &Connection) {
    let saved = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
    });
    tracing::debug!("the deleted write-ahead log is saved into the file: {saved:?}");
}

fn cannot_open(why: &str) -> rusqlite::Error {
    let code = ffi::Error::new(ffi::SQLITE_CANTOPEN);
    rusqlite::Error::SqliteFailure(code, Some(why.to_owned()))
}

fn number(path: &Path) -> io::Result<FileId> {
    std::fs::metadata(path).map(|file| (file.dev(), file.ino()))
}

/// A database that is removed with its connection.
pub(crate) fn open_in_memory(place: &str) -> Result<Connection, StoreError> {
    Connection::open_in_memory()
        .and_then(|connection| prepare(&connection).map(|()| connection))
        .map_err(|error| explain(&error, place))
}

/// SQLite reports "unable to open database file" for all of these.
fn check(path: &Path) -> Result<(), StoreError> {
    let refuse = |why: String| Err(StoreError::Refused(why));
    let shown = path.display();
    if path.as_os_str().is_empty() {
        return refuse("the path of the database file is empty".to_owned());
    }
    if path.is_dir() {
        return refuse(format!(
            "{shown} is a folder; name a database file in it, like {}",
            path.join("tasks.db").display()
        ));
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => refuse(format!(
            "{shown} cannot be opened: the folder {} does not exist; create it",
            folder.display()
        )),
        _ => Ok(()),
    }
}

/// The rights of this user, which `check` cannot read.
fn may_not_open(error: &rusqlite::Error, path: &Path, place: &str) -> Option<StoreError> {
    if error.sqlite_error_code() != Some(ErrorCode::CannotOpen) {
        return None;
    }
    let path = std::path::absolute(path).ok()?;
    let opened = OpenOptions::new().read(true).write(true).open(&path);
    let advice = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => format!(
            "a file cannot be made in {}; let this user write there, or choose a file elsewhere",
            path.parent()?.display()
        ),
        Err(error) => {
            format!(
                "{}: {error}; let this user read and write the file and its folder",
                path.display()
            )
        }
        Ok(_) => return None,
    };
    Some(StoreError::Unavailable(format!("{place} cannot be opened: {advice}")))
}

/// Changing the mode takes a lock that SQLite does not wait for; two processes
/// that open a new file at once meet here.
fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let timeout = Instant::now() + BUSY_TIMEOUT;
    loop {
        let changed =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
        match changed {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < timeout =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other.map(|_| ()),
        }
    }
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Without this, SQLite uses the value of a LIMIT to choose a plan, and prepares the
    // statement again for each value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // FULL: committed data survives a power failure (promise 1).
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = OFF;")
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn limit_reuses_prepared_statement() {
        let connection = open_in_memory("test").unwrap();
        let mut read = connection.prepare("SELECT name FROM sqlite_master LIMIT ?1").unwrap();
        for limit in 1..5 {
            assert!(!read.exists([limit]).unwrap());
        }
        assert_eq!(read.get_status(StatementStatus::RePrepare), 0);
    }

    #[test]
    fn missing_or_replaced_file_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("a.db"), folder.path().join("b.db"));
        let open = open(&path, "test").unwrap();
        let mark = FileMark::of(&path).unwrap();
        mark.check(&open).unwrap();
        std::fs::rename(&path, &away).unwrap();
        let error = explain(&mark.check(&open).unwrap_err(), "test");
        assert!(error.is_temporary(), "it may come back");
        assert!(error.to_string().contains("deleted, moved or replaced"), "{error}");
        std::fs::write(&path, "").unwrap();
        assert!(mark.check(&open).is_err(), "another file of this name");
        std::fs::rename(&away, &path).unwrap();
        mark.check(&open).unwrap();
    }

    #[test]
    fn deleted_log_is_saved_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let open = open(&path, "test").unwrap();
        let mark = FileMark::of(&path).unwrap();
        open.execute_batch("CREATE TABLE notes (text); INSERT INTO notes VALUES ('kept')").unwrap();
        mark.check(&open).unwrap();
        for log in ["a.db-wal", "a.db-shm"] {
            std::fs::remove_file(folder.path().join(log)).unwrap();
        }
        let error = explain(&mark.check(&open).unwrap_err(), "test");
        assert!(matches!(error, StoreError::MustReopen(_)), "{error:?}");
        assert!(error.to_string().contains("restart all programs"), "{error}");
        // As after a crash: only the file is left.
        let copy = folder.path().join("copy.db");
        std::fs::copy(&path, &copy).unwrap();
        let copy = Connection::open(copy).unwrap();
        let kept: String = copy.query_row("SELECT text FROM notes", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, "kept");
        std::fs::write(folder.path().join("a.db-wal"), "").unwrap();
        let error = explain(&mark.check(&open).unwrap_err(), "test");
        assert!(error.to_string().contains("another program has made a new one"), "{error}");
    }
}
