//! Creation: hooks, the options of the class, and unique keys.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use task_engine::CreateError;
use task_engine::core::task::TaskListQuery;
use task_engine::core::unique::key_of;
use task_engine::{
    Context, Creation, CreationHook, Failure, NewTask, OnConflict, Refusal, Scope, Task,
    TaskEngine, TaskId, TaskOptions, TaskStatus, Unique,
};

use crate::store::{Fresh, nothing, on_every_store, start, task};

on_every_store! {
    hooks_see_all_client_tasks
    hooks_see_child_tasks
    creation_hook_error_reaches_caller
    class_priority_orders_tasks
    debounced_task_runs_last_parameters_once
    class_declares_unique_key
}

struct OfTenant(u64);

impl CreationHook for OfTenant {
    fn creating(&self, task: &mut NewTask) -> Result<(), Refusal> {
        task.add_context("tenant", &self.0)?;
        task.priority += 2;
        Ok(())
    }
}

async fn assert_tenant(fresh: &Fresh, id: TaskId, tenant: u64) {
    let details = fresh.details(id).await;
    let context: serde_json::Value = details.context.decode().unwrap();
    assert_eq!(context["tenant"], tenant, "{context}");
}

async fn hooks_see_all_client_tasks(fresh: Fresh) {
    let plain = TaskEngine::new(fresh.store.clone());
    let client = plain.clone().creation_hook(OfTenant(7)).creation_hook(|task: &mut NewTask| {
        assert!(task.context.as_str().contains("tenant"), "hooks have an order");
        task.queue = "tenants".into();
        Ok(())
    });
    let one = client.create(Index { customer: 1 }).priority(5).await.unwrap();
    let many = client.create_many(&[task("a", nothing()), task("b", nothing())]).await.unwrap();
    let unique = client.create(Index { customer: 2 }).unique("k").await.unwrap();
    let prepared = client.prepare(vec![task("c", nothing())]).unwrap();
    let elsewhere = fresh.store.create(&prepared).await.unwrap();
    for id in [one, many[0], many[1], unique.id(), elsewhere[0]] {
        assert_tenant(&fresh, id, 7).await;
        assert_eq!(fresh.details(id).await.row.queue, "tenants");
    }
    assert_eq!(fresh.details(one).await.row.priority, 7);
    let id = plain.create(Index { customer: 3 }).queue("x").await.unwrap();
    assert_eq!(fresh.details(id).await.row.queue, "x", "the first client has no hook");
}

async fn hooks_see_child_tasks(fresh: Fresh) {
    let parent = fresh.create("parent", nothing()).await;
    let engine =
        TaskEngine::new(fresh.store.clone()).creation_hook(OfTenant(3)).engine(()).handle_class(
            "parent",
            TaskOptions::default(),
            |_: serde_json::Value, cx: Context<()>| async move {
                let one = cx.create(Index { customer: 1 }).await?;
                let many = cx.tasks().create_many(&[task("b", nothing())]).await?;
                Ok::<_, Failure>([one, many[0]])
            },
        );
    let engine = start(engine);
    let parent = fresh.until_status(parent, TaskStatus::Stopped).await;
    let children: [TaskId; 2] = parent.executions[0].result.as_ref().unwrap().decode().unwrap();
    for child in children {
        assert_tenant(&fresh, child, 3).await;
    }
    engine.stop().await;
}

async fn creation_hook_error_reaches_caller(fresh: Fresh) {
    let client =
        TaskEngine::new(fresh.store.clone()).creation_hook(|task: &mut NewTask| {
            match task.class.as_str() {
                "forbidden" => Err(Refusal::because("not in this house")),
                "bomb" => panic!("it went off"),
                _ => Ok(()),
            }
        });
    let with = |class| [task("fine", nothing()), task(class, nothing())];
    let refused = client.create_many(&with("forbidden")).await.unwrap_err();
    assert!(
        matches!(&refused, CreateError::Refused { class, why, .. }
            if class == "forbidden" && why == "not in this house"),
        "{refused}"
    );
    let panicked = client.create_many(&with("bomb")).await.unwrap_err();
    let words = panicked.to_string();
    assert!(words.contains("creates_tasks") && words.contains("it went off"), "{words}");
    let filter = TaskListQuery { limit: 10, ..TaskListQuery::default() };
    assert_eq!(fresh.store.tasks(&filter).await.unwrap(), [], "all or none");
    assert_eq!(client.create_many(&with("fine")).await.unwrap().len(), 2);

    // In a task, it is a failure like any other.
    let parent = fresh.create("parent", nothing()).await;
    let engine = TaskEngine::new(fresh.store.clone())
        .creation_hook(|_: &mut NewTask| panic!("it went off again"))
        .engine(())
        .handle_class(
            "parent",
            TaskOptions::default().retry(task_engine::RetryRule::never()),
            |_: serde_json::Value, cx: Context<()>| async move {
                Ok::<_, Failure>(cx.create(Index { customer: 1 }).await?)
            },
        );
    let engine = start(engine);
    let parent = fresh.until_status(parent, TaskStatus::Failed).await;
    let error = parent.row.error.unwrap().to_string();
    assert!(error.contains("it went off again"), "{error}");
    engine.stop().await;
}

#[derive(Serialize, Deserialize)]
struct Urgent;

impl Task for Urgent {
    const CLASS: &'static str = "urgent";

    fn options() -> TaskOptions {
        TaskOptions::default().priority(9)
    }
}

#[derive(Serialize, Deserialize)]
struct Idle;

impl Task for Idle {
    const CLASS: &'static str = "idle";

    fn options() -> TaskOptions {
        TaskOptions::default().priority(-9)
    }
}

async fn class_priority_orders_tasks(fresh: Fresh) {
    type Ran = Arc<Mutex<Vec<&'static str>>>;
    async fn note(class: &'static str, cx: Context<Ran>) -> Result<(), Failure> {
        cx.state().lock().unwrap().push(class);
        Ok(())
    }
    let client = TaskEngine::new(fresh.store.clone());
    client.create(Idle).await.unwrap();
    let plain = client.create_many(&[task("plain", nothing())]).await.unwrap()[0];
    let urgent = client.create(Urgent).await.unwrap();
    let last = client.create(Urgent).priority(-10).await.unwrap();
    assert_eq!(fresh.details(urgent).await.row.priority, 9);
    assert_eq!(fresh.details(plain).await.row.priority, 0);
    let ran = Ran::default();
    let engine = TaskEngine::new(fresh.store.clone())
        .engine(ran.clone())
        .instance("a")
        .workers(1)
        .handle(|_: Idle, run| note("idle", run))
        .handle(|_: Urgent, run| note("urgent", run))
        .handle_class("plain", TaskOptions::default(), |_: serde_json::Value, run| {
            note("plain", run)
        });
    let engine = start(engine);
    fresh.until_status(last, TaskStatus::Stopped).await;
    engine.stop().await;
    assert_eq!(*ran.lock().unwrap(), ["urgent", "plain", "idle", "urgent"]);
}

#[derive(Serialize, Deserialize)]
struct Index {
    customer: u64,
}

impl Task for Index {
    const CLASS: &'static str = "index";
}

async fn debounced_task_runs_last_parameters_once(fresh: Fresh) {
    let client = TaskEngine::new(fresh.store.clone());
    let engine =
        start(fresh.engine().handle(|index: Index, _: Context<()>| async move {
            Ok::<_, Failure>(index.customer)
        }));
    let mut first = None;
    for customer in 0..20 {
        let index = client.create(Index { customer }).after(Duration::from_secs(2)).unique("k");
        let index = index.scope(Scope::Waiting).on_conflict(OnConflict::Replace);
        let creation = index.await.unwrap();
        let id = *first.get_or_insert(creation.id());
        let expected = if customer == 0 { Creation::Created(id) } else { Creation::Replaced(id) };
        assert_eq!(creation, expected);
    }
    let done = fresh.until_status(first.unwrap(), TaskStatus::Stopped).await;
    assert_eq!(done.executions.len(), 1);
    assert_eq!(done.executions[0].result.as_ref().unwrap().as_str(), "19");
    engine.stop().await;
    fresh.assert_sound().await;
}

#[derive(Serialize, Deserialize)]
struct Report {
    month: String,
}

impl Task for Report {
    const CLASS: &'static str = "report";

    fn unique(&self) -> Option<Unique> {
        Some(Unique::by(&self.month))
    }
}

async fn class_declares_unique_key(fresh: Fresh) {
    let client = TaskEngine::new(fresh.store.clone());
    let report = |month: &str| Report { month: month.into() };
    let may = client.create(report("May")).await.unwrap();
    assert_eq!(client.create(report("May")).await.unwrap(), may);
    assert_ne!(client.create(report("June")).await.unwrap(), may);
    let tasks = [NewTask::of(&report("May")).unwrap(), task("report", json!({"month": "May"}))];
    let creations = client.create_each(&tasks).await.unwrap();
    assert_eq!(creations[0], Creation::Kept(may));
    assert!(creations[1].is_new(), "the class is known by its name alone");
    assert_eq!(key_of(&fresh.details(may).await.context).as_deref(), Some("May"));
}
