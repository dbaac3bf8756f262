//! Instance names, refusal, and recovery after a crash.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use task_engine::core::attempt::{AttemptId, TaskError};
use task_engine::core::claim::ClaimId;
use task_engine::core::instance::InstanceId;
use task_engine::core::instance::NewInstance;
use task_engine::core::queue::Lanes;
use task_engine::samples::handle_samples;
use task_engine::{EngineError, Recovery, TaskEngine, TaskId, TaskOptions, TaskStatus};

use crate::store::{Fresh, TIMEOUT, on_every_store, start};

on_every_store! {
    name_of_live_engine_is_refused
    refused_name_lists_left_tasks
    auto_recovery_takes_name
    live_engines_recover_dead_ones
    lost_engine_registers_again
    manual_reregistration_recovers_own_tasks_only
    blocking_task_does_not_delay_reregistration
    auto_recovery_refuses_live_name
    default_names_do_not_collide
    restart_recovers_gone_process_at_once
    start_survives_a_crash_by_default
}

const QUICK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(400));

/// An engine that claims a task and sends no more heartbeats.
async fn crash(fresh: &Fresh, name: &str, lease: Duration) -> (InstanceId, TaskId) {
    crash_of(fresh, name, lease, None).await
}

async fn crash_of(
    fresh: &Fresh,
    name: &str,
    lease: Duration,
    process: Option<String>,
) -> (InstanceId, TaskId) {
    let id = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    let dead = fresh
        .store
        .register(&NewInstance {
            name: name.into(),
            host: "elsewhere".into(),
            pid: 4711,
            process,
            version: "0".into(),
            workers: 1,
            lease,
            queues: vec!["default".into()],
            pools: vec![],
            classes: BTreeMap::from([(
                "WaitingTask".to_owned(),
                TaskOptions::default()
                    .retry(task_engine::RetryRule::every(Duration::from_millis(1), 3)),
            )]),
        })
        .await
        .unwrap();
    let lanes = Lanes::new(vec!["default".into()], vec!["WaitingTask".into()]);
    let mut claimer = fresh.store.claimer(dead, lanes);
    let claim = claimer.claim(ClaimId(dead.0 << 40 | 1), 1).await.unwrap();
    assert_eq!(claim.tasks[0].id, AttemptId { task_id: id, attempt: 1 });
    (dead, id)
}

/// The mark of a process of this machine that has ended.
fn gone_process() -> String {
    let mark = task_engine::core::process::mark().expect("this system has /proc");
    let (same, started) = mark.rsplit_once('/').unwrap();
    format!("{same}/1{started}")
}

async fn name_of_live_engine_is_refused(fresh: Fresh) {
    let id = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    let first = start(handle_samples(fresh.engine()));
    fresh.until_status(id, TaskStatus::Stopped).await;
    let error = handle_samples(fresh.engine()).run_until(std::future::pending()).await.unwrap_err();
    let EngineError::NameTaken(holder) = &error else { panic!("{error}") };
    assert_eq!(holder.pid.unsigned_abs(), std::process::id());
    assert!(error.to_string().contains("is alive: process"), "{error}");
    first.stop().await;
}

async fn refused_name_lists_left_tasks(fresh: Fresh) {
    let (_, id) = crash(&fresh, "test", Duration::ZERO).await;
    let engine = fresh.engine().recovery(Recovery::Manual);
    let error = handle_samples(engine).run_until(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, EngineError::LeftTasks { .. }), "{error}");
    let text = error.to_string();
    assert_eq!(format!("{error:?}"), text, "what a main prints that returns it");
    for part in [
        format!("task {id}, attempt 1 (WaitingTask)"),
        "recover test".into(),
        "Engine::recovery(Recovery::Auto)".into(),
    ] {
        assert!(text.contains(&part), "{part:?} is not in: {text}");
    }
    assert_eq!(fresh.details(id).await.row.status, TaskStatus::Running);
}

async fn auto_recovery_takes_name(fresh: Fresh) {
    // Another host, a lease that still runs: the engine waits for its end.
    let lease = Duration::from_millis(700);
    let (_, id) = crash(&fresh, "test", lease).await;
    let begun = Instant::now();
    let engine = start(handle_samples(fresh.engine()));
    let task = fresh.until_status(id, TaskStatus::Stopped).await;
    assert!(begun.elapsed() > lease / 2, "not before the lease was over");
    engine.stop().await;
    let lost = &task.executions[0];
    let error = lost.error.as_ref().unwrap();
    assert_eq!(error.exception, TaskError::INSTANCE_LOST);
    assert!(error.message.contains("test (process 4711 on elsewhere)"), "{error}");
    assert_eq!((task.executions.len(), task.row.retry_number), (2, 1));
    fresh.assert_sound().await;
}

async fn live_engines_recover_dead_ones(fresh: Fresh) {
    let (_, id) = crash(&fresh, "other", Duration::from_millis(100)).await;
    let engine = fresh.engine().heartbeat(QUICK.0, QUICK.1);
    let engine = start(handle_samples(engine));
    let task = fresh.until_status(id, TaskStatus::Stopped).await;
    engine.stop().await;
    assert_eq!(task.executions[0].error.as_ref().unwrap().exception, TaskError::INSTANCE_LOST);
    fresh.assert_sound().await;
}

async fn lost_engine_registers_again(fresh: Fresh) {
    let id = fresh.create("WaitingTask", json!({"waiting_time": 60})).await;
    let engine = fresh.engine().heartbeat(QUICK.0, QUICK.1);
    let engine = start(handle_samples(engine));
    fresh.until_status(id, TaskStatus::Running).await;
    let instance = fresh.store.instances(Some("test")).await.unwrap().remove(0).id;
    assert!(fresh.store.declare_lost(instance, true).await.unwrap());
    let begun = Instant::now();
    loop {
        let instances = fresh.store.instances(Some("test")).await.unwrap();
        if instances[0].id != instance && instances[0].is_alive() {
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "{instances:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The new session works, and the attempts of the old one are recorded as ended.
    let next = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    fresh.until_status(next, TaskStatus::Stopped).await;
    let task = fresh.until(id, |task| !task.executions.is_empty()).await;
    assert_ne!(task.executions[0].ends_task, Some(TaskStatus::Stopped));
    engine.stop.stop_now();
    engine.ended().await.unwrap();
    fresh.assert_sound().await;
}

async fn manual_reregistration_recovers_own_tasks_only(fresh: Fresh) {
    let lease = Duration::from_secs(3600);
    let (_, left) = crash_of(&fresh, "other", lease, Some(gone_process())).await;
    let own = fresh.create("WaitingTask", json!({"waiting_time": 60})).await;
    let engine = fresh.engine().recovery(Recovery::Manual).heartbeat(QUICK.0, QUICK.1);
    let engine = start(handle_samples(engine));
    fresh.until_status(own, TaskStatus::Running).await;
    let instance = fresh.store.instances(Some("test")).await.unwrap().remove(0).id;
    assert!(fresh.store.declare_lost(instance, true).await.unwrap());
    let next = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    fresh.until_status(next, TaskStatus::Stopped).await;
    let left = fresh.details(left).await;
    assert_eq!((left.row.status, left.row.attempts), (TaskStatus::Running, 1), "{left:?}");
    let task = fresh.until(own, |task| task.executions[0].error.is_some()).await;
    let error = task.executions[0].error.as_ref().unwrap();
    assert!(
        error.message.contains("declared lost") || error.message.contains("is dead"),
        "{error}"
    );
    engine.stop.stop_now();
    engine.ended().await.unwrap();
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Blocks;

impl task_engine::Task for Blocks {
    const CLASS: &'static str = "blocks";
}

async fn blocking_task_does_not_delay_reregistration(fresh: Fresh) {
    let id = fresh.create("blocks", json!({})).await;
    let engine = handle_samples(fresh.engine().heartbeat(QUICK.0, QUICK.1));
    let engine = start(engine.handle_blocking(|_: Blocks, _: task_engine::Context<()>| {
        std::thread::sleep(Duration::from_secs(120));
        Ok::<_, task_engine::Failure>(())
    }));
    fresh.until_status(id, TaskStatus::Running).await;
    let instance = fresh.store.instances(Some("test")).await.unwrap().remove(0).id;
    assert!(fresh.store.declare_lost(instance, true).await.unwrap());
    let next = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    fresh.until_status(next, TaskStatus::Stopped).await;
    engine.stop.stop_now();
    engine.ended().await.unwrap();
}

async fn auto_recovery_refuses_live_name(fresh: Fresh) {
    let id = fresh.create("WaitingTask", json!({"waiting_time": 0})).await;
    let first = start(handle_samples(fresh.engine().heartbeat(QUICK.0, QUICK.1)));
    fresh.until_status(id, TaskStatus::Stopped).await;
    let second = handle_samples(fresh.engine());
    let error = second.run_until(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, EngineError::NameTaken(_)), "{error}");
    first.stop().await;
}

/// Names of live engines, in order.
async fn live_names(fresh: &Fresh) -> Vec<String> {
    let mut instances = fresh.store.instances(None).await.unwrap();
    instances.retain(|instance| instance.is_alive());
    let mut names: Vec<_> = instances.into_iter().map(|instance| instance.name).collect();
    names.sort();
    names
}

async fn until_names(fresh: &Fresh, wanted: &[String]) {
    let begun = Instant::now();
    while live_names(fresh).await != wanted {
        assert!(begun.elapsed() < TIMEOUT, "{:?}", live_names(fresh).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn default_names_do_not_collide(fresh: Fresh) {
    let unnamed = || start(handle_samples(TaskEngine::new(fresh.store.clone()).engine(())));
    let host = task_engine::core::process::host_name();
    let names = [host.clone(), format!("{host}-2"), format!("{host}-3")];
    // At the same time: both look before one of them has registered.
    let first = unnamed();
    let second = unnamed();
    until_names(&fresh, &names[..2]).await;
    let third = unnamed();
    until_names(&fresh, &names).await;
    for engine in [first, second, third] {
        engine.stop().await;
    }
    let again = unnamed();
    until_names(&fresh, &names[..1]).await;
    again.stop().await;
}

async fn restart_recovers_gone_process_at_once(fresh: Fresh) {
    // A process of this machine that is gone, under another name, with a lease
    // that still runs for long.
    let lease = Duration::from_secs(3600);
    let (_, id) = crash_of(&fresh, "other", lease, Some(gone_process())).await;
    let instance = fresh.store.instances(Some("other")).await.unwrap().remove(0);
    assert!(!instance.is_alive() && instance.process_gone, "known at once: {instance:?}");
    let engine = start(handle_samples(TaskEngine::new(fresh.store.clone()).engine(())));
    let task = fresh.until_status(id, TaskStatus::Stopped).await;
    engine.stop().await;
    assert_eq!(task.executions[0].error.as_ref().unwrap().exception, TaskError::INSTANCE_LOST);
    fresh.assert_sound().await;
}

async fn start_survives_a_crash_by_default(fresh: Fresh) {
    let (_, id) = crash(&fresh, "test", Duration::ZERO).await;
    let engine = start(handle_samples(fresh.engine()));
    fresh.until_status(id, TaskStatus::Stopped).await;
    engine.stop().await;
    fresh.assert_sound().await;
}
