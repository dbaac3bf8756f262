//! What somebody writes into the file by hand harms that row, and nothing else.

use std::time::Duration;

use task_engine_model::check::Depth;
use task_engine_model::schedule::Schedule;
use task_engine_model::schedule::decision::firing;
use task_engine_model::schedule::operate::Schedules;
use task_engine_model::schedule::row::{ScheduleState, ScheduleWrite};
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

/// A name that is no text: its schedule fires, or is marked, like any other, and
/// pages go past it.
#[tokio::test]
async fn a_schedule_without_a_readable_name_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    store.migrate().await.unwrap();
    for name in ["a", "m", "z"] {
        let task = NewTask::new("tidy", Json::empty_object()).unwrap();
        let schedule = Schedule::every(name, Duration::from_secs(60)).new_task(task);
        Schedules::of(&store).add(&schedule).await.unwrap();
    }
    let by_hand = rusqlite::Connection::open(&path).unwrap();
    by_hand
        .execute_batch(
            "UPDATE task_engine_schedules SET next_at = 1;
             UPDATE task_engine_schedules SET name = CAST(x'6dff' AS TEXT) WHERE name = 'm'",
        )
        .unwrap();
    let (mut names, mut after) = (Vec::new(), None);
    while let Some(row) = store.schedules(after.as_deref(), 1).await.unwrap().pop() {
        names.push(row.name.clone());
        assert!(names.len() < 9, "{names:?}");
        after = Some(row.name);
    }
    assert_eq!(names[..2], ["a", "m\u{fffd}"], "pages end: {names:?}");

    let due = store.due_schedules(10).await.unwrap();
    assert_eq!(due.rows.len(), 3);
    let damaged = due.rows.iter().find(|due| due.row.name.starts_with('m')).unwrap();
    let firing = firing(damaged, due.now).unwrap();
    assert_eq!(store.fire_schedules(&[firing]).await.unwrap(), [true]);
    let all = store.schedules(None, 10).await.unwrap();
    assert_eq!(all.len(), 3);
    let row = all.into_iter().find(|row| row.name.starts_with('m')).unwrap();
    let error = Some("its name cannot be read".to_owned());
    let write = ScheduleWrite {
        name: row.name,
        expected: Some(row.version),
        state: ScheduleState { error, next_at: None, ..row.state },
    };
    assert!(store.write_schedule(&write).await.unwrap(), "it can be taken out of service");
    assert_eq!(store.due_schedules(10).await.unwrap().rows.len(), 2);
    let checks = store.checks(Depth::Usual).await.unwrap();
    let told = checks.iter().any(|check| check.reason.contains("m\u{fffd}"));
    assert!(told, "{checks:#?}");
}
