//! Tasks of one flow share a correlation id and know their parents.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use task_engine::core::claim::ClaimIds;
use task_engine::core::flow::{FlowPage, Origin};
use task_engine::core::instance::NewInstance;
use task_engine::core::recovery::Reclaim;
use task_engine::{Context, Failure, RetryRule, Task, TaskEngine, TaskId, TaskOptions, TaskStatus};

use crate::store::{Fresh, TIMEOUT, on_every_store, start, task};

on_every_store! {
    task_knows_correlation_id
    descendants_share_correlation_id
    retry_keeps_flow
    recovery_keeps_flow
    children_inherit_trace_context
    invalid_correlation_or_trace_is_refused
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Creates children, for the given number of generations.
#[derive(Clone, Serialize, Deserialize)]
struct Ancestor {
    generations: u32,
}

impl Task for Ancestor {
    const CLASS: &'static str = "ancestor";

    fn options() -> TaskOptions {
        TaskOptions::default().retry(RetryRule::every(Duration::from_millis(1), 5))
    }
}

/// By every door that there is: single, bulk, and for the application's own
/// transaction. Fails once, before it creates any.
async fn procreate(task: Ancestor, cx: Context<TaskEngine>) -> Result<String, Failure> {
    if cx.attempt() == 1 {
        return Err(Failure::from("the first attempt fails"));
    }
    if task.generations > 0 {
        let child = Ancestor { generations: task.generations - 1 };
        cx.create(child.clone()).await?;
        let new = task_engine::NewTask::of(&child)?;
        cx.tasks().create_many(std::slice::from_ref(&new)).await?;
        // As for a transaction: prepared here, created elsewhere.
        cx.state().create_many(&cx.tasks().prepare(vec![new])?).await?;
        let other = cx.create(Ancestor { generations: 0 });
        other.correlation("another flow").await?;
    }
    assert_eq!(cx.context().decode::<serde_json::Value>()?["correlation_id"], cx.correlation_id());
    Ok(cx.correlation_id().to_owned())
}

fn engine(fresh: &Fresh) -> task_engine::Engine<TaskEngine> {
    let client = TaskEngine::new(fresh.store.clone());
    task_engine::TaskEngine::new(fresh.store.clone())
        .engine(client)
        .instance("test")
        .handle(procreate)
}

/// The flow, when it has so many tasks, and all have done their work.
async fn whole_flow(fresh: &Fresh, correlation_id: &str, count: usize) -> Vec<Option<TaskId>> {
    let page = FlowPage { correlation_id: correlation_id.to_owned(), after: None, limit: 1000 };
    let begun = std::time::Instant::now();
    loop {
        let tasks = fresh.store.flow(&page).await.unwrap();
        if tasks.len() == count && tasks.iter().all(|t| t.row.status == TaskStatus::Stopped) {
            return tasks.iter().map(|task| task.parent_id).collect();
        }
        assert!(begun.elapsed() < TIMEOUT, "{tasks:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn task_knows_correlation_id(fresh: Fresh) {
    let client = TaskEngine::new(fresh.store.clone());
    let own = client.create(Ancestor { generations: 0 }).await.unwrap();
    let given = client.create(Ancestor { generations: 0 }).correlation("order-17").await.unwrap();
    let engine = start(engine(&fresh));
    for (id, correlation_id) in [(own, own.to_string()), (given, "order-17".to_owned())] {
        let task = fresh.until_status(id, TaskStatus::Stopped).await;
        let seen = task.executions.last().unwrap().result.as_ref().unwrap();
        assert_eq!(seen.decode::<String>().unwrap(), correlation_id);
        assert_eq!((task.correlation_id, task.parent_id), (correlation_id, None));
    }
    engine.stop().await;
    assert_eq!(fresh.details(own).await.context.as_str(), "{}", "nothing is stored");
}

async fn descendants_share_correlation_id(fresh: Fresh) {
    let client = TaskEngine::new(fresh.store.clone());
    let first = client.create(Ancestor { generations: 2 }).await.unwrap();
    let engine = start(engine(&fresh));
    let parents = whole_flow(&fresh, &first.to_string(), 1 + 3 + 9).await;
    let of = |parent: Option<TaskId>| parents.iter().filter(|one| **one == parent).count();
    assert_eq!((of(None), of(Some(first))), (1, 3));
    assert_eq!(parents.iter().flatten().filter(|parent| **parent != first).count(), 9);
    // A task with another correlation id leaves the flow, and keeps its parent.
    let others = whole_flow(&fresh, "another flow", 1 + 3).await;
    assert!(others.iter().all(Option::is_some), "{others:?}");
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn retry_keeps_flow(fresh: Fresh) {
    let client = TaskEngine::new(fresh.store.clone());
    let id = client.create(Ancestor { generations: 1 }).correlation("a").await.unwrap();
    let engine = start(engine(&fresh));
    let parents = whole_flow(&fresh, "a", 4).await;
    engine.stop().await;
    assert_eq!(parents, [None, Some(id), Some(id), Some(id)]);
    assert_eq!(fresh.details(id).await.executions.len(), 2);
}

async fn recovery_keeps_flow(fresh: Fresh) {
    let client = TaskEngine::new(fresh.store.clone());
    let id = client.create(Ancestor { generations: 1 }).correlation("a").await.unwrap();
    let doomed = NewInstance {
        name: "doomed".to_owned(),
        host: "elsewhere".to_owned(),
        pid: 1,
        process: None,
        version: "0".to_owned(),
        workers: 1,
        lease: Duration::from_secs(60),
        queues: vec!["default".to_owned()],
        pools: Vec::new(),
        classes: BTreeMap::from([("ancestor".to_owned(), Ancestor::options())]),
    };
    let instance = fresh.store.register(&doomed).await.unwrap();
    let mut claimer = fresh.store.claimer(
        instance,
        task_engine::core::queue::Lanes::new(doomed.queues, vec!["ancestor".to_owned()]),
    );
    let claim = claimer.claim(ClaimIds::new(instance).take(), 1).await.unwrap();
    assert_eq!(Origin::of(id, &claim.tasks[0].context).correlation_id, "a");
    assert!(fresh.store.declare_lost(instance, true).await.unwrap());
    assert_eq!(fresh.store.reclaim(Reclaim::Lost(instance)).await.unwrap().len(), 1);
    let engine = start(engine(&fresh));
    assert_eq!(whole_flow(&fresh, "a", 4).await, [None, Some(id), Some(id), Some(id)]);
    engine.stop().await;
    assert_eq!(
        fresh.details(id).await.executions[0].error.as_ref().unwrap().exception,
        "InstanceLost"
    );
}

async fn children_inherit_trace_context(fresh: Fresh) {
    let client = TaskEngine::new(fresh.store.clone());
    let traced = client.create(Ancestor { generations: 2 }).traceparent(TRACE);
    let id = traced.correlation("a").await.unwrap();
    let engine = start(engine(&fresh));
    whole_flow(&fresh, "a", 13).await;
    engine.stop().await;
    let page = FlowPage { correlation_id: "a".to_owned(), after: Some(id), limit: 100 };
    let descendants = fresh.store.flow(&page).await.unwrap();
    assert_eq!(descendants.len(), 12);
    for task in descendants {
        let context = fresh.details(task.row.id).await.context;
        let origin = Origin::of(task.row.id, &context);
        assert_eq!(origin.traceparent.unwrap().to_string(), TRACE);
    }
}

async fn invalid_correlation_or_trace_is_refused(fresh: Fresh) {
    let client = TaskEngine::new(fresh.store.clone());
    let child = || client.create(Ancestor { generations: 0 });
    for bad in ["", "a\nb", &"x".repeat(201)] {
        let error = child().correlation(bad).await.unwrap_err().to_string();
        assert!(error.contains("a correlation id is a text of 1 to 200 bytes"), "{error}");
    }
    let error = child().traceparent("00-abc").await.unwrap_err().to_string();
    assert!(error.contains("it looks like 00-"), "{error}");
    assert_eq!(
        fresh
            .store
            .tasks(&task_engine::core::task::TaskListQuery { limit: 9, ..Default::default() })
            .await
            .unwrap(),
        []
    );
    // What SQL has put there and cannot be meant does not stop a task.
    let mut odd = task("ancestor", json!({"generations": 1}));
    odd.context =
        task_engine::Json::parse(r#"{"traceparent":"nonsense","parent_id":"x"}"#).unwrap();
    let odd = fresh.create_task(odd).await;
    let engine = start(engine(&fresh));
    whole_flow(&fresh, &odd.to_string(), 4).await;
    engine.stop().await;
}
