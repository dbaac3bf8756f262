//! Many jobs, one commit.
//!
//! A commit waits for the disk, a job hardly ever does. While one commit is
//! under way the next jobs gather by themselves, and share the one after it: no
//! timer, and no added wait when there is little to do.

use std::sync::mpsc::Receiver;

use rusqlite::{Connection, ffi};

use crate::connection::FileMark;
use crate::connection_thread::{Job, JobTransaction};
use crate::listen::WakeUpSender;

/// Bounds how long the first job of a group waits for the last one.
const GROUP_MAX: usize = 1000;

/// Does all jobs until the channel is closed.
pub(crate) fn write_all(
    connection: &Connection,
    file: Option<&FileMark>,
    inbox: &Receiver<Box<dyn Job>>,
    place: &str,
    wake_ups: &WakeUpSender,
) {
    while let Ok(first) = inbox.recv() {
        let mut group = vec![first];
        group.extend(inbox.try_iter().take(GROUP_MAX - 1));
        let committed = commit(connection, file, &mut group, wake_ups);
        for job in group {
            job.answer(committed.as_ref().map(|_| ()), place);
        }
    }
}

/// IMMEDIATE: the lock comes first, so that nothing that was read is out of date when it
/// is written.
fn commit(
    connection: &Connection,
    file: Option<&FileMark>,
    group: &mut [Box<dyn Job>],
    wake_ups: &WakeUpSender,
) -> rusqlite::Result<()> {
    // Once outside of the transaction, where a deleted log can still be saved.
    let check = || file.map_or(Ok(()), |file| file.check(connection));
    check()?;
    execute(connection, "BEGIN IMMEDIATE")?;
    let tx = JobTransaction::new(connection);
    let keep = || check().and_then(|()| execute(connection, "COMMIT"));
    let done = match group {
        [job] => run_alone(job.as_mut(), &tx, keep),
        jobs => {
            jobs.iter_mut().try_for_each(|job| run_apart(job.as_mut(), &tx)).and_then(|()| keep())
        }
    };
    if done.is_err() && !connection.is_autocommit() {
        let _ = execute(connection, "ROLLBACK");
    }
    done?;
    wake_ups.send(tx.brings_work.get(), tx.wants_cancel.get());
    if tx.changes_schedules.get() {
        wake_ups.schedules_changed();
    }
    Ok(())
}

/// The whole transaction is one job's: it needs no savepoint, which would copy
/// every page that the job changes, to a file if they are many.
fn run_alone(
    job: &mut dyn Job,
    tx: &JobTransaction<'_>,
    keep: impl FnOnce() -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    if job.run(tx) {
        return keep();
    }
    // After some errors SQLite itself has taken it back.
    if tx.db.is_autocommit() { Ok(()) } else { execute(tx.db, "ROLLBACK") }
}

/// A job that fails is rolled back alone.
fn run_apart(job: &mut dyn Job, tx: &JobTransaction<'_>) -> rusqlite::Result<()> {
    execute(tx.db, "SAVEPOINT task_engine_job")?;
    if !job.run(tx) {
        if tx.db.is_autocommit() {
            // After some errors, like a full disk, SQLite itself rolls back the whole
            // transaction: the other jobs of this group are rolled back, too.
            return Err(rusqlite::Error::SqliteFailure(
                ffi::Error::new(ffi::SQLITE_ABORT),
                Some("the failure of another job rolled back the whole transaction".to_owned()),
            ));
        }
        execute(tx.db, "ROLLBACK TO task_engine_job")?;
    }
    execute(tx.db, "RELEASE task_engine_job")
}

fn execute(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(|_| ())
}

#[cfg(test)]
mod tests;
