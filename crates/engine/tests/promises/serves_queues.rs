//! Queues with dedicated workers, reserved workers, and pauses.

use std::time::{Duration, Instant};

use serde_json::json;
use task_engine::core::queue::{QueuePause, QueueRow};
use task_engine::samples::handle_samples;
use task_engine::{Context, Failure, NewTask, TaskId, TaskOptions, TaskStatus};

use crate::statements::StatementCounter;
use crate::store::{Fresh, RunningEngine, TIMEOUT, on_every_store, start, task};

on_every_store! {
    dedicated_queue_does_not_wait
    reserved_workers_run_urgent_tasks
    pool_wakes_for_its_tasks
    class_workers_bound_their_classes
    busy_pool_does_not_starve_another
    engine_registers_its_pools
    dedicated_workers_keep_other_queues_served
    queues_of_classes_are_served
    paused_queue_starts_and_loses_nothing
    resume_is_never_missed
    pause_survives_engines
}

/// The poll is every 10 s; what starts sooner was woken for. The bound is wide
/// because the machine may be busy.
const SOON: Duration = Duration::from_secs(3);

fn waits(queue: &str, secs: f64) -> NewTask {
    task("WaitingTask", json!({"waiting_time": secs})).queue(queue).unwrap()
}

/// Tasks that run until the engine is forced to stop.
async fn endless(fresh: &Fresh, queue: &str, count: usize) -> Vec<TaskId> {
    fresh.store.create(&vec![waits(queue, 3600.0); count]).await.unwrap()
}

async fn stop_now(engine: RunningEngine) {
    engine.stop.stop();
    engine.stop.stop_now();
    engine.ended().await.unwrap();
}

async fn queue(fresh: &Fresh, name: &str) -> QueueRow {
    let queues = fresh.store.queues().await.unwrap();
    queues.into_iter().find(|queue| queue.name == name).expect("the queue is known")
}

async fn pause(fresh: &Fresh, name: &str) {
    assert!(fresh.store.pause_queue(&QueuePause::new(name, None).unwrap()).await.unwrap());
}

/// Waits until something is so in a queue.
async fn until(fresh: &Fresh, name: &str, wanted: impl Fn(&QueueRow) -> bool) -> QueueRow {
    let begun = Instant::now();
    loop {
        let row = queue(fresh, name).await;
        if wanted(&row) {
            return row;
        }
        assert!(begun.elapsed() < TIMEOUT, "queue {name} is still {row:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn dedicated_queue_does_not_wait(fresh: Fresh) {
    let slow = endless(&fresh, "slow", 6).await;
    let engine = start(handle_samples(fresh.engine().workers(0).queue("slow", 2).queue("fast", 1)));
    until(&fresh, "slow", |queue| queue.running == 2).await;
    for _ in 0..5 {
        let id = fresh.create_task(waits("fast", 0.0)).await;
        let done = fresh.until_status(id, TaskStatus::Stopped).await;
        assert_eq!(done.executions[0].worker, Some(2), "workers are numbered over all pools");
    }
    let row = queue(&fresh, "slow").await;
    assert_eq!((row.running, row.due.counted), (2, 4), "no worker of another queue took one");
    stop_now(engine).await;
    for id in slow {
        let task = fresh.details(id).await;
        assert_eq!(task.row.status, TaskStatus::Waiting);
    }
    fresh.assert_sound().await;
}

async fn dedicated_workers_keep_other_queues_served(fresh: Fresh) {
    let engine = start(handle_samples(fresh.engine().queue("mail", 2)));
    let ids = [fresh.create_task(waits("default", 0.0)), fresh.create_task(waits("mail", 0.0))];
    for id in ids {
        fresh.until_status(id.await, TaskStatus::Stopped).await;
    }
    engine.stop().await;
}

async fn queues_of_classes_are_served(fresh: Fresh) {
    let id = fresh.create_task(task("charge", json!({})).queue("payments").unwrap()).await;
    let options = TaskOptions::default().queue("payments");
    let engine = fresh.engine().handle_class(
        "charge",
        options,
        |_: serde_json::Value, _: Context<()>| async { Ok::<_, Failure>(()) },
    );
    let engine = start(handle_samples(engine));
    fresh.until_status(id, TaskStatus::Stopped).await;
    let id = fresh.create_task(waits("default", 0.0)).await;
    fresh.until_status(id, TaskStatus::Stopped).await;
    engine.stop().await;
}

async fn reserved_workers_run_urgent_tasks(fresh: Fresh) {
    endless(&fresh, "default", 5).await;
    let engine = start(handle_samples(fresh.engine().workers(2).reserve(10, 1)));
    until(&fresh, "default", |queue| queue.running == 2).await;
    for priority in [10, i32::MAX, 11] {
        let begun = Instant::now();
        let id = fresh.create_task(waits("default", 0.0).priority(priority)).await;
        let done = fresh.until_status(id, TaskStatus::Stopped).await;
        assert_eq!(done.executions[0].worker, Some(2));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
    let below = fresh.create_task(waits("default", 0.0).priority(9)).await;
    let urgent = fresh.create_task(waits("default", 0.0).priority(10)).await;
    fresh.until_status(urgent, TaskStatus::Stopped).await;
    assert_eq!(fresh.details(below).await.row.status, TaskStatus::Waiting);
    assert_eq!(queue(&fresh, "default").await.running, 2);
    stop_now(engine).await;
    fresh.assert_sound().await;
}

/// No more tasks of a class are claimed than it has dedicated workers, and they
/// keep no other worker busy; nor do others keep them waiting.
async fn class_workers_bound_their_classes(fresh: Fresh) {
    endless(&fresh, "default", 6).await;
    let engine = fresh.engine().queues(["default", "other"]).workers(2);
    let engine = start(handle_samples(engine.class_workers(["WaitingTask"], 3)));
    until(&fresh, "default", |queue| queue.running == 3).await;
    for queue in ["default", "other", "default"] {
        let begun = Instant::now();
        let quick = task("ReportingTask", json!({"steps": 1})).queue(queue).unwrap();
        let id = fresh.create_task(quick).await;
        let done = fresh.until_status(id, TaskStatus::Stopped).await;
        assert!(done.executions[0].worker.is_some_and(|worker| worker < 2), "{done:?}");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
    let row = queue(&fresh, "default").await;
    assert_eq!((row.running, row.due.counted), (3, 3), "the others wait in the store");
    stop_now(engine).await;
    fresh.assert_sound().await;
}

/// Each pool becomes idle and is woken separately, also after another was busy.
async fn pool_wakes_for_its_tasks(fresh: Fresh) {
    let engine = fresh.engine().workers(0).queue("a", 2).queue("b", 2).reserve(5, 1);
    let engine = start(handle_samples(engine));
    for round in 0..4 {
        let busy = if round % 2 == 0 { "a" } else { "b" };
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            let id = fresh.create_task(waits(busy, 0.0)).await;
            fresh.until_status(id, TaskStatus::Stopped).await;
        }
        for quiet in ["a", "b"] {
            let begun = Instant::now();
            let id = fresh.create_task(waits(quiet, 0.0)).await;
            fresh.until_status(id, TaskStatus::Stopped).await;
            assert!(begun.elapsed() < SOON, "{quiet} after {:?}", begun.elapsed());
        }
    }
    engine.stop().await;
}

/// What one pool has running does not count against another.
async fn busy_pool_does_not_starve_another(fresh: Fresh) {
    endless(&fresh, "many", 1100).await;
    let engine =
        start(handle_samples(fresh.engine().workers(0).queue("many", 1100).queue("few", 1)));
    until(&fresh, "many", |queue| queue.running == 1100).await;
    let id = fresh.create_task(waits("few", 0.0)).await;
    fresh.until_status(id, TaskStatus::Stopped).await;
    stop_now(engine).await;
    fresh.assert_sound().await;
}

async fn engine_registers_its_pools(fresh: Fresh) {
    let engine = fresh.engine().workers(3).queues(["x", "y"]).queue("mail", 2).reserve(-5, 1);
    let engine = start(handle_samples(engine));
    let id = fresh.create_task(waits("mail", 0.0)).await;
    fresh.until_status(id, TaskStatus::Stopped).await;
    let instances = fresh.store.instances(None).await.unwrap();
    let [instance] = &instances[..] else { panic!("one instance, not {instances:?}") };
    assert_eq!(
        (instance.workers, &instance.queues[..]),
        (6, &["x", "y", "mail"].map(String::from)[..])
    );
    let pools: Vec<_> = instance
        .pools
        .iter()
        .map(|pool| (pool.queues.join("+"), pool.workers, pool.lowest_priority))
        .collect();
    let expected = [("x+y", 3, None), ("mail", 2, None), ("x+y+mail", 1, Some(-5))];
    assert_eq!(pools, expected.map(|(queues, n, lowest)| (queues.to_owned(), n, lowest)));
    engine.stop().await;
}

async fn paused_queue_starts_and_loses_nothing(fresh: Fresh) {
    let mut ids = fresh.store.create(&vec![waits("default", 0.001); 3000]).await.unwrap();
    let engine = start(handle_samples(fresh.engine().workers(4).queues(["default", "other"])));
    until(&fresh, "default", |queue| queue.due.counted < 2900).await;
    pause(&fresh, "default").await;
    // What runs finishes.
    let left = until(&fresh, "default", |queue| queue.running == 0).await.due.counted;
    assert!(left > 0, "the pause came in time");
    // The same workers do other things, and look at the queue meanwhile.
    ids.extend(fresh.store.create(&vec![waits("default", 0.0); 5]).await.unwrap());
    for _ in 0..20 {
        let id = fresh.create_task(waits("other", 0.0)).await;
        fresh.until_status(id, TaskStatus::Stopped).await;
    }
    let row = queue(&fresh, "default").await;
    assert_eq!((row.due.counted, row.running), (left + 5, 0));

    let begun = Instant::now();
    assert!(fresh.store.resume_queue("default").await.unwrap());
    until(&fresh, "default", |queue| queue.due.counted < left + 5).await;
    assert!(begun.elapsed() < SOON, "started {:?} after the resume", begun.elapsed());
    until(&fresh, "default", |queue| queue.due.counted == 0 && queue.running == 0).await;
    engine.stop().await;
    for id in ids {
        let task = fresh.details(id).await;
        assert_eq!((task.row.status, task.row.attempts), (TaskStatus::Stopped, 1));
    }
    fresh.assert_sound().await;
}

/// At whatever moment between two looks it comes; a resume that was missed would
/// show by the poll.
async fn resume_is_never_missed(fresh: Fresh) {
    let engine = fresh.engine().workers(0).queue("a", 1).queue("b", 1).reserve(5, 1);
    let engine = start(handle_samples(engine));
    for round in 0..40_u64 {
        pause(&fresh, "a").await;
        let id = fresh.create_task(waits("a", 0.0)).await;
        // The other pool is woken, works, and falls asleep meanwhile.
        fresh.create_task(waits("b", 0.0)).await;
        tokio::time::sleep(Duration::from_micros(round * 531 % 9973)).await;
        let begun = Instant::now();
        assert!(fresh.store.resume_queue("a").await.unwrap());
        fresh.until_status(id, TaskStatus::Stopped).await;
        assert!(begun.elapsed() < SOON, "round {round}: {:?}", begun.elapsed());
    }
    engine.stop().await;
}

async fn pause_survives_engines(fresh: Fresh) {
    pause(&fresh, "mail").await;
    let mail = fresh.create_task(waits("mail", 0.0)).await;
    for _ in 0..2 {
        let engine = start(handle_samples(fresh.engine().queue("mail", 1).queue("default", 1)));
        let id = fresh.create_task(waits("default", 0.0)).await;
        fresh.until_status(id, TaskStatus::Stopped).await;
        engine.stop().await;
    }
    assert_eq!(fresh.details(mail).await.row.status, TaskStatus::Waiting);
    fresh.store.resume_queue("mail").await.unwrap();
    let engine = start(handle_samples(fresh.engine().workers(0).queue("mail", 1)));
    fresh.until_status(mail, TaskStatus::Stopped).await;
    engine.stop().await;
}

/// Due tasks of a paused queue cause no repeated claims, however many pools there
/// are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_queue_leaves_engine_idle() {
    let url = task_engine_test_harness::TestServer::shared().create_database().await;
    let counter = StatementCounter::start().await;
    let store = task_engine::postgres::PgStore::connect(&counter.url(&url)).await.unwrap();
    let engine = task_engine::TaskEngine::new(store.clone()).engine(()).instance("paused");
    store.migrate().await.unwrap();
    store.pause_queue(&QueuePause::new("mail", None).unwrap()).await.unwrap();
    store.create(&vec![waits("mail", 0.0); 100]).await.unwrap();
    let engine = start(handle_samples(engine.queue("mail", 5).queue("default", 5).reserve(5, 1)));
    let id = store.create(&[waits("default", 0.0)]).await.unwrap()[0];
    let begun = Instant::now();
    while store.task(id).await.unwrap().unwrap().row.status != TaskStatus::Stopped {
        assert!(begun.elapsed() < TIMEOUT, "the engine runs tasks");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let statements = counter.idle_in_six_seconds().await;
    engine.stop().await;
    assert!(!statements.is_empty(), "it sends heartbeats");
    assert!(statements.len() <= 10, "{} in 6 s: {statements:#?}", statements.len());
}
