//! Flows: the tasks that share a correlation id are found, in order, in pages.

use std::time::Duration;

use task_engine_core::flow::{FlowPage, FlowTask, Origin};
use task_engine_core::json::Json;
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_store::error::StoreError;

use crate::TestDatabase;
use crate::fixture::{Fixture, WORK, new_task};

/// A flow has all tasks with its correlation id, oldest first, and no other task.
pub async fn flow_is_found_by_correlation_id(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    fixture.create_work(20).await;
    let hostile = "%_'; DROP \"x\" \\ é\u{202e} 日本";
    let mut wanted = Vec::new();
    for name in ["order-17", hostile, "ORDER-17", "order-1", "order-17"] {
        let id = fixture.create(new_task(WORK).correlation(name).unwrap()).await;
        if name == "order-17" {
            wanted.push(id);
        }
        let details = fixture.details(id).await;
        assert_eq!((details.correlation_id.as_str(), details.parent_id), (name, None));
    }
    assert_eq!(ids(&flow(&fixture, "order-17").await), wanted);
    assert_eq!(flow(&fixture, hostile).await.len(), 1);
    for unknown in ["order", "order-170", "%", "", "\u{0}", "999999999999"] {
        let page = page(unknown, None, 10);
        match fixture.store.flow(&page).await {
            Ok(found) => assert_eq!(found, [], "{unknown:?}"),
            // PostgreSQL cannot store this text, so no task has it.
            Err(StoreError::InvalidData(_)) if unknown == "\u{0}" => {}
            Err(other) => panic!("{unknown:?}: {other:?}"),
        }
    }
}

/// A task without a correlation id starts a flow that is named by its id.
pub async fn task_starts_its_own_flow(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let own = fixture.create(new_task(WORK)).await;
    let named = fixture.create(new_task(WORK).correlation("a").unwrap()).await;
    assert_eq!(fixture.details(own).await.correlation_id, own.to_string());
    let child = fixture.create(child_of(&fixture, own).await).await;
    let grandchild = fixture.create(child_of(&fixture, child).await).await;
    let other = fixture.create(child_of(&fixture, named).await).await;

    let found = flow(&fixture, &own.to_string()).await;
    assert_eq!(ids(&found), [own, child, grandchild]);
    let parents: Vec<_> = found.iter().map(|task| task.parent_id).collect();
    assert_eq!(parents, [None, Some(own), Some(child)]);
    let details = fixture.details(grandchild).await;
    assert_eq!((details.correlation_id, details.parent_id), (own.to_string(), Some(child)));

    assert_eq!(ids(&flow(&fixture, "a").await), [named, other]);
    // This task has a correlation id, so no flow is named by its id.
    assert_eq!(flow(&fixture, &named.to_string()).await, []);
    // A child alone is no flow.
    assert_eq!(flow(&fixture, &child.to_string()).await, []);
}

/// The rows of a flow agree with those of its tasks.
pub async fn flow_lists_its_executions(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let mut engine = fixture.engine("a").await;
    let tasks: Vec<_> = (0..5).map(|_| new_task(WORK).correlation("a").unwrap()).collect();
    let all = fixture.create_all(&tasks).await;
    let holds = engine.claim(5).await;
    let endings = [
        holds[0].succeeds(),
        holds[1].fails(),
        holds[2].is_cancelled(),
        holds[3].fails_and_retries(Duration::ZERO),
    ];
    assert_eq!(engine.record(&endings).await, []);
    let again = engine.claim_one().await;
    assert_eq!(engine.record(&[again.succeeds()]).await, []);

    let found = flow(&fixture, "a").await;
    assert_eq!(ids(&found), all);
    for task in &found {
        let details = fixture.details(task.row.id).await;
        assert_eq!(task.row, details.row);
        assert_eq!(task.due_at, details.row.created_at, "due at once");
        assert_eq!(task.executions.len(), details.executions.len());
        for (shown, execution) in task.executions.iter().zip(&details.executions) {
            assert_eq!(shown.attempt, execution.attempt);
            assert_eq!(shown.status, execution.status);
            assert_eq!(shown.instance, execution.instance);
            assert_eq!(shown.started_at, execution.started_at);
            assert_eq!(shown.stopped_at, execution.stopped_at);
            assert_eq!(shown.retry_at, execution.retry_at);
            let error =
                |e: &task_engine_core::attempt::TaskError| (e.exception.clone(), e.message.clone());
            assert_eq!(shown.error.as_ref().map(error), execution.error.as_ref().map(error));
        }
        let waits = task.waits();
        assert_eq!(waits.len(), task.executions.len());
        let running = task.row.status == TaskStatus::Running;
        assert!(running || waits.iter().all(Option::is_some), "{task:?}");
    }
    let retried = &found[3].executions;
    assert_eq!(retried.len(), 2);
    assert_eq!(retried[0].status, ExecutionStatus::Failure);
    assert_eq!(found[4].row.status, TaskStatus::Running);
    assert_eq!(found[4].executions[0].status, ExecutionStatus::Running);
}

/// A large flow is read in pages without a gap, also while tasks are created.
pub async fn large_flow_is_paged(db: &dyn TestDatabase) {
    const COUNT: usize = 1000;
    let fixture = Fixture::open(db).await;
    let first = fixture.create(new_task(WORK)).await;
    let children = vec![child_of(&fixture, first).await; COUNT];
    let mut wanted = vec![first];
    wanted.extend(fixture.create_all(&children).await);
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = page(&first.to_string(), after, 300);
        let tasks = fixture.store.flow(&page).await.expect("flow");
        assert!(tasks.len() <= 300);
        if found.is_empty() {
            fixture.create_work(10).await;
        }
        after = tasks.last().map(|task| task.row.id);
        found.extend(ids(&tasks));
        if tasks.len() < 300 {
            break;
        }
    }
    assert_eq!(found, wanted);
}

/// An invalid correlation id is refused, also by plain SQL. A missing or null one is
/// accepted.
pub async fn invalid_correlation_id_is_rejected(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    let with = |context: &str| {
        let mut task = new_task(WORK);
        task.context = Json::parse(context).unwrap();
        task
    };
    let long = format!(r#"{{"correlation_id":"{}"}}"#, "é".repeat(101));
    let huge = format!(r#"{{"correlation_id":"{}"}}"#, "x".repeat(100_000));
    for bad in [
        r#"{"correlation_id":17}"#,
        r#"{"correlation_id":""}"#,
        r#"{"correlation_id":["a"]}"#,
        r#"{"correlation_id":{"a":1}}"#,
        r#"{"correlation_id":true}"#,
        &long,
        &huge,
    ] {
        let refused = fixture.store.create(&[new_task(WORK), with(bad)]).await;
        assert!(matches!(refused, Err(StoreError::InvalidData(_))), "{bad:.80}: {refused:?}");
    }
    assert_eq!(fixture.list(None).await, []);
    let fits = format!(r#"{{"correlation_id":"{}"}}"#, "é".repeat(100));
    for good in [r#"{"correlation_id":null}"#, r#"{"other":1}"#, &fits] {
        fixture.create(with(good)).await;
    }
    assert_eq!(flow(&fixture, &"é".repeat(100)).await.len(), 1);
}

/// An invalid parent id is ignored.
pub async fn unknown_parent_is_ignored(db: &dyn TestDatabase) {
    let fixture = Fixture::open(db).await;
    for bad in [r#""x""#, "-1", "0", "1.5", "1e300", "[1]", "null", "12345678901234567890123"] {
        let context = Json::parse(format!(r#"{{"correlation_id":"a","parent_id":{bad}}}"#));
        let mut task = new_task(WORK);
        task.context = context.unwrap();
        let id = fixture.create(task).await;
        assert_eq!(fixture.details(id).await.parent_id, None, "{bad}");
    }
    let found = flow(&fixture, "a").await;
    assert!(found.iter().all(|task| task.parent_id.is_none()), "{found:?}");
    assert_eq!(found.len(), 8);
}

async fn child_of(fixture: &Fixture, parent: TaskId) -> NewTask {
    let context = fixture.details(parent).await.context;
    Origin::of(parent, &context).for_children_of(parent).stamp(new_task(WORK))
}

async fn flow(fixture: &Fixture, correlation_id: &str) -> Vec<FlowTask> {
    fixture.store.flow(&page(correlation_id, None, 10_000)).await.expect("flow")
}

fn page(correlation_id: &str, after: Option<TaskId>, limit: u32) -> FlowPage {
    FlowPage { correlation_id: correlation_id.to_owned(), after, limit }
}

fn ids(tasks: &[FlowTask]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.row.id).collect()
}
