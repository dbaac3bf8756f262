//! Flows in transactions of the application, and on its pools: they exist if the transaction
//! commits, and then run.

use serde_json::{Value, json};
use task_engine::postgres::deadpool_postgres::{Manager, Pool};
use task_engine::postgres::sqlx;
use task_engine::sqlite::rusqlite;
use task_engine::{
    Context, CreateError, Engine, Failure, Flow, FlowTasks, Task, TaskEngine, TaskId, TaskOptions,
    TaskStatus,
};
use task_engine_test_harness::{TestServer, connect};

use crate::store::{Fresh, nothing, sqlite, start, task};

#[derive(serde::Serialize, serde::Deserialize)]
struct Last {}

impl Task for Last {
    const CLASS: &'static str = "last";
}

fn flow() -> Flow {
    Flow::new()
        .add("second", task("second", nothing()))
        .after("first")
        .add("first", task("first", json!({ "n": 20 })))
}

fn engine(tasks: &TaskEngine) -> Engine<()> {
    let options = TaskOptions::default;
    let first = |parameters: Value, _: Context<()>| async move {
        Ok::<_, Failure>(parameters["n"].as_i64().unwrap() + 1)
    };
    let second = |_: Value, cx: Context<()>| async move {
        Ok::<_, Failure>(cx.result_of::<i64>("first").await? * 2)
    };
    let last = |_: Last, cx: Context<()>| async move {
        let parents = cx.dependencies().await?;
        Ok::<_, Failure>(parents[0].result::<i64>()?)
    };
    tasks
        .engine(())
        .instance("test")
        .handle_class("first", options(), first)
        .handle_class("second", options(), second)
        .handle(last)
}

/// The flow, and a task that depends on it, run to their ends.
async fn assert_runs(fresh: &Fresh, tasks: &TaskEngine, created: &FlowTasks, last: TaskId) {
    assert!(fresh.details(created["second"]).await.row.is_blocked);
    assert!(fresh.details(last).await.row.is_blocked);
    let engine = start(engine(tasks));
    let last = fresh.until_status(last, TaskStatus::Stopped).await;
    assert_eq!(last.executions[0].result.as_ref().unwrap().as_str(), "42");
    assert_eq!(last.correlation_id, created.correlation_id);
    engine.stop().await;
    fresh.assert_sound().await;
}

async fn assert_missing(fresh: &Fresh, created: &FlowTasks) {
    for id in created.ids.values() {
        assert_eq!(fresh.store.task(*id).await.unwrap(), None);
    }
}

async fn postgres() -> (Fresh, String) {
    let url = TestServer::shared().create_database().await;
    let store = task_engine::postgres::PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    (Fresh::on(store), url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_commits_with_tokio_postgres() {
    let (fresh, url) = postgres().await;
    let tasks = TaskEngine::new(fresh.store.clone());
    let mut client = connect(&url).await;
    let tx = client.transaction().await.unwrap();
    let lost = tasks.create_flow_in(&tx, flow()).await.unwrap();
    tx.rollback().await.unwrap();
    assert_missing(&fresh, &lost).await;
    let mut tx = client.transaction().await.unwrap();
    let created = tasks.create_flow_in(&mut tx, flow()).await.unwrap();
    let last = tasks.create(Last {}).after_task(created["second"]).in_tx(&tx).await.unwrap();
    let invalid = tasks.create_flow_in(&tx, Flow::new()).await.unwrap_err();
    assert!(matches!(invalid, CreateError::Flow(_)), "{invalid:?}");
    tx.commit().await.unwrap();
    assert_runs(&fresh, &tasks, &created, last).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_commits_with_sqlx() {
    use sqlx::Connection as _;
    let (fresh, url) = postgres().await;
    let tasks = TaskEngine::new(fresh.store.clone());
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let lost = tasks.create_flow_in(&mut tx, flow()).await.unwrap();
    tx.rollback().await.unwrap();
    assert_missing(&fresh, &lost).await;
    let mut tx = connection.begin().await.unwrap();
    let created = tasks.create_flow_in(&mut *tx, flow()).await.unwrap();
    let last = tasks.create(Last {}).after_task(created["second"]).in_tx(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_runs(&fresh, &tasks, &created, last).await;
    let mut tx = connection.begin().await.unwrap();
    let missing = tasks.create(Last {}).after_task(TaskId(4711)).in_tx(&mut tx).await.unwrap_err();
    let text = missing.to_string();
    assert!(text.contains("task 4711 does not exist, or was removed"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flow_commits_with_rusqlite() {
    let fresh = sqlite().await;
    let tasks = TaskEngine::new(fresh.store.clone());
    let mut connection = rusqlite::Connection::open(fresh.path().unwrap()).unwrap();
    let tx = connection.transaction().unwrap();
    let lost = tasks.create_flow_in(&tx, flow()).unwrap();
    tx.rollback().unwrap();
    assert_missing(&fresh, &lost).await;
    let tx = connection.transaction().unwrap();
    let created = tasks.create_flow_in(&tx, flow()).unwrap();
    let last = tasks.create(Last {}).after_task(created["second"]).in_tx(&tx).unwrap();
    // What is refused leaves the transaction as it was.
    let missing = tasks.create(Last {}).after_task(TaskId(4711)).in_tx(&tx).unwrap_err();
    let text = missing.to_string();
    assert!(text.contains("task 4711 does not exist, or was removed"), "{text}");
    tx.commit().unwrap();
    assert_runs(&fresh, &tasks, &created, last).await;
}

async fn runs_on_pool(fresh: Fresh, tasks: TaskEngine) {
    let created = tasks.create_flow(flow()).await.unwrap();
    let last = tasks.create(Last {}).after_task(created["second"]).await.unwrap();
    let text = tasks.create(Last {}).after_task(TaskId(4711)).await.unwrap_err().to_string();
    assert!(text.contains("task 4711 does not exist, or was removed"), "{text}");
    assert_runs(&fresh, &TaskEngine::new(fresh.store.clone()), &created, last).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadpool_creates_flow() {
    let (fresh, url) = postgres().await;
    let manager = Manager::new(url.parse().unwrap(), task_engine::postgres::tokio_postgres::NoTls);
    let pool = Pool::builder(manager).max_size(1).build().unwrap();
    runs_on_pool(fresh, TaskEngine::from_pool(&url, pool).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlx_pool_creates_flow() {
    let (fresh, url) = postgres().await;
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    runs_on_pool(fresh, TaskEngine::from_pool(&url, pool).unwrap()).await;
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Completes {}

impl Task for Completes {
    const CLASS: &'static str = "first";
}

/// The end of a task may be committed by the application itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parent_completes_in_transaction() {
    let (fresh, url) = postgres().await;
    let tasks = TaskEngine::new(fresh.store.clone());
    let first = tasks.create(Completes {}).await.unwrap();
    let last = tasks.create(Last {}).after_task(first).await.unwrap();
    let complete = |_: Completes, cx: Context<String>| async move {
        let mut client = connect(cx.state()).await;
        let tx = client.transaction().await?;
        cx.complete_in(&tx, &7).await?;
        tx.commit().await?;
        Ok::<_, Failure>(7)
    };
    let read = move |_: Last, cx: Context<String>| async move {
        Ok::<_, Failure>(cx.result_of::<i64>(first).await?)
    };
    let engine = tasks.engine(url).instance("test").handle(complete).handle(read);
    let engine = start(engine);
    let last = fresh.until_status(last, TaskStatus::Stopped).await;
    assert_eq!(last.executions[0].result.as_ref().unwrap().as_str(), "7");
    engine.stop().await;
    fresh.assert_sound().await;
}
