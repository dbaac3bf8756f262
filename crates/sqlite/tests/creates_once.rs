//! Unique tasks in the application's own transaction.

mod common;

use std::time::Duration;

use common::{File, task};
use task_engine_core::unique::{Creation, OnConflict, Scope, Unique};
use task_engine_sqlite::{create_each_in, create_in, rusqlite};
use task_engine_store::error::StoreError;

#[tokio::test]
async fn unique_key_follows_application_transaction() {
    let file = File::with_tables().await;
    let mut connection = file.connect();
    let once = || task("work").unique(Unique::by("k")).unwrap();
    let replaces = Unique::by("k").on_conflict(OnConflict::Replace);

    let transaction = connection.transaction().unwrap();
    assert!(create_each_in(&transaction, &[once()]).unwrap()[0].is_new());
    transaction.rollback().unwrap();

    let transaction = connection.transaction().unwrap();
    let tasks = [once(), task("work"), task("work").unique(replaces).unwrap()];
    let creations = create_each_in(&transaction, &tasks).unwrap();
    let id = creations[0].id();
    assert_eq!(creations[0], Creation::Created(id));
    assert!(creations[1].is_new());
    assert_eq!(creations[2], Creation::Replaced(id));
    transaction.commit().unwrap();

    assert_eq!(create_in(&connection, &[once()]).unwrap(), [id]);
    assert_eq!(file.open().create_each(&[once()]).await.unwrap(), [Creation::Kept(id)]);
    assert_eq!(file.open().verify().await.unwrap(), []);
}

/// A transaction with an old snapshot cannot create: SQLite reports an error, and no task
/// is created twice.
#[tokio::test]
async fn old_snapshot_must_repeat() {
    let file = File::with_tables().await;
    let mut connection = file.connect();
    connection.busy_timeout(Duration::ZERO).unwrap();
    let once = task("work").unique(Unique::by("k").scope(Scope::Waiting)).unwrap();
    let transaction = connection.transaction().unwrap();
    let count = "SELECT count(*) FROM task_engine_created_tasks";
    let read: i64 = transaction.query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(read, 0);
    let id = file.open().create(std::slice::from_ref(&once)).await.unwrap()[0];
    let refused = create_in(&transaction, std::slice::from_ref(&once));
    assert!(refused.as_ref().is_err_and(StoreError::is_temporary), "{refused:?}");
    drop(transaction);
    assert_eq!(create_each_in(&connection, &[once]).unwrap(), [Creation::Kept(id)]);
}

#[tokio::test]
async fn verify_finds_orphaned_key() {
    let file = File::with_tables().await;
    let connection: rusqlite::Connection = file.connect();
    let insert = "INSERT INTO task_engine_unique_tasks VALUES ('work', 'k', 999)";
    connection.execute(insert, []).unwrap();
    let violations = file.open().verify().await.unwrap();
    assert_eq!(violations.len(), 1);
    assert!(violations[0].message.contains("the unique key k of class work belongs to task 999"));
}
