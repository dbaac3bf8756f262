//! Durable tasks under the harness: the clock is moved, signals are sent, steps fail once.

use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::durable::WaitTimedOut;
use task_engine::testing::Harness;
use task_engine::{Context, Failure, Task, TaskStatus};

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug, Serialize, Deserialize, Task)]
struct Order {
    id: u64,
}

#[derive(Default)]
struct Shop {
    done: Mutex<Vec<String>>,
}

impl Shop {
    async fn act(&self, what: &str) -> Result<String, Failure> {
        self.done.lock().unwrap().push(what.to_owned());
        Ok(format!("{what} done"))
    }

    fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }
}

async fn order(_: Order, cx: Context<Shop>) -> Result<String, Failure> {
    cx.step("reserve", || cx.state().act("reserve")).await?;
    cx.step("charge", || cx.state().act("charge")).await?;
    cx.sleep("cooldown", 3 * DAY).await;
    match cx.wait_for::<String>("approved", 7 * DAY).await {
        Ok(by) => {
            let ship = format!("ship for {by}");
            cx.step("ship", || cx.state().act(&ship)).await
        }
        Err(WaitTimedOut { .. }) => cx.step("refund", || cx.state().act("refund")).await,
    }
}

async fn harness() -> Harness<Shop> {
    Harness::new(|tasks| tasks.engine(Shop::default()).handle(order)).await
}

#[tokio::test]
async fn clock_passes_three_day_sleep() {
    let harness = harness().await;
    let id = harness.tasks().create(Order { id: 1 }).await.unwrap();
    harness.drain().await;
    assert_eq!(harness.state().done(), ["reserve", "charge"]);
    harness.advance(3 * DAY - Duration::from_secs(60)).await;
    harness.drain().await;
    let steps = harness.steps(id).await;
    assert_eq!(steps.steps.len(), 3, "it does not wake early");
    harness.advance(Duration::from_secs(61)).await;
    harness.drain().await;
    harness.signal(id, "approved", &"ada").await;
    harness.drain().await;
    assert_eq!(harness.state().done(), ["reserve", "charge", "ship for ada"]);
    let task = harness.tasks().get(id).await.unwrap().unwrap();
    assert_eq!(task.row.status, TaskStatus::Stopped);
}

#[tokio::test]
async fn early_signal_is_kept() {
    let harness = harness().await;
    let id = harness.tasks().create(Order { id: 1 }).await.unwrap();
    harness.signal(id, "approved", &"bob").await;
    harness.drain_until_quiet().await;
    assert_eq!(harness.state().done(), ["reserve", "charge", "ship for bob"]);
}

#[tokio::test]
async fn missing_signal_times_out() {
    let harness = harness().await;
    harness.tasks().create(Order { id: 1 }).await.unwrap();
    harness.drain_until_quiet().await;
    assert_eq!(harness.state().done(), ["reserve", "charge", "refund"]);
}

#[tokio::test]
async fn failed_step_runs_again_alone() {
    let harness = harness().await;
    let id = harness.tasks().create(Order { id: 1 }).await.unwrap();
    harness.fail_step("charge", "the bank is closed");
    let drained = harness.drain().await;
    assert!(drained.executed[0].to_string().contains("InjectedFailure"), "{drained:?}");
    harness.signal(id, "approved", &"ada").await;
    harness.drain_until_quiet().await;
    assert_eq!(harness.state().done(), ["reserve", "charge", "ship for ada"]);
}

#[derive(Debug, Serialize, Deserialize, Task)]
struct Square {
    of: i64,
}

#[derive(Debug, Serialize, Deserialize, Task)]
struct Sum {
    of: Vec<i64>,
}

async fn square(task: Square) -> Result<i64, Failure> {
    if task.of < 0 {
        return Err(Failure::no_retry("negative"));
    }
    Ok(task.of * task.of)
}

async fn sum(task: Sum, cx: Context<()>) -> Result<i64, Failure> {
    let squares = cx.call_all::<_, i64>(task.of.iter().map(|of| Square { of: *of })).await;
    let (one, failed) =
        (cx.call::<_, i64>(Square { of: 1 }).await?, squares.iter().filter(|r| r.is_err()));
    let failed = failed.count() as i64 * 1000;
    Ok(squares.into_iter().flatten().sum::<i64>() + one + failed)
}

#[tokio::test]
async fn parent_gets_results_of_children() {
    let harness = Harness::new(|tasks| tasks.engine(()).handle(sum).handle(square)).await;
    let id = harness.tasks().create(Sum { of: vec![2, 3, -1] }).await.unwrap();
    let drained = harness.drain().await;
    let task = harness.tasks().get(id).await.unwrap().unwrap();
    assert_eq!(task.row.status, TaskStatus::Stopped, "{drained:?}");
    assert_eq!(task.executions.last().unwrap().result.as_ref().unwrap().as_str(), "1014");
    assert_eq!(harness.created::<Square>().await.len(), 4);
}

#[allow(clippy::needless_pass_by_value)] // As the engine calls it.
fn blocking(cx: Context<Shop>) -> Result<String, Failure> {
    cx.block_on(cx.step("reserve", || cx.state().act("reserve")))?;
    cx.block_on(cx.sleep("cooldown", DAY));
    cx.block_on(cx.step("ship", || cx.state().act("ship")))
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_handler_can_sleep() {
    let harness =
        Harness::new(|tasks| tasks.engine(Shop::default()).handle_blocking::<Order, _>(blocking))
            .await;
    let id = harness.tasks().create(Order { id: 1 }).await.unwrap();
    harness.drain_until_quiet().await;
    assert_eq!(harness.state().done(), ["reserve", "ship"]);
    let task = harness.tasks().get(id).await.unwrap().unwrap();
    assert_eq!(task.row.status, TaskStatus::Stopped);
}
