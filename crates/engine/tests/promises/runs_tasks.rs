//! Tasks are created, executed and recorded.

use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use serde_json::json;
use task_engine::core::task::ExecutionStatus;
use task_engine::{Context, EngineError, Failure, Task, TaskEngine, TaskOptions, TaskStatus};

use crate::store::{Fresh, nothing, on_every_store, start, task};

on_every_store! {
    typed_task_gets_state_stores_result
    worker_runs_one_task_at_once
    higher_priority_runs_first
    engine_claims_known_classes_only
    two_engines_share_tasks
    task_creates_tasks
    engine_without_workers_is_refused
    duplicate_handlers_are_refused
}

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Task for Greet {
    const CLASS: &'static str = "greet";
}

async fn greet(task: Greet, cx: Context<String>) -> Result<String, Failure> {
    Ok(format!("{}, {}!", cx.state(), task.name))
}

async fn typed_task_gets_state_stores_result(fresh: Fresh) {
    let client = TaskEngine::new(fresh.store.clone());
    let id = client.create(Greet { name: "Ada".into() }).await.unwrap();
    let engine =
        TaskEngine::new(fresh.store.clone()).engine("Hello".to_owned()).instance("a").handle(greet);
    let engine = start(engine);
    let task = fresh.until_status(id, TaskStatus::Stopped).await;
    assert_eq!(engine.stop().await, Default::default());
    let [execution] = &task.executions[..] else { panic!("{task:?}") };
    assert_eq!(execution.status, ExecutionStatus::Success);
    assert_eq!(execution.result.as_ref().unwrap().as_str(), r#""Hello, Ada!""#);
    assert_eq!(execution.instance.as_deref(), Some("a"));
    assert!(execution.worker.is_some_and(|worker| (0..5).contains(&worker)));
    assert!(execution.started_at <= execution.stopped_at);
    assert!(task.row.created_at <= execution.started_at.unwrap());
    fresh.assert_sound().await;
}

async fn worker_runs_one_task_at_once(fresh: Fresh) {
    let tasks: Vec<_> = (0..200).map(|_| task("busy", nothing())).collect();
    let ids = fresh.store.create(&tasks).await.unwrap();
    let busy: &'static Mutex<[u32; 3]> = Box::leak(Box::new(Mutex::new([0; 3])));
    let engine = fresh.engine().workers(3).handle_class(
        "busy",
        TaskOptions::default(),
        move |_: serde_json::Value, cx: Context<()>| async move {
            let worker = usize::try_from(cx.worker()).unwrap();
            busy.lock().unwrap()[worker] += 1;
            tokio::task::yield_now().await;
            let mut busy = busy.lock().unwrap();
            assert_eq!(busy[worker], 1, "worker {worker} has two tasks");
            busy[worker] -= 1;
            Ok::<_, Failure>(())
        },
    );
    let engine = start(engine);
    for id in ids {
        fresh.until_status(id, TaskStatus::Stopped).await;
    }
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn higher_priority_runs_first(fresh: Fresh) {
    let order: &'static Mutex<Vec<i64>> = Box::leak(Box::default());
    let mut ids = Vec::new();
    for priority in [0, 5, -3, 5] {
        ids.push(fresh.create_task(task("note", nothing()).priority(priority)).await);
    }
    let engine = fresh.engine().workers(1).handle_class(
        "note",
        TaskOptions::default(),
        move |_: serde_json::Value, cx: Context<()>| async move {
            order.lock().unwrap().push(cx.task_id().0);
            Ok::<_, Failure>(())
        },
    );
    let engine = start(engine);
    for id in &ids {
        fresh.until_status(*id, TaskStatus::Stopped).await;
    }
    engine.stop().await;
    let expected = [ids[1], ids[3], ids[0], ids[2]].map(|id| id.0);
    assert_eq!(*order.lock().unwrap(), expected);
}

async fn engine_claims_known_classes_only(fresh: Fresh) {
    let stranger = fresh.create("stranger", nothing()).await;
    let known = fresh.create("greet", json!({"name": "Ada"})).await;
    let engine = start(
        TaskEngine::new(fresh.store.clone()).engine(String::new()).instance("a").handle(greet),
    );
    fresh.until_status(known, TaskStatus::Stopped).await;
    engine.stop().await;
    let stranger = fresh.details(stranger).await;
    assert_eq!((stranger.row.status, stranger.row.attempts), (TaskStatus::Waiting, 0));
}

async fn two_engines_share_tasks(fresh: Fresh) {
    let tasks: Vec<_> = (0..300).map(|_| task("count", nothing())).collect();
    let ids = fresh.store.create(&tasks).await.unwrap();
    let ran: &'static Mutex<Vec<i64>> = Box::leak(Box::default());
    let engines = ["a", "b"].map(|name| {
        start(fresh.engine().instance(name).workers(10).handle_class(
            "count",
            TaskOptions::default(),
            move |_: serde_json::Value, cx: Context<()>| async move {
                ran.lock().unwrap().push(cx.task_id().0);
                Ok::<_, Failure>(())
            },
        ))
    });
    for id in &ids {
        fresh.until_status(*id, TaskStatus::Stopped).await;
    }
    for engine in engines {
        engine.stop().await;
    }
    let mut ran = ran.lock().unwrap().clone();
    ran.sort_unstable();
    assert_eq!(ran, ids.iter().map(|id| id.0).collect::<Vec<_>>(), "each task once");
    fresh.assert_sound().await;
}

async fn task_creates_tasks(fresh: Fresh) {
    let parent = fresh.create("parent", nothing()).await;
    let engine = TaskEngine::new(fresh.store.clone())
        .engine("Hello".to_owned())
        .instance("a")
        .handle(greet)
        .handle_class(
            "parent",
            TaskOptions::default(),
            |_: serde_json::Value, cx: Context<String>| async move {
                let child = cx.create(Greet { name: "child".into() }).await?;
                Ok::<_, Failure>(child)
            },
        );
    let engine = start(engine);
    let parent = fresh.until_status(parent, TaskStatus::Stopped).await;
    let child = parent.executions[0].result.as_ref().unwrap().decode().unwrap();
    fresh.until_status(child, TaskStatus::Stopped).await;
    engine.stop().await;
}

async fn engine_without_workers_is_refused(fresh: Fresh) {
    let error = fresh.engine().workers(0).run_until(std::future::pending()).await.unwrap_err();
    assert!(error.to_string().contains("at least one worker"), "{error}");
}

async fn duplicate_handlers_are_refused(fresh: Fresh) {
    let engine =
        TaskEngine::new(fresh.store.clone()).engine(String::new()).handle(greet).handle(greet);
    let Err(EngineError::TwoHandlers { class, first, second }) =
        engine.run_until(std::future::pending()).await
    else {
        panic!("it started");
    };
    assert_eq!(class, "greet");
    assert!(first.contains("runs_tasks.rs") && second.contains("runs_tasks.rs"));
}
