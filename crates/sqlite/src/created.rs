//! The tasks that a transaction has created and not yet committed: for tests.

use rusqlite::{Connection, OpenFlags};
use task_engine_core::json::Json;
use task_engine_core::task::CreatedTask;
use task_engine_core::task::TaskId;
use task_engine_store::error::StoreError;

use crate::error::explain;
use crate::moment::timestamp;

/// Returns the tasks of a class that this transaction has created, oldest first.
///
/// Outside of a transaction nothing is uncommitted.
///
/// What has committed is seen through a second connection to the same file: it
/// alone can tell, as there is one writer at a time, and ids only grow.
pub fn created_in(connection: &Connection, class: &str) -> Result<Vec<CreatedTask>, StoreError> {
    let read = || {
        let last = committed(connection)?;
        let mut statement = connection.prepare(sql!("testing/clock", "created"))?;
        let rows = statement.query_map((last, class), created)?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    read().map_err(|error| explain(&error, connection.path().unwrap_or("the database")))
}

fn committed(connection: &Connection) -> rusqlite::Result<i64> {
    let newest =
        |db: &Connection| db.query_row(sql!("testing/clock", "last_task"), [], |row| row.get(0));
    if connection.is_autocommit() {
        return newest(connection);
    }
    match connection.path() {
        Some(path) if !path.is_empty() => {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            newest(&Connection::open_with_flags(path, flags)?)
        }
        // A private database: no other connection sees it.
        _ => Ok(0),
    }
}

fn created(row: &rusqlite::Row<'_>) -> rusqlite::Result<CreatedTask> {
    Ok(CreatedTask {
        id: TaskId(row.get(0)?),
        class: row.get(1)?,
        parameters: Json::from_store(row.get(2)?),
        context: Json::from_store(row.get(3)?),
        queue: row.get(4)?,
        priority: row.get(5)?,
        due_at: timestamp(row.get(6)?),
        created_at: timestamp(row.get(7)?),
    })
}
