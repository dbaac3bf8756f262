//! The API for Rust: forms of handlers, the life of an engine, transactions and pools.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_engine::postgres::deadpool_postgres::{Manager, Pool};
use task_engine::postgres::{PgStore, sqlx, tokio_postgres};
use task_engine::sqlite::rusqlite;
use task_engine::{
    Context, Creation, EngineError, Failure, NewTask, Refusal, Task, TaskEngine, TaskId, TaskStatus,
};
use task_engine_test_harness::{TestServer, connect};
use tokio::sync::Notify;

use crate::store::{Fresh, on_every_store};

on_every_store! {
    handlers_take_any_arguments
    future_stops_engine
    started_engine_is_registered
    start_reports_taken_name
    dropped_engine_finishes_its_task
}

macro_rules! classes {
    ($($name:ident)*) => {$(
        #[derive(Debug, Clone, Serialize, Deserialize, Task)]
        struct $name;
    )*};
}

classes! { TaskAndContext TaskOnly ContextOnly NoArguments BlockingTaskOnly BlockingNoArguments Waits }

async fn handlers_take_any_arguments(fresh: Fresh) {
    async fn both(_: TaskAndContext, cx: Context<&'static str>) -> Result<String, Failure> {
        Ok(format!("{} {}", cx.class(), cx.state()))
    }
    async fn task(_: TaskOnly) -> Result<u8, std::num::ParseIntError> {
        "7".parse()
    }
    async fn context(cx: Context<&'static str>) -> anyhow::Result<usize> {
        Ok(cx.state().len())
    }
    async fn nothing() -> Result<(), Failure> {
        Ok(())
    }
    fn blocking_task(_: BlockingTaskOnly) -> anyhow::Result<bool> {
        Ok(true)
    }
    fn blocking_nothing() -> anyhow::Result<()> {
        anyhow::bail!("no luck")
    }
    let tasks = TaskEngine::new(fresh.store.clone());
    let engine = tasks
        .engine("state")
        .handle(both)
        .handle(task)
        .handle::<ContextOnly, _>(context)
        .handle::<NoArguments, _>(nothing)
        .handle_blocking(blocking_task)
        .handle_blocking::<BlockingNoArguments, _>(blocking_nothing)
        .start()
        .await
        .unwrap();
    for (id, result) in [
        (tasks.create(TaskAndContext).await.unwrap(), r#""task_and_context state""#),
        (tasks.create(TaskOnly).await.unwrap(), "7"),
        (tasks.create(ContextOnly).await.unwrap(), "5"),
        (tasks.create(NoArguments).await.unwrap(), "null"),
        (tasks.create(BlockingTaskOnly).await.unwrap(), "true"),
    ] {
        let ended = fresh.until_status(id, TaskStatus::Stopped).await;
        assert_eq!(ended.executions[0].result.as_ref().unwrap().as_str(), result);
    }
    let failed = tasks.create(BlockingNoArguments).await.unwrap();
    let failed = fresh.until(failed, |task| task.row.error.is_some()).await;
    let error = failed.row.error.unwrap();
    assert_eq!((error.exception.as_str(), error.message.as_str()), ("Failure", "no luck"));
    engine.stop();
    assert!(!engine.join().await.unwrap().forced);
}

/// The task is running when the shutdown begins, and finishes.
async fn future_stops_engine(fresh: Fresh) {
    let tasks = TaskEngine::new(fresh.store.clone());
    let id = tasks.create(Waits).await.unwrap();
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let engine = tasks.engine((begun.clone(), go_on.clone())).handle::<Waits, _>(waits);
    let shutdown = async move {
        begun.notified().await;
        go_on.notify_one();
    };
    assert_eq!(engine.run_until(shutdown).await.unwrap().released, 0);
    assert_eq!(fresh.details(id).await.row.status, TaskStatus::Stopped);
}

async fn waits(cx: Context<(Arc<Notify>, Arc<Notify>)>) -> Result<(), Failure> {
    let (begun, go_on) = cx.state();
    begun.notify_one();
    go_on.notified().await;
    Ok(())
}

async fn started_engine_is_registered(fresh: Fresh) {
    let engine = fresh.engine().instance("known").start().await.unwrap();
    let instances = fresh.store.instances(Some("known")).await.unwrap();
    assert!(instances[0].is_alive());
    engine.stop_now();
    engine.join().await.unwrap();
}

async fn start_reports_taken_name(fresh: Fresh) {
    let first = fresh.engine().instance("same").start().await.unwrap();
    let second = fresh.engine().instance("same").start().await;
    assert!(matches!(second.unwrap_err(), EngineError::NameTaken(_)));
    first.stop();
    first.join().await.unwrap();
}

async fn dropped_engine_finishes_its_task(fresh: Fresh) {
    let tasks = TaskEngine::new(fresh.store.clone());
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let engine = tasks.engine((begun.clone(), go_on.clone())).handle::<Waits, _>(waits);
    let engine = engine.start().await.unwrap();
    let id = tasks.create(Waits).await.unwrap();
    begun.notified().await;
    drop(engine);
    go_on.notify_one();
    fresh.until_status(id, TaskStatus::Stopped).await;
    let later = tasks.create(Waits).await.unwrap();
    fresh.until_all_engines_ended().await;
    assert_eq!(fresh.details(later).await.row.status, TaskStatus::Waiting);
}

#[derive(Clone, Serialize, Deserialize, Task)]
struct Mail {
    to: String,
}

fn mail(to: &str) -> Mail {
    Mail { to: to.to_owned() }
}

/// With a hook that counts, and refuses one task.
fn hooked(store: impl Into<Arc<dyn task_engine::Store>>, count: &Arc<AtomicUsize>) -> TaskEngine {
    let count = count.clone();
    TaskEngine::new(store).creation_hook(move |task: &mut NewTask| {
        count.fetch_add(1, Ordering::Relaxed);
        if task.parameters.as_str().contains("nowhere") {
            return Err(Refusal::because("no such address"));
        }
        Ok(())
    })
}

async fn postgres() -> (String, PgStore, tokio_postgres::Client) {
    let url = TestServer::shared().create_database().await;
    let store = PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let client = connect(&url).await;
    (url, store, client)
}

async fn exists(tasks: &TaskEngine, id: TaskId) -> bool {
    tasks.get(id).await.unwrap().is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn tokio_postgres_transaction_creates_tasks() {
    let (_, store, mut client) = postgres().await;
    let count = Arc::new(AtomicUsize::new(0));
    let tasks = hooked(store, &count);
    let tx = client.transaction().await.unwrap();
    let undone = tasks.create(mail("ada")).in_tx(&tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(!exists(&tasks, undone).await);
    let mut tx = client.transaction().await.unwrap();
    let first = tasks.create(mail("ada")).priority(3).unique("ada").in_tx(&tx).await.unwrap();
    let again = tasks.create(mail("ada")).unique("ada").in_tx(&mut tx).await.unwrap();
    assert_eq!(again, Creation::Kept(first.id()));
    let refused = tasks.create(mail("nowhere")).in_tx(&tx).await;
    assert!(refused.unwrap_err().to_string().contains("no such address"));
    let many = tasks.create_many_in(&tx, vec![NewTask::of(&mail("bob")).unwrap()]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(tasks.get(first.id()).await.unwrap().unwrap().row.priority, 3);
    assert!(exists(&tasks, many[0]).await);
    assert_eq!(count.load(Ordering::Relaxed), 5, "every task passes the hook once");
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlx_transaction_creates_tasks() {
    let (url, store, _) = postgres().await;
    let count = Arc::new(AtomicUsize::new(0));
    let tasks = hooked(store, &count);
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let undone = tasks.create(mail("ada")).in_tx(&mut tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(!exists(&tasks, undone).await);
    let mut tx = pool.begin().await.unwrap();
    let created = tasks.create(mail("ada")).in_tx(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    assert!(exists(&tasks, created).await);
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn rusqlite_transaction_creates_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let tasks = TaskEngine::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    tasks.migrate().await.unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let tasks = hooked(tasks.store().clone(), &count);
    let mut connection = rusqlite::Connection::open(&path).unwrap();
    let tx = connection.transaction().unwrap();
    let undone = tasks.create(mail("ada")).in_tx(&tx).unwrap();
    tx.rollback().unwrap();
    assert!(!exists(&tasks, undone).await);
    let tx = connection.transaction().unwrap();
    let created = tasks.create(mail("ada")).in_tx(&tx).unwrap();
    tx.commit().unwrap();
    assert!(exists(&tasks, created).await);
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

/// No connection of the store is open before something else than creation is done.
async fn pool_creates_tasks(tasks: TaskEngine, client: &tokio_postgres::Client) {
    let own = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'task-engine'";
    let own = async || client.query_one(own, &[]).await.unwrap().get::<_, i64>(0);
    let before = own().await;
    let first = tasks.create(mail("ada")).unique("ada").await.unwrap();
    assert_eq!(tasks.create(mail("ada")).unique("ada").await.unwrap(), Creation::Kept(first.id()));
    let many: Vec<_> = (0..3).map(|_| NewTask::of(&mail("bob")).unwrap()).collect();
    let many = tasks.create_many(&many).await.unwrap();
    assert_eq!(own().await, before);
    let seen = Arc::new(Mutex::new(0));
    async fn count(_: Mail, cx: Context<(Arc<Mutex<usize>>, Arc<Notify>)>) -> Result<(), Failure> {
        let mut seen = cx.state().0.lock().unwrap();
        *seen += 1;
        if *seen == 4 {
            cx.state().1.notify_one();
        }
        Ok(())
    }
    let all = Arc::new(Notify::new());
    let engine = tasks.engine((seen, all.clone())).handle(count);
    tokio::time::timeout(Duration::from_secs(30), engine.run_until(all.notified()))
        .await
        .expect("the engine ends")
        .unwrap();
    assert_eq!(tasks.get(many[2]).await.unwrap().unwrap().row.status, TaskStatus::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn deadpool_creates_tasks() {
    let (url, store, client) = postgres().await;
    store.close().await.unwrap();
    let manager = Manager::new(url.parse().unwrap(), tokio_postgres::NoTls);
    let pool = Pool::builder(manager).max_size(1).build().unwrap();
    pool_creates_tasks(TaskEngine::from_pool(&url, pool).unwrap(), &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlx_pool_creates_tasks() {
    let (url, store, client) = postgres().await;
    store.close().await.unwrap();
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    pool_creates_tasks(TaskEngine::from_pool(&url, pool).unwrap(), &client).await;
}

#[tokio::test]
async fn unknown_url_is_refused() {
    let error = TaskEngine::connect("mysql://u:secret@h/d").await.unwrap_err().to_string();
    assert!(error.contains("mysql:// is not a database") && !error.contains("secret"), "{error}");
    let error = TaskEngine::connect("postgres://127.0.0.1:1/d").await.unwrap_err().to_string();
    assert!(error.contains("cannot be reached"), "{error}");
}
