//! Limits in a harness.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::limit::{Limit, LimitOptions};
use task_engine::testing::Harness;
use task_engine::{Context, Failure, Task};

use crate::tasks::panic_of;

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(limit = 1, key = "customer", rate(max = 2, per = "1h"), retries = 2, backoff = "10m")]
struct Sync {
    customer: String,
    answer: String,
}

#[derive(Debug, Serialize, Deserialize, Task)]
#[task(in_order, key = "account", retries = 2, backoff = "10m")]
struct Post {
    account: u32,
    fails: bool,
}

fn answers(customer: &str, answer: &str) -> Sync {
    Sync { customer: customer.into(), answer: answer.into() }
}

async fn sync(task: Sync, cx: Context<()>) -> Result<(), Failure> {
    match task.answer.as_str() {
        "429" if cx.attempt() == 1 => Err(Failure::rate_limited(HOUR)),
        _ => Ok(()),
    }
}

async fn post(task: Post, cx: Context<()>) -> Result<u32, Failure> {
    if task.fails && cx.attempt() == 1 {
        return Err("not yet".into());
    }
    Ok(task.account)
}

async fn harness() -> Harness<()> {
    Harness::new(|tasks| {
        let api = Limit::named("api", LimitOptions::max(1)).unwrap();
        tasks.engine(()).handle(sync).handle(post).limit(api)
    })
    .await
}

#[tokio::test]
async fn rate_waits_for_clock() {
    let harness = harness().await;
    for customer in ["a", "b", "c", "d", "e"] {
        harness.tasks().create(answers(customer, "200")).limit("api", customer).await.unwrap();
    }
    let drained = harness.drain().await;
    assert_eq!(drained.len(), 2, "{drained}");
    assert!(drained.to_string().contains("limit \"sync.rate\" (rate 2 per 1 h)"), "{drained}");
    harness.advance(HOUR + Duration::from_secs(1)).await;
    assert_eq!(harness.drain().await.len(), 2);
    harness.drain_until_quiet().await.assert_all_done();
}

#[tokio::test]
async fn rate_limited_task_closes_its_key() {
    let harness = harness().await;
    harness.tasks().create(answers("a", "429")).await.unwrap();
    let drained = harness.drain().await;
    assert!(drained[0].is_snoozed(), "{drained}");
    harness.tasks().create(answers("a", "200")).await.unwrap();
    assert!(harness.drain().await.is_empty(), "its key is closed");
    let drained = harness.drain_until_quiet().await;
    drained.assert_all_done();
    assert_eq!(drained.len(), 2);
}

#[tokio::test]
async fn failing_head_blocks_its_key() {
    let harness = harness().await;
    for (account, fails) in [(1, true), (1, false), (2, false)] {
        harness.tasks().create(Post { account, fails }).await.unwrap();
    }
    let drained = harness.drain().await;
    assert_eq!(drained.len(), 2, "the head, and the other account: {drained}");
    assert!(drained[0].will_be_retried(), "{drained}");
    harness.drain_until_quiet().await.assert_all_done();
}

#[tokio::test]
async fn performed_task_has_limits() {
    let harness = harness().await;
    for _ in 0..5 {
        harness.perform(answers("a", "200")).await.result::<()>().unwrap();
    }
    harness.tasks().create(Post { account: 1, fails: true }).await.unwrap();
    harness.drain().await;
    let panic = panic_of(harness.perform(Post { account: 1, fails: false })).await;
    assert!(panic.contains("limit \"post.order\" for key \"1\""), "{panic}");
}
