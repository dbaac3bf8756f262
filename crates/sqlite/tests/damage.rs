//! What somebody writes into the file by hand harms that row, and nothing else.

use std::time::Duration;

use task_engine_model::schedule::Schedule;
use task_engine_model::schedule::operate::Schedules;
use task_engine_model::{Json, NewTask, Store};
use task_engine_sqlite::SqliteStore;

#[tokio::test]
async fn a_schedule_that_cannot_be_read_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    store.migrate().await.unwrap();
    for name in ["bad", "good"] {
        let task = NewTask::new("tidy", Json::empty_object()).unwrap();
        let schedule = Schedule::every(name, Duration::from_secs(60)).new_task(task);
        Schedules::of(&store).add(&schedule).await.unwrap();
    }
    let by_hand = rusqlite::Connection::open(&path).unwrap();
    by_hand
        .execute_batch(
            "UPDATE task_engine_schedules SET next_at = 1;
             UPDATE task_engine_schedules SET definition = CAST(x'ff7b' AS TEXT),
               declared = CAST(x'ff' AS TEXT) WHERE name = 'bad'",
        )
        .unwrap();
    let due = store.due_schedules(10).await.unwrap();
    let read = due.rows.iter().map(|due| (due.row.name.as_str(), due.row.definition().is_ok()));
    let mut read: Vec<_> = read.collect();
    read.sort_unstable();
    assert_eq!(read, [("bad", false), ("good", true)]);
    assert_eq!(store.schedules(None, 10).await.unwrap().len(), 2);
}
