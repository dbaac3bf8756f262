//! A damaged row affects only itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use task_engine_conformance::fixture::new_instance;
use task_engine_core::claim::ClaimIds;
use task_engine_core::json::Json;
use task_engine_core::queue::Lanes;
use task_engine_core::recovery::Reclaim;
use task_engine_core::schedule::Schedule;
use task_engine_core::schedule::decision::firing;
use task_engine_core::schedule::row::{ScheduleState, ScheduleWrite};
use task_engine_core::task::{NewTask, TaskId, TaskListQuery};
use task_engine_sqlite::SqliteStore;
use task_engine_store::check::CheckDepth;
use task_engine_store::export::{ExportFilter, ExportLine};
use task_engine_store::scan::{Scan, ScanSource};
use task_engine_store::schedules::Schedules;

#[tokio::test]
async fn unreadable_schedule_hides_no_other() {
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
async fn unreadable_schedule_name_hides_no_other() {
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
    let checks = store.checks(CheckDepth::Standard).await.unwrap();
    let found = checks.iter().any(|check| check.message.contains("m\u{fffd}"));
    assert!(found, "{checks:#?}");
}

const DEEP: usize = 200;

fn store_in(folder: &tempfile::TempDir) -> (SqliteStore, rusqlite::Connection) {
    let path = folder.path().join("tasks.db");
    (SqliteStore::open(&path).unwrap(), rusqlite::Connection::open(&path).unwrap())
}

/// JSON beyond the limits, which every path refuses.
#[tokio::test]
async fn sql_refuses_json_beyond_limits() {
    let folder = tempfile::tempdir().unwrap();
    let (store, by_hand) = store_in(&folder);
    store.migrate().await.unwrap();
    let task = NewTask::new("work", Json::empty_object()).unwrap();
    store.create(&[task]).await.unwrap();
    let long = format!(r#"{{"t":"{}"}}"#, "x".repeat(1024 * 1024));
    let deep = format!(r#"{{"d":{}{}}}"#, "[".repeat(DEEP), "]".repeat(DEEP));
    let nul = r#"{"t":"\u0000"}"#.to_owned();
    let infinite = r#"{"n":[1,1e999999]}"#.to_owned();
    for json in [&long, &deep, &nul, &infinite] {
        for column in ["task_parameters", "context"] {
            let insert =
                format!("INSERT INTO task_engine_tasks (task_class, {column}) VALUES ('work', ?1)");
            assert!(by_hand.execute(&insert, [json]).is_err(), "{column}: {json:.40}");
        }
    }
    for harm in [
        "UPDATE task_engine_created_tasks SET task_parameters = ?1",
        "UPDATE task_engine_created_tasks SET context = ?1",
        "INSERT INTO task_engine_ended_executions
           (task_id, attempt, retry_number, stopped_at, ends_task, result)
         VALUES (1, 1, 0, 1, 'stopped', ?1)",
        "INSERT INTO task_engine_ended_executions
           (task_id, attempt, retry_number, stopped_at, ends_task, error)
         VALUES (1, 1, 0, 1, 'failed', ?1)",
    ] {
        assert!(by_hand.execute(harm, [&long]).is_err(), "{harm}");
    }
    let last = "INSERT INTO task_engine_created_tasks VALUES
        (9223372036854775807, 'work', '{}', '{}', 'default', 0, 1, 1)";
    assert!(by_hand.execute(last, []).is_err(), "no page could begin above this id");
    let fine = format!(r#"{{"d":{}1e300{},"t":"\ud83d\ude00"}}"#, "[".repeat(63), "]".repeat(63));
    let insert = "INSERT INTO task_engine_tasks (task_class, task_parameters) VALUES ('work', ?1)";
    by_hand.execute(insert, [&fine]).unwrap();
}

/// Rows that were inserted without checks: a claim separates them from the others, and
/// every reader returns.
#[tokio::test]
async fn claims_and_readers_skip_unreadable_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (store, by_hand) = store_in(&folder);
    store.migrate().await.unwrap();
    let task = || NewTask::new("work", Json::empty_object()).unwrap();
    let ids = store.create(&vec![task(); 10]).await.unwrap();
    by_hand.execute_batch("PRAGMA ignore_check_constraints = ON").unwrap();
    let deep = format!(r#"{{"d":{}{}}}"#, "[".repeat(DEEP), "]".repeat(DEEP));
    let set = "UPDATE task_engine_created_tasks SET task_parameters = ?2 WHERE id = ?1";
    for (place, text) in [(0, "no JSON"), (2, &*deep), (3, r#"{"n":1e131071}"#), (4, "[1]")] {
        by_hand.execute(set, rusqlite::params![ids[place].0, text]).unwrap();
    }
    by_hand
        .execute_batch(&format!(
            "UPDATE task_engine_created_tasks SET task_parameters = CAST(x'7b22ff' AS TEXT) WHERE id = {};
             UPDATE task_engine_waiting_tasks SET attempt = 1099511627776 WHERE task_id = {};
             UPDATE task_engine_waiting_tasks SET priority = 1099511627776 WHERE task_id = {};
             UPDATE task_engine_waiting_tasks SET due_at = -9223372036854775808 WHERE task_id = {};
             UPDATE task_engine_created_tasks SET queue = CAST(x'ff' AS TEXT), priority = 1099511627776,
               scheduled_at = 9223372036854775807, created_at = -9223372036854775808 WHERE id = {};
             DELETE FROM task_engine_waiting_tasks WHERE task_id = {};
             INSERT INTO task_engine_ended_executions
               (task_id, attempt, retry_number, instance_id, stopped_at, ends_task, error)
             VALUES ({}, 1, 0, 77, 9223372036854775807, 'failed', 'no JSON')",
            ids[5].0, ids[6].0, ids[7].0, ids[8].0, ids[0].0, ids[9].0, ids[9].0
        ))
        .unwrap();

    let engine = store.register(&new_instance("a")).await.unwrap();
    let lanes = Lanes::new(vec!["default".to_owned()], vec!["work".to_owned()]);
    let mut claimer = store.claimer(engine, lanes);
    let claim = claimer.claim(ClaimIds::new(engine).take(), 20).await.unwrap();
    let mut bad: Vec<_> = claim.tasks.iter().filter(|task| task.unreadable.is_some()).collect();
    bad.sort_unstable_by_key(|task| task.id);
    let bad_ids: Vec<_> = bad.iter().map(|task| task.id.task_id).collect();
    assert_eq!(bad_ids, [ids[0], ids[2], ids[3], ids[4], ids[5], ids[6]], "{bad:?}");
    assert_eq!(claim.tasks.len(), 9);

    for id in &ids {
        assert!(store.task(*id).await.unwrap().is_some(), "{id}");
    }
    let page = TaskListQuery { limit: 20, ..TaskListQuery::default() };
    assert_eq!(store.tasks(&page).await.unwrap().len(), 10);
    let scan = Scan {
        source: ScanSource::All,
        from: TaskId(0),
        before: TaskId(i64::MAX),
        rows: 20,
        tasks: 20,
        classes: None,
        queues: None,
        created: Vec::new(),
        ended: Vec::new(),
        with_error: false,
        with_json: true,
    };
    assert_eq!(store.scan(&scan).await.unwrap().tasks.len(), 10);
    assert!(store.heartbeat(engine).await.unwrap().alive);
    assert_eq!(store.queues().await.unwrap().len(), 2, "one has a name that cannot be read");
    assert_eq!(store.instances(None).await.unwrap().len(), 1);
    store.checks(CheckDepth::Standard).await.unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let lines = lines.clone();
        Box::new(move |line| {
            lines.lock().unwrap().push(line);
            true
        })
    };
    store.export(&ExportFilter::default(), sink).await.unwrap();
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    let skipped = lines.iter().filter(|line| matches!(line, ExportLine::SkippedTask(_))).count();
    assert_eq!(skipped, 5, "{lines:#?}");
    let violations = store.verify().await.unwrap();
    let violations: String = violations.iter().map(|it| format!("{it}\n")).collect();
    assert!(violations.contains("the parameters of task 1 cannot be read"), "{violations}");
    assert!(violations.contains("the error of attempt 1 of task 10"), "{violations}");

    // An engine that dies with such rows in its hands is recovered.
    assert!(store.declare_lost(engine, true).await.unwrap());
    assert_eq!(store.reclaim(Reclaim::Lost(engine)).await.unwrap().len(), 9);
}
