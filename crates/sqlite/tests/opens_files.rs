//! Errors about a file say what to do.

mod common;

use common::{File, task};
use task_engine_sqlite::SqliteStore;
use task_engine_store::error::StoreError;

fn refusal(path: &std::path::Path) -> String {
    match SqliteStore::open(path) {
        Err(StoreError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_files_are_refused() {
    let file = File::new();
    let folder = file.path().parent().unwrap().to_owned();
    assert!(refusal(&folder).contains("is a folder"), "{}", refusal(&folder));
    let nowhere = folder.join("missing").join("tasks.db");
    assert!(refusal(&nowhere).contains("does not exist; create it"), "{}", refusal(&nowhere));
    std::fs::write(file.path(), "Dear diary, today I was not a database. ".repeat(100)).unwrap();
    assert!(refusal(&file.path()).contains("is not an SQLite database"));
    assert!(refusal(std::path::Path::new("")).contains("is empty"));
}

#[tokio::test]
async fn missing_tables_name_the_remedy() {
    let file = File::new();
    let store = file.open();
    let created = store.create(&[task("work")]).await.unwrap_err();
    let listed = store.instances(None).await.unwrap_err();
    let listened = store.listen(&|_| ()).await.unwrap_err();
    for error in [created, listed, listened] {
        assert!(
            matches!(&error, StoreError::Version(why) if why.contains("task-engine migrate")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn tables_are_created_once() {
    let file = File::new();
    assert_eq!(file.open().migrate().await.unwrap()[0], "0001_tasks");
    assert!(file.open().migrate().await.unwrap().is_empty());
}

#[tokio::test]
async fn newer_schema_is_refused() {
    let file = File::with_tables().await;
    file.connect()
        .execute("INSERT INTO task_engine_migrations VALUES (99, '0099_later', 0)", [])
        .unwrap();
    let error = file.open().migrate().await.unwrap_err();
    let StoreError::Version(why) = &error else { panic!("{error:?}") };
    for part in ["version 99", "versions up to ", "upgrade task-engine"] {
        assert!(why.contains(part), "{why}");
    }
}

#[tokio::test]
async fn concurrent_opens_of_new_file_succeed() {
    for _ in 0..20 {
        let file = File::new();
        let path = file.path();
        let other = std::thread::spawn(move || SqliteStore::open(path).map(|_| ()));
        file.open();
        other.join().unwrap().unwrap();
    }
}

#[tokio::test]
async fn lasting_lock_is_temporary_error() {
    let file = File::with_tables().await;
    let connection = file.connect();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let store = file.open();
    let error = store.create(&[task("work")]).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    connection.execute_batch("ROLLBACK").unwrap();
    store.create(&[task("work")]).await.unwrap();
}

#[tokio::test]
async fn in_memory_store_works() {
    let store = SqliteStore::open_in_memory().unwrap();
    store.migrate().await.unwrap();
    let ids = store.create(&[task("work")]).await.unwrap();
    assert!(store.task(ids[0]).await.unwrap().is_some());
}
