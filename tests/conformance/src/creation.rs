//! Creation: when the call has returned, all of its tasks are stored completely.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use task_engine_core::json::Json;
use task_engine_core::task::{NewTask, TaskStatus};
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::fixture::{Fixture, WORK, new_task};
use crate::waiting::{poll_then_drop, run_concurrently};

/// A new task waits with the requested values and has no history.
pub async fn created_task_waits_as_requested(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut task = NewTask::new("send_mail", Json::parse(r#"{"to":"a@b.c"}"#).unwrap())
        .unwrap()
        .priority(-7)
        .queue("mail")
        .unwrap();
    task.context = Json::parse(r#"{"correlation_id":"x-1"}"#).unwrap();
    let id = fixture.create(task.clone()).await;

    let details = fixture.details(id).await;
    let row = &details.row;
    assert_eq!(row.id, id);
    assert_eq!(row.status, TaskStatus::Waiting);
    assert_eq!(row.class, "send_mail");
    assert_eq!(row.queue, "mail");
    assert_eq!(row.priority, -7);
    assert_eq!((row.attempts, row.retry_number), (0, 0));
    assert_eq!((&row.instance, &row.error), (&None, &None));
    assert_same_json(&details.parameters, &task.parameters);
    assert_same_json(&details.context, &task.context);
    assert_eq!(details.executions, []);
    assert_eq!(details.late_results, []);
    assert!(!details.cancel_requested);
    let age = row.scheduled_at.duration_since(row.created_at).abs();
    assert!(age < SignedDuration::from_millis(100), "due {age} off");
}

/// The ids of many tasks are in the order of the tasks, and grow.
pub async fn created_tasks_keep_their_order(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let tasks: Vec<_> = (0..500).map(numbered).collect();
    let ids = fixture.create_all(&tasks).await;
    assert!(ids.is_sorted_by(|a, b| a < b), "ids grow");
    for n in [0, 1, 249, 499] {
        let details = fixture.details(ids[n]).await;
        assert_same_json(&details.parameters, &tasks[n].parameters);
    }
    assert_eq!(fixture.count_of(WORK).await, 500);
}

/// One call creates a hundred thousand tasks.
pub async fn one_call_creates_many_tasks(db: &dyn TestDatabase) {
    const COUNT: usize = 100_000;
    let fixture = Fixture::open(db).await;
    let tasks: Vec<_> = (0..COUNT).map(numbered).collect();
    let ids = fixture.create_all(&tasks).await;
    assert!(ids.is_sorted_by(|a, b| a < b), "ids grow");
    for n in [0, COUNT / 2, COUNT - 1] {
        let details = fixture.details(ids[n]).await;
        assert_same_json(&details.parameters, &tasks[n].parameters);
    }
    assert_eq!(fixture.count_of(WORK).await, COUNT);
}

/// No tasks are not an error.
pub async fn empty_call_creates_nothing(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    assert_eq!(fixture.create_all(&[]).await, []);
    assert_eq!(fixture.list(None).await, []);
}

/// Where one task of a call cannot be kept, none is; where it can, all are.
pub async fn create_is_all_or_nothing(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    // The last one is invalid. The others are valid, at the limits of a store.
    let endless_wait = new_task(WORK).after(Duration::MAX);
    let mut long_correlation = new_task(WORK);
    let context = format!(r#"{{"correlation_id":"{}"}}"#, "x".repeat(300));
    long_correlation.context = Json::parse_object(context).unwrap();
    let mut nameless = new_task(WORK);
    nameless.class.clear();
    let mut there = 0;
    for odd in [endless_wait, long_correlation, nameless] {
        let mut tasks = vec![new_task(WORK); 1000];
        tasks[700] = odd.clone();
        match fixture.store.create(&tasks).await {
            Ok(ids) => there += ids.len(),
            Err(StoreError::InvalidData(_)) => {}
            Err(other) => panic!("neither taken nor refused: {other:?}, {odd:?}"),
        }
        assert_eq!(there % 1000, 0, "{odd:?}");
        assert_eq!(fixture.list(None).await.len(), there, "{odd:?}");
    }
}

/// A caller that is dropped leaves all of its tasks, or none.
pub async fn dropped_create_leaves_whole_tasks(db: &dyn TestDatabase) {
    const COUNT: usize = 1000;
    let fixture = Fixture::open(db).await;
    let classes: Vec<_> = (0..12).map(|n| format!("class_{n}")).collect();
    let count_is_whole = async |class: &str| {
        let count = fixture.count_of(class).await;
        assert!([0, COUNT].contains(&count), "{count} tasks of {class}");
    };
    for (class, steps) in classes.iter().zip(1..) {
        let tasks = vec![new_task(class); COUNT];
        let done = poll_then_drop(fixture.store.create(&tasks), steps).await;
        count_is_whole(class).await;
        if let Some(ids) = done {
            assert_eq!(ids.expect("create").len(), COUNT);
            assert_eq!(fixture.count_of(class).await, COUNT, "{class}");
        }
    }
    // Dropped calls do not block later ones.
    fixture.create_work(COUNT).await;
    for class in &classes {
        count_is_whole(class).await;
    }
}

/// A task can be created with a delay or for a time.
pub async fn task_is_due_after_delay(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let wait = Duration::from_secs(3600);
    let after = fixture.create(new_task(WORK).after(wait)).await;
    let time: Timestamp = "2100-02-28T23:59:58.123Z".parse().unwrap();
    let at = fixture.create(new_task(WORK).at(time)).await;
    let past: Timestamp = "2001-09-09T01:46:40Z".parse().unwrap();
    let before = fixture.create(new_task(WORK).at(past)).await;

    let row = fixture.details(after).await.row;
    let off = row.scheduled_at.duration_since(row.created_at)
        - SignedDuration::try_from(wait).expect("an hour");
    assert!(off.abs() < SignedDuration::from_millis(100), "{off} off");
    assert_eq!(fixture.details(at).await.row.scheduled_at, time);
    assert_eq!(fixture.details(before).await.row.scheduled_at, past);
    assert_eq!(fixture.list(Some(TaskStatus::Waiting)).await.len(), 3);
}

/// A time out of the calendar's range is refused with the whole call: a reader at the
/// head of the queue would fail on it.
pub async fn out_of_range_time_is_rejected(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let year = Duration::from_secs(366 * 86_400);
    for far in [
        numbered(1).at(Timestamp::MAX),
        numbered(1).after(year * 9000),
        numbered(1).after(Duration::MAX),
    ] {
        let refused = fixture.store.create(&[numbered(0), far]).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    assert_eq!(fixture.list(None).await, []);
    fixture.store.create(&[numbered(2).after(year * 100)]).await.expect("a hundred years are fine");
}

/// Concurrent creators get separate ids, and other handles see their tasks.
pub async fn concurrent_creators_do_not_conflict(db: &dyn TestDatabase) {
    let mut creators = Vec::new();
    for _ in 0..4 {
        let fixture = Fixture::open(db).await;
        creators.push(async move {
            let mut ids = Vec::new();
            for count in [1, 50, 1, 200, 7] {
                ids.extend(fixture.create_work(count).await);
            }
            ids
        });
    }
    let mut ids: Vec<_> = run_concurrently(creators).await.concat();
    ids.sort();
    ids.dedup();
    let listed = Fixture::open(db).await.list(None).await;
    let mut listed: Vec<_> = listed.iter().map(|row| row.id).collect();
    listed.reverse();
    assert_eq!(ids.len(), 4 * 259);
    assert_eq!(listed, ids);
}

/// Compares values, not texts: a store may format the same JSON differently.
fn assert_same_json(found: &Json, expected: &Json) {
    let value = |json: &Json| json.decode::<serde_json::Value>().expect("valid JSON");
    assert_eq!(value(found), value(expected));
}

fn numbered(n: usize) -> NewTask {
    NewTask::new(WORK, Json::parse(format!(r#"{{"n":{n}}}"#)).unwrap()).unwrap()
}
