//! Wake-ups: an idle engine starts tasks when they come, not when it polls.

use std::time::{Duration, Instant};

use serde_json::json;
use task_engine::TaskStatus;
use task_engine::samples::handle_samples;

use crate::statements::StatementCounter;
use crate::store::{Fresh, on_every_store, start, task};

on_every_store! {
    new_task_starts_before_poll
    scheduled_task_starts_on_time
    later_task_does_not_delay_earlier
    many_scheduled_tasks_start_on_time
}

/// The poll is every 10 s; a task that starts sooner was woken for. The bound
/// is wide because the machine may be busy.
const SOON: Duration = Duration::from_secs(3);

async fn idle_engine(fresh: &Fresh) -> crate::store::RunningEngine {
    let engine = start(handle_samples(fresh.engine()));
    let first = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    fresh.until_status(first, TaskStatus::Stopped).await;
    engine
}

async fn new_task_starts_before_poll(fresh: Fresh) {
    let engine = idle_engine(&fresh).await;
    for _ in 0..5 {
        let begun = Instant::now();
        let id = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
        fresh.until_status(id, TaskStatus::Stopped).await;
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
    engine.stop().await;
}

async fn scheduled(fresh: &Fresh, wait: Duration) -> task_engine::TaskId {
    let task = task("WaitingTask", json!({"waiting_time": 0}));
    fresh.create_task(task.after(wait)).await
}

async fn starts_on_time(fresh: &Fresh, id: task_engine::TaskId) {
    let task = fresh.until_status(id, TaskStatus::Stopped).await;
    let late = task.executions[0].started_at.unwrap().duration_since(task.row.scheduled_at);
    assert!(!late.is_negative(), "{late} before its time");
    assert!(late.unsigned_abs() < SOON, "{late} late");
}

async fn scheduled_task_starts_on_time(fresh: Fresh) {
    let engine = idle_engine(&fresh).await;
    let id = scheduled(&fresh, Duration::from_millis(300)).await;
    starts_on_time(&fresh, id).await;
    engine.stop().await;
}

async fn later_task_does_not_delay_earlier(fresh: Fresh) {
    let engine = idle_engine(&fresh).await;
    scheduled(&fresh, Duration::from_secs(3600)).await;
    let later = scheduled(&fresh, Duration::from_millis(400)).await;
    let earlier = scheduled(&fresh, Duration::from_millis(200)).await;
    starts_on_time(&fresh, earlier).await;
    starts_on_time(&fresh, later).await;
    engine.stop().await;
}

async fn many_scheduled_tasks_start_on_time(fresh: Fresh) {
    let engine = idle_engine(&fresh).await;
    let mut ids = Vec::new();
    for n in 0..50 {
        ids.push(scheduled(&fresh, Duration::from_millis(200 + n % 7 * 10)).await);
    }
    for id in ids {
        starts_on_time(&fresh, id).await;
    }
    engine.stop().await;
}

/// Heartbeats, polls and probes together: at most one statement a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_engine_sends_few_statements() {
    let url = task_engine_test_harness::TestServer::shared().create_database().await;
    let counter = StatementCounter::start().await;
    let store = task_engine::postgres::PgStore::connect(&counter.url(&url)).await.unwrap();
    let engine = task_engine::TaskEngine::new(store).engine(()).instance("idle");
    let engine = start(handle_samples(engine));
    let statements = counter.idle_in_six_seconds().await;
    engine.stop().await;
    assert!(!statements.is_empty(), "it sends heartbeats");
    assert!(statements.len() <= 6, "{} in 6 s: {statements:#?}", statements.len());
}
