//! Flows: the tasks that share a correlation id are found, in order, in pages.

use std::time::Duration;

use task_engine_core::flow::{FlowPage, FlowTask, Origin};
use task_engine_core::json::Json;
use task_engine_core::task::ExecutionStatus;
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_store::error::StoreError;

use crate::Database;
use crate::bench::{Bench, WORK, new_task};

/// A flow has all tasks with its correlation id, oldest first, and no others.
pub async fn a_flow_is_found_by_its_correlation_id(db: &dyn Database) {
    let bench = Bench::open(db).await;
    bench.create_work(20).await;
    let hostile = "%_'; DROP \"x\" \\ é\u{202e} 日本";
    let mut wanted = Vec::new();
    for name in ["order-17", hostile, "ORDER-17", "order-1", "order-17"] {
        let id = bench.create(new_task(WORK).correlation(name).unwrap()).await;
        if name == "order-17" {
            wanted.push(id);
        }
        let details = bench.details(id).await;
        assert_eq!((details.correlation_id.as_str(), details.parent_id), (name, None));
    }
    assert_eq!(ids(&flow(&bench, "order-17").await), wanted);
    assert_eq!(flow(&bench, hostile).await.len(), 1);
    for nobody in ["order", "order-170", "%", "", "\u{0}", "999999999999"] {
        let page = page(nobody, None, 10);
        match bench.store.flow(&page).await {
            Ok(found) => assert_eq!(found, [], "{nobody:?}"),
            // No text of PostgreSQL can hold it, so nobody has it.
            Err(StoreError::InvalidData(_)) if nobody == "\u{0}" => {}
            Err(other) => panic!("{nobody:?}: {other:?}"),
        }
    }
}

/// A task without a correlation id begins a flow that is called like itself.
pub async fn a_task_begins_a_flow_of_its_own(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let own = bench.create(new_task(WORK)).await;
    let named = bench.create(new_task(WORK).correlation("a").unwrap()).await;
    assert_eq!(bench.details(own).await.correlation_id, own.to_string());
    let child = bench.create(child_of(&bench, own).await).await;
    let grandchild = bench.create(child_of(&bench, child).await).await;
    let other = bench.create(child_of(&bench, named).await).await;

    let found = flow(&bench, &own.to_string()).await;
    assert_eq!(ids(&found), [own, child, grandchild]);
    let parents: Vec<_> = found.iter().map(|task| task.parent_id).collect();
    assert_eq!(parents, [None, Some(own), Some(child)]);
    let details = bench.details(grandchild).await;
    assert_eq!((details.correlation_id, details.parent_id), (own.to_string(), Some(child)));

    assert_eq!(ids(&flow(&bench, "a").await), [named, other]);
    // It has a name of its own, so nothing is called like it.
    assert_eq!(flow(&bench, &named.to_string()).await, []);
    // A child alone is no flow.
    assert_eq!(flow(&bench, &child.to_string()).await, []);
}

/// What a flow says about its tasks is what the tasks say about themselves.
pub async fn a_flow_tells_what_happened(db: &dyn Database) {
    let bench = Bench::open(db).await;
    let mut engine = bench.engine("a").await;
    let tasks: Vec<_> = (0..5).map(|_| new_task(WORK).correlation("a").unwrap()).collect();
    let all = bench.create_all(&tasks).await;
    let holds = engine.claim(5).await;
    let endings = [
        holds[0].succeeds(),
        holds[1].fails(),
        holds[2].is_cancelled(),
        holds[3].fails_and_waits(Duration::ZERO),
    ];
    assert_eq!(engine.record(&endings).await, []);
    let again = engine.claim_one().await;
    assert_eq!(engine.record(&[again.succeeds()]).await, []);

    let found = flow(&bench, "a").await;
    assert_eq!(ids(&found), all);
    for task in &found {
        let details = bench.details(task.row.id).await;
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

/// A large flow comes in pages, without a gap, whatever is created meanwhile.
pub async fn a_large_flow_comes_in_pages(db: &dyn Database) {
    const COUNT: usize = 1000;
    let bench = Bench::open(db).await;
    let first = bench.create(new_task(WORK)).await;
    let children = vec![child_of(&bench, first).await; COUNT];
    let mut wanted = vec![first];
    wanted.extend(bench.create_all(&children).await);
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = page(&first.to_string(), after, 300);
        let tasks = bench.store.flow(&page).await.expect("flow");
        assert!(tasks.len() <= 300);
        if found.is_empty() {
            bench.create_work(10).await;
        }
        after = tasks.last().map(|task| task.row.id);
        found.extend(ids(&tasks));
        if tasks.len() < 300 {
            break;
        }
    }
    assert_eq!(found, wanted);
}

/// A correlation id that is none is refused, also from those who write SQL; one
/// that is not there, or null, is fine.
pub async fn a_bad_correlation_id_is_refused(db: &dyn Database) {
    let bench = Bench::open(db).await;
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
        let refused = bench.store.create(&[new_task(WORK), with(bad)]).await;
        assert!(matches!(refused, Err(StoreError::InvalidData(_))), "{bad:.80}: {refused:?}");
    }
    assert_eq!(bench.list(None).await, []);
    let fits = format!(r#"{{"correlation_id":"{}"}}"#, "é".repeat(100));
    for good in [r#"{"correlation_id":null}"#, r#"{"other":1}"#, &fits] {
        bench.create(with(good)).await;
    }
    assert_eq!(flow(&bench, &"é".repeat(100)).await.len(), 1);
}

/// Nonsense about a parent hurts nobody.
pub async fn a_bad_parent_is_none(db: &dyn Database) {
    let bench = Bench::open(db).await;
    for bad in [r#""x""#, "-1", "0", "1.5", "1e300", "[1]", "null", "12345678901234567890123"] {
        let context = Json::parse(format!(r#"{{"correlation_id":"a","parent_id":{bad}}}"#));
        let mut task = new_task(WORK);
        task.context = context.unwrap();
        let id = bench.create(task).await;
        assert_eq!(bench.details(id).await.parent_id, None, "{bad}");
    }
    let found = flow(&bench, "a").await;
    assert!(found.iter().all(|task| task.parent_id.is_none()), "{found:?}");
    assert_eq!(found.len(), 8);
}

async fn child_of(bench: &Bench, parent: TaskId) -> NewTask {
    let context = bench.details(parent).await.context;
    Origin::of(parent, &context).for_children_of(parent).stamp(new_task(WORK))
}

async fn flow(bench: &Bench, correlation_id: &str) -> Vec<FlowTask> {
    bench.store.flow(&page(correlation_id, None, 10_000)).await.expect("flow")
}

fn page(correlation_id: &str, after: Option<TaskId>, limit: u32) -> FlowPage {
    FlowPage { correlation_id: correlation_id.to_owned(), after, limit }
}

fn ids(tasks: &[FlowTask]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.row.id).collect()
}
