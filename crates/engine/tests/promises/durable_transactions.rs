//! Steps and signals in transactions of the application: they commit with its rows, or not
//! at all.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use task_engine::postgres::sqlx;
use task_engine::sqlite::rusqlite;
use task_engine::{
    Context, Engine, Failure, RetryRule, SignalStatus, StoreError, Task, TaskEngine, TaskOptions,
    TaskStatus,
};
use task_engine_test_harness::{TestServer, connect};

use crate::store::{Fresh, nothing, sqlite, start};

const INSERT: &str = "INSERT INTO stock (taken) VALUES (1)";

fn options() -> TaskOptions {
    TaskOptions::default().retry(RetryRule::every(Duration::from_millis(1), 5))
}

async fn postgres() -> (Fresh, String) {
    let url = TestServer::shared().create_database().await;
    let store = task_engine::postgres::PgStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    connect(&url).await.batch_execute("CREATE TABLE stock (taken integer)").await.unwrap();
    (Fresh::on(store), url)
}

async fn taken(url: &str) -> i64 {
    let client = connect(url).await;
    client.query_one("SELECT count(*) FROM stock", &[]).await.unwrap().get(0)
}

/// The first attempt rolls back, the second commits and fails, the third finds the record.
async fn run_thrice(fresh: &Fresh, engine: Engine<String>) -> Value {
    let engine = start(engine);
    let id = fresh.create("reserve", nothing()).await;
    let task = fresh.until_status(id, TaskStatus::Stopped).await;
    engine.stop().await;
    assert_eq!(task.executions.len(), 3);
    fresh.assert_sound().await;
    task.executions[2].result.as_ref().unwrap().decode().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_commits_with_tokio_postgres() {
    let (fresh, url) = postgres().await;
    let handler = |_: Value, cx: Context<String>| async move {
        if let Some(by) = cx.recorded::<i32>("reserve").await {
            return Ok(json!(by));
        }
        let mut client = connect(cx.state()).await;
        let tx = client.transaction().await?;
        tx.execute(INSERT, &[]).await?;
        cx.step_in(&tx, "reserve", &cx.attempt()).await?;
        if cx.attempt() == 1 {
            tx.rollback().await?;
            return Err(Failure::from("rolled back"));
        }
        tx.commit().await?;
        Err(Failure::from("after the commit"))
    };
    let tasks = TaskEngine::new(fresh.store.clone());
    let engine = tasks.engine(url.clone()).handle_class("reserve", options(), handler);
    assert_eq!(run_thrice(&fresh, engine).await, json!(2));
    assert_eq!(taken(&url).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_commits_with_sqlx() {
    use sqlx::Connection as _;
    let (fresh, url) = postgres().await;
    let handler = |_: Value, cx: Context<String>| async move {
        if let Some(by) = cx.recorded::<i32>("reserve").await {
            return Ok(json!(by));
        }
        let mut connection = sqlx::PgConnection::connect(cx.state()).await?;
        let mut tx = connection.begin().await?;
        sqlx::query(INSERT).execute(&mut *tx).await?;
        cx.step_in(&mut tx, "reserve", &cx.attempt()).await?;
        if cx.attempt() == 1 {
            tx.rollback().await?;
            return Err(Failure::from("rolled back"));
        }
        tx.commit().await?;
        Err(Failure::from("after the commit"))
    };
    let tasks = TaskEngine::new(fresh.store.clone());
    let engine = tasks.engine(url.clone()).handle_class("reserve", options(), handler);
    assert_eq!(run_thrice(&fresh, engine).await, json!(2));
    assert_eq!(taken(&url).await, 1);
}

#[derive(Serialize, Deserialize)]
struct Reserve {}

impl Task for Reserve {
    const CLASS: &'static str = "reserve";

    fn options() -> TaskOptions {
        options()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_commits_with_rusqlite() {
    let fresh = sqlite().await;
    let path = fresh.path().unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE stock (taken INTEGER)").unwrap();
    let handler = |_: Reserve, cx: Context<String>| {
        if let Some(by) = cx.block_on(cx.recorded::<i32>("reserve")) {
            return Ok(json!(by));
        }
        let mut connection = rusqlite::Connection::open(cx.state())?;
        let tx = connection.transaction()?;
        tx.execute(INSERT, [])?;
        cx.step_in(&tx, "reserve", &cx.attempt())?;
        if cx.attempt() == 1 {
            tx.rollback()?;
            return Err(Failure::from("rolled back"));
        }
        tx.commit()?;
        Err(Failure::from("after the commit"))
    };
    let tasks = TaskEngine::new(fresh.store.clone());
    let state = path.to_str().unwrap().to_owned();
    let engine = tasks.engine(state).handle_blocking(handler);
    assert_eq!(run_thrice(&fresh, engine).await, json!(2));
    let taken: i64 = connection.query_row("SELECT count(*) FROM stock", [], |r| r.get(0)).unwrap();
    assert_eq!(taken, 1);
}

async fn waits(_: Value, cx: Context<()>) -> Result<Value, Failure> {
    Ok(cx.wait_for("approved", Duration::from_secs(3600)).await?)
}

/// A signal that is rolled back was never sent; one that commits is received. The suspension
/// of the task waits for neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_commits_with_transaction() {
    let (fresh, url) = postgres().await;
    let tasks = TaskEngine::new(fresh.store.clone());
    let id = fresh.create("order", nothing()).await;
    let mut client = connect(&url).await;
    let tx = client.transaction().await.unwrap();
    let sent = tasks.signal_in(&tx, id, "approved", &"lost").await.unwrap();
    assert_eq!(sent.status, SignalStatus::Kept);
    let engine = start(tasks.engine(()).instance("test").handle_class("order", options(), waits));
    // The attempt has written that it waits, and stays running: its suspension waits for the
    // transaction, other tasks do not.
    fresh.until_status(id, TaskStatus::Running).await;
    let store = fresh.store.clone();
    while store.steps(id).await.unwrap().steps.is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let other = fresh.create("order", nothing()).await;
    fresh.until_requeued(other).await;
    assert_eq!(fresh.details(id).await.row.status, TaskStatus::Running);
    tx.rollback().await.unwrap();
    fresh.until_status(id, TaskStatus::Waiting).await;
    let tx = client.transaction().await.unwrap();
    let sent = tasks.signal_in(&tx, id, "approved", &"ada").await.unwrap();
    assert_eq!(sent.status, SignalStatus::Delivered);
    tx.commit().await.unwrap();
    let task = fresh.until_status(id, TaskStatus::Stopped).await;
    assert_eq!(task.executions.last().unwrap().result.as_ref().unwrap().as_str(), "\"ada\"");
    engine.stop().await;
    fresh.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_signal_commits_with_transaction() {
    let fresh = sqlite().await;
    let tasks = TaskEngine::new(fresh.store.clone());
    let engine = start(tasks.engine(()).instance("test").handle_class("order", options(), waits));
    let id = fresh.create("order", nothing()).await;
    fresh.until_requeued(id).await;
    let path = fresh.path().unwrap();
    let sending = tokio::task::spawn_blocking(move || {
        let mut connection = rusqlite::Connection::open(path).unwrap();
        let tx = connection.transaction().unwrap();
        let sent: Result<_, StoreError> = tasks.signal_in(&tx, id, "approved", &"ada");
        tx.commit().unwrap();
        sent.unwrap().status
    });
    assert_eq!(sending.await.unwrap(), SignalStatus::Delivered);
    fresh.until_status(id, TaskStatus::Stopped).await;
    engine.stop().await;
}

/// From plain SQL, as any other language calls it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_function_sends_signal() {
    let (fresh, url) = postgres().await;
    let tasks = TaskEngine::new(fresh.store.clone());
    let engine = start(tasks.engine(()).instance("test").handle_class("order", options(), waits));
    let id = fresh.create("order", nothing()).await;
    fresh.until_requeued(id).await;
    let client = Arc::new(connect(&url).await);
    let send = "SELECT task_engine.signal($1, $2, '{\"by\": \"ada\"}')";
    let sent: String = client.query_one(send, &[&id.0, &"approved"]).await.unwrap().get(0);
    assert_eq!(sent, "delivered");
    fresh.until_status(id, TaskStatus::Stopped).await;
    let sent: String = client.query_one(send, &[&id.0, &"approved"]).await.unwrap().get(0);
    assert_eq!(sent, "task_ended");
    let invalid = client.query_one(send, &[&id.0, &"a\nb"]).await.unwrap_err();
    assert!(invalid.as_db_error().unwrap().message().contains("invalid name of a signal"));
    engine.stop().await;
}
