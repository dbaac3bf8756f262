//! Lists agree with the tasks themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use task_engine_core::task::{NewTask, TaskId, TaskListQuery, TaskStatus};

use crate::TestDatabase;
use crate::fixture::{Fixture, TestAttempt, new_instance, new_task, with_classes};

const CLASSES: [&str; 2] = ["red", "blue"];

/// Tasks are found by their status, by their class, and by both.
pub async fn tasks_are_filtered_by_status(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let expected = one_of_everything(&fixture).await;
    let statuses = TaskStatus::ALL.map(Some);
    for status in statuses.into_iter().chain([None]) {
        for class in [None, Some("red"), Some("blue"), Some("green")] {
            let filter = TaskListQuery {
                status,
                class: class.map(str::to_owned),
                limit: 100,
                ..TaskListQuery::default()
            };
            let rows = fixture.page(&filter).await;
            let mut wanted: Vec<_> = expected
                .iter()
                .filter(|(_, found)| status.is_none_or(|status| status == found.0))
                .filter(|(_, found)| class.is_none_or(|class| class == found.1))
                .map(|(id, found)| (*id, found.0, found.1))
                .collect();
            wanted.reverse();
            let found: Vec<_> =
                rows.iter().map(|row| (row.id, row.status, row.class.as_str())).collect();
            assert_eq!(found, wanted, "{filter:?}");
        }
    }
}

/// A row in a list is the same as the row of the task itself.
pub async fn task_rows_agree_everywhere(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let expected = one_of_everything(&fixture).await;
    for status in TaskStatus::ALL {
        for row in fixture.list(Some(status)).await {
            let details = fixture.details(row.id).await;
            assert_eq!(details.row, row, "{status}");
            assert!(row.updated_at >= row.created_at, "{status}");
            assert_eq!(details.executions.len() as i32, row.attempts, "{status}");
        }
    }
    let all = fixture.list(None).await;
    assert_eq!(all.len(), expected.len());
    for row in all {
        assert_eq!(fixture.details(row.id).await.row, row);
    }
}

/// Pages are newest first, without a gap, and within their limit, also while tasks are
/// created.
pub async fn task_pages_are_consecutive(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.register(coloured()).await;
    let tasks: Vec<NewTask> = (0..25).map(|n| new_task(CLASSES[n % 2])).collect();
    let ids = fixture.create_all(&tasks).await;
    let holds = engine.claim_all(100).await;
    let endings: Vec<_> = holds.iter().map(TestAttempt::fails).collect();
    assert_eq!(engine.record(&endings).await, []);

    let newest_first: Vec<_> = ids.iter().rev().copied().collect();
    let reds: Vec<_> = ids.iter().step_by(2).rev().copied().collect();
    for (status, class, wanted) in [
        (None, None, &newest_first),
        (Some(TaskStatus::Failed), None, &newest_first),
        (None, Some("red"), &reds),
        (Some(TaskStatus::Failed), Some("red"), &reds),
    ] {
        let mut found: Vec<TaskId> = Vec::new();
        let mut before = None;
        loop {
            let page = fixture
                .page(&TaskListQuery { status, class: class.map(str::to_owned), before, limit: 4 })
                .await;
            found.extend(page.iter().map(|row| row.id));
            if before.is_none() {
                // A task that was created after the first page was read is not on the
                // next page.
                fixture.create(new_task("red")).await;
            }
            before = page.last().map(|row| row.id);
            assert!(page.len() <= 4);
            if page.len() < 4 {
                break;
            }
        }
        // The tasks of earlier rounds are newer than all others.
        found.retain(|id| ids.contains(id));
        assert_eq!(&found, wanted, "{status:?} {class:?}");
    }
}

/// A task that never was is not found.
pub async fn missing_task_is_not_found(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    for id in [1, i64::MAX, 0, -1] {
        let found = fixture.store.task(TaskId(id)).await.expect("task");
        assert_eq!(found, None, "task {id}");
    }
}

/// A store reports its location.
pub async fn store_reports_its_location(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    assert_ne!(fixture.store.location(), "");
    let applied = fixture.store.migrate().await.expect("migrate");
    assert_eq!(applied, [""; 0], "it was migrated when it was opened");
}

/// One task of each class in each status, and one that waits for a retry.
async fn one_of_everything(fixture: &Fixture) -> BTreeMap<TaskId, (TaskStatus, &'static str)> {
    let mut engine = fixture.register(coloured()).await;
    let mut expected = BTreeMap::new();
    for class in CLASSES {
        fixture.create_all(&vec![new_task(class); 5]).await;
        let holds = engine.claim(5).await;
        let endings = [
            holds[0].succeeds(),
            holds[1].fails(),
            holds[2].is_cancelled(),
            holds[3].fails_and_retries(Duration::from_secs(3600)),
        ];
        assert_eq!(engine.record(&endings).await, []);
        let waiting = fixture.create(new_task(class).after(Duration::from_secs(60))).await;
        expected.insert(waiting, (TaskStatus::Waiting, class));
        for (hold, status) in holds.iter().zip([
            TaskStatus::Stopped,
            TaskStatus::Failed,
            TaskStatus::Cancelled,
            TaskStatus::Waiting,
            TaskStatus::Running,
        ]) {
            expected.insert(hold.task_id(), (status, class));
        }
    }
    expected
}

fn coloured() -> task_engine_core::instance::NewInstance {
    let rules = CLASSES.map(|class| (class, task_engine_core::retry::RetryRule::default()));
    with_classes(new_instance("a"), &rules)
}
