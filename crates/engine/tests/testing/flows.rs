//! Flows under the harness: they run to their end, a failed task is retried, and what waits for
//! others is not passed over.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::testing::Harness;
use task_engine::{
    Batch, Context, Failure, Flow, FlowState, FlowTasks, RetryRule, Task, TaskError, TaskId,
    TaskOptions, TaskStatus,
};

#[derive(Debug, Serialize, Deserialize)]
struct Extract {
    day: String,
}

impl Task for Extract {
    const CLASS: &'static str = "extract";

    fn options() -> TaskOptions {
        TaskOptions::default().retry(RetryRule::every(Duration::from_secs(3600), 1))
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Task)]
struct Load;

#[derive(Debug, Serialize, Deserialize, Task)]
struct Alert;

/// The source works from this attempt on.
struct Warehouse {
    works_from: i32,
}

async fn extract(task: Extract, cx: Context<Warehouse>) -> Result<Vec<String>, Failure> {
    if cx.attempt() < cx.state().works_from {
        return Err(Failure::named("Closed", "the source is closed"));
    }
    Ok(vec![format!("{} a", task.day), format!("{} b", task.day)])
}

async fn load(_: Load, cx: Context<Warehouse>) -> Result<usize, Failure> {
    let rows: Vec<String> = cx.result_of("extract").await?;
    Ok(rows.len())
}

async fn alert(_: Alert, cx: Context<Warehouse>) -> Result<(), Failure> {
    for dependency in cx.dependencies().await? {
        if let Some(error) = dependency.error {
            cx.log(format!("{}: {error}", dependency.name.unwrap_or_default()));
        }
    }
    Ok(())
}

async fn harness(works_from: i32) -> Harness<Warehouse> {
    Harness::new(|tasks| {
        tasks.engine(Warehouse { works_from }).handle(extract).handle(load).handle(alert)
    })
    .await
}

fn nightly() -> Flow {
    Flow::new()
        .name("nightly")
        .task("extract", Extract { day: "monday".into() })
        .task("load", Load)
        .after("extract")
        .task("alert", Alert)
        .after_failure("extract")
}

async fn status(harness: &Harness<Warehouse>, id: TaskId) -> TaskStatus {
    harness.tasks().get(id).await.unwrap().unwrap().row.status
}

async fn state(harness: &Harness<Warehouse>, flow: &FlowTasks) -> FlowState {
    let row = harness.tasks().flow_status(&flow.correlation_id).await.unwrap();
    row.unwrap().counts.state()
}

#[tokio::test]
async fn one_drain_runs_flow_to_its_end() {
    let harness = harness(1).await;
    let flow = harness.tasks().create_flow(nightly()).await.unwrap();
    let drained = harness.drain().await;
    drained.assert_all_done();
    assert_eq!(drained.len(), 2);
    assert_eq!(drained[1].result::<usize>(), Ok(2));
    assert_eq!(status(&harness, flow["alert"]).await, TaskStatus::Cancelled);
    harness.assert_created(&Load).await;
}

#[tokio::test]
async fn retried_parent_delays_its_dependents() {
    let harness = harness(2).await;
    let flow = harness.tasks().create_flow(nightly()).await.unwrap();
    let drained = harness.drain().await;
    assert_eq!(drained.len(), 1);
    assert_eq!(drained.passed_over, [], "a blocked task is not due");
    assert!(drained[0].will_be_retried());
    assert_eq!(state(&harness, &flow).await, FlowState::Open);
    harness.drain_until_quiet().await.assert_all_done();
    assert_eq!(status(&harness, flow["load"]).await, TaskStatus::Stopped);
}

#[tokio::test]
async fn operator_retries_failed_parent() {
    let harness = harness(3).await;
    let flow = harness.tasks().create_flow(nightly()).await.unwrap();
    let drained = harness.drain_until_quiet().await;
    let alerted = drained.of::<Alert>();
    assert_eq!(alerted[0].log(), ["extract: Closed: the source is closed"]);
    assert_eq!(state(&harness, &flow).await, FlowState::Failed);
    let cancelled = harness.tasks().get(flow["load"]).await.unwrap().unwrap();
    assert_eq!(cancelled.row.status, TaskStatus::Cancelled);
    let error = cancelled.executions[0].error.as_ref().unwrap();
    assert_eq!(error.exception, TaskError::DEPENDENCY_FAILED);

    harness.store().retry(&[flow["extract"]]).await.unwrap();
    assert_eq!(state(&harness, &flow).await, FlowState::Open);
    let drained = harness.drain_until_quiet().await;
    drained.assert_all_done();
    assert_eq!(drained.of::<Load>().len(), 1);
    assert_eq!(state(&harness, &flow).await, FlowState::Succeeded);
}

#[tokio::test]
async fn late_dependency_and_batch_run() {
    let harness = harness(1).await;
    let members = (0..20).map(|n| Extract { day: n.to_string() });
    let tasks = harness.tasks();
    let batch = tasks.create_flow(Batch::new().members(members).on_end(Alert)).await.unwrap();
    harness.drain().await.assert_all_done();
    assert_eq!(state(&harness, &batch).await, FlowState::Succeeded);
    let extract = batch["member 7"];
    let id = tasks.create(Alert).after_task(extract).await.unwrap();
    harness.drain().await.assert_all_done();
    assert_eq!(status(&harness, id).await, TaskStatus::Stopped);
}
