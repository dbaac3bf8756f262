//! A clock that tests can move on. It is kept in the database, so that all who
//! use the database have the same time: the store, and `create_in` on a
//! connection of the application's own.
//!
//! A program that is built without the feature `testing` knows nothing of it.

use std::time::Duration;

use rusqlite::Connection;
use task_engine_store::error::StoreError;

use crate::SqliteStore;
use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::moment::micros;

/// How far the clock of this database is clock_offset of the machine's, in
/// microseconds. There is no such table where no test has moved the clock.
pub(crate) fn clock_offset(db: &Connection) -> i64 {
    let read = db.prepare_cached(sql!("testing/clock", "clock"));
    read.and_then(|mut read| read.query_row([], |row| row.get(0))).unwrap_or(0)
}

impl SqliteStore {
    /// Moves the clock of this database forward.
    ///
    /// Engines look for due tasks at once. The clock does not go back, and the change stays in the
    /// file.
    ///
    /// An `INSERT` into the view `task_engine_tasks` still has the machine's
    /// time, which is in the past of this one.
    pub async fn advance_clock(&self, by: Duration) -> Result<(), StoreError> {
        self.run_on_writer(move |tx| advance(tx, by)).await
    }
}

fn advance(tx: &JobTransaction<'_>, by: Duration) -> Result<(), JobError> {
    tx.db.execute_batch(sql!("testing/clock", "create_clock"))?;
    // Not beyond the calendar.
    let clock_offset = clock_offset(tx.db);
    let year_9000 = 221_845_392_000_000_000 - (tx.now() - clock_offset);
    let clock_offset = clock_offset.saturating_add(micros(by)).min(year_9000);
    tx.db.execute(sql!("testing/clock", "move_clock"), [clock_offset])?;
    tx.brings_work.set(true);
    tx.changes_schedules.set(true);
    Ok(())
}
