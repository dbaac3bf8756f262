use std::sync::Arc;

use task_engine_store::error::StoreError;

use super::*;
use crate::connection_thread::ConnectionThread;
use crate::error::JobError;

fn writer(connection: Connection) -> ConnectionThread {
    let place: Arc<str> = "test".into();
    let at = place.clone();
    let work = move |inbox| write_all(&connection, None, &inbox, &at, &WakeUpSender::new());
    ConnectionThread::spawn("writer", place, work).unwrap()
}

fn insert(text: &'static str) -> impl FnOnce(&JobTransaction<'_>) -> Result<(), JobError> {
    move |tx| {
        tx.db.execute("INSERT INTO notes VALUES (?1)", [text])?;
        Ok(())
    }
}

fn notes(tx: &JobTransaction<'_>) -> Result<i64, JobError> {
    Ok(tx.db.query_row("SELECT count(*) FROM notes", [], |row| row.get(0))?)
}

fn database() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch("CREATE TABLE notes (text)").unwrap();
    connection
}

#[tokio::test]
async fn panicking_job_is_rolled_back() {
    let writer = writer(database());
    let panics = writer.run(|tx| {
        insert("lost")(tx)?;
        if tx.now() > 0 {
            panic!("on purpose");
        }
        Ok(())
    });
    let (before, panicked, after) =
        tokio::join!(writer.run(insert("a")), panics, writer.run(insert("b")));
    assert!(before.is_ok() && after.is_ok());
    assert!(matches!(panicked, Err(StoreError::Refused(_))), "{panicked:?}");
    assert_eq!(writer.run(notes).await.unwrap(), 2);
}

#[tokio::test]
async fn full_disk_fails_whole_jobs() {
    let connection = database();
    connection.execute_batch("PRAGMA max_page_count = 50").unwrap();
    let writer = writer(connection);
    let too_much = writer.run(|tx| {
        tx.db.execute("INSERT INTO notes VALUES (zeroblob(1000000))", [])?;
        Ok(())
    });
    let (_, full) = tokio::join!(writer.run(insert("a")), too_much);
    assert!(full.as_ref().is_err_and(StoreError::is_temporary), "{full:?}");
    writer.run(insert("b")).await.unwrap();
    assert!(writer.run(notes).await.unwrap() <= 2);
}

#[tokio::test]
async fn lost_transaction_fails_whole_group() {
    let writer = writer(database());
    let spoils = writer.run(|tx| {
        tx.db.execute_batch("ROLLBACK")?;
        Err::<(), _>(JobError::Store(StoreError::InstanceOver))
    });
    let (first, spoilt) = tokio::join!(writer.run(insert("a")), spoils);
    assert!(matches!(spoilt, Err(StoreError::InstanceOver)));
    let kept = writer.run(notes).await.unwrap();
    assert_eq!(kept, i64::from(first.is_ok()), "{first:?}");
    writer.run(insert("b")).await.unwrap();
}

#[tokio::test]
async fn failed_single_job_changes_nothing() {
    let writer = writer(database());
    let fails = |tx: &JobTransaction<'_>| {
        insert("lost")(tx)?;
        Err::<(), _>(JobError::Store(StoreError::InstanceOver))
    };
    assert!(matches!(writer.run(fails).await, Err(StoreError::InstanceOver)));
    assert_eq!(writer.run(notes).await.unwrap(), 0);
}

#[tokio::test]
async fn lost_single_transaction_changes_nothing() {
    let writer = writer(database());
    let spoils = |tx: &JobTransaction<'_>| {
        insert("lost")(tx)?;
        Ok(tx.db.execute_batch("ROLLBACK")?)
    };
    assert!(writer.run(spoils).await.is_err());
    writer.run(insert("a")).await.unwrap();
    assert_eq!(writer.run(notes).await.unwrap(), 1);
}
