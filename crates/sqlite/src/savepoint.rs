//! Work in a transaction of the application.

use rusqlite::Connection;
use task_engine_store::error::StoreError;

use crate::connection_thread::JobTransaction;
use crate::error::JobError;

/// Does work in a transaction of the application, or in one of its own if there is none.
/// After an error the transaction is as it was before.
pub(crate) fn in_savepoint<T>(
    connection: &Connection,
    work: impl FnOnce(&JobTransaction<'_>) -> Result<T, JobError>,
) -> Result<T, StoreError> {
    let whole = || {
        connection.execute_batch("SAVEPOINT task_engine_call")?;
        let done = work(&JobTransaction::new(connection));
        // After some errors SQLite itself has rolled back the whole transaction.
        if !connection.is_autocommit() {
            if done.is_err() {
                connection.execute_batch("ROLLBACK TO task_engine_call")?;
            }
            connection.execute_batch("RELEASE task_engine_call")?;
        }
        done
    };
    whole().map_err(|error| error.explain(connection.path().unwrap_or("the database")))
}

/// Rolls the whole transaction of the application back, so that nothing of it can be committed.
pub(crate) fn roll_back(connection: &Connection) {
    if !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
}

/// Takes the lock of the writer before anything is read, so that everything that is read
/// after it is current.
pub(crate) fn lock(tx: &JobTransaction<'_>) -> Result<(), JobError> {
    tx.db.prepare_cached(sql!("engine/complete", "complete_lock"))?.execute([])?;
    Ok(())
}
