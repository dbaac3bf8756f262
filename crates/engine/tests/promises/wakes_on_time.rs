//! Wake-ups: an idle engine starts tasks when they come, not when it polls.

use std::time::{Duration, Instant};

use serde_json::json;
use task_engine::TaskStatus;
use task_engine::samples::handle_samples;

use crate::store::{Fresh, on_every_store, queries_in_six_seconds, start, task};

on_every_store! {
    a_new_task_starts_long_before_the_poll
    a_scheduled_task_starts_on_time
    an_earlier_task_is_not_held_up_by_a_later_one
    a_crowd_of_scheduled_tasks_starts_on_time
}

/// The poll is every 10 s; a task that starts sooner was woken for. The bound
/// is wide because the machine may be busy.
const SOON: Duration = Duration::from_secs(3);

async fn idle_engine(fresh: &Fresh) -> crate::store::Working {
    let engine = start(handle_samples(fresh.engine()));
    let first = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    fresh.until_status(first, TaskStatus::Stopped).await;
    engine
}

async fn a_new_task_starts_long_before_the_poll(fresh: Fresh) {
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

async fn a_scheduled_task_starts_on_time(fresh: Fresh) {
    let engine = idle_engine(&fresh).await;
    let id = scheduled(&fresh, Duration::from_millis(300)).await;
    starts_on_time(&fresh, id).await;
    engine.stop().await;
}

async fn an_earlier_task_is_not_held_up_by_a_later_one(fresh: Fresh) {
    let engine = idle_engine(&fresh).await;
    scheduled(&fresh, Duration::from_secs(3600)).await;
    let later = scheduled(&fresh, Duration::from_millis(400)).await;
    let earlier = scheduled(&fresh, Duration::from_millis(200)).await;
    starts_on_time(&fresh, earlier).await;
    starts_on_time(&fresh, later).await;
    engine.stop().await;
}

async fn a_crowd_of_scheduled_tasks_starts_on_time(fresh: Fresh) {
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

/// Heartbeats, polls and probes together: at most one query a second. Counted
/// by the server, in several windows, because its own housekeeping is counted,
/// too, now and then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_engine_sends_at_most_one_query_a_second() {
    let server = task_engine_test_harness::TestServer::shared();
    let url = server.create_database().await;
    let store = task_engine::postgres::PgStore::connect(&url).await.unwrap();
    let engine = task_engine::Engine::new(std::sync::Arc::new(store), ()).instance("idle");
    let engine = start(handle_samples(engine));
    let least = queries_in_six_seconds(&url).await;
    engine.stop().await;
    assert!(least > 0, "it is alive");
    assert!(least <= 6, "{least} queries in 6 s");
}
