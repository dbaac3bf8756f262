//! Behind a pooler that gives each transaction another connection.

use std::time::{Duration, Instant};

use task_engine_core::json::Json;
use task_engine_core::task::{NewTask, TaskListQuery};
use task_engine_core::unique::Unique;
use task_engine_postgres::{PgStore, Schema};
use task_engine_store::error::StoreError;
use task_engine_test_harness::{TestPooler, TestServer, connect};
use tokio_postgres::SimpleQueryMessage;

/// No state stays on a server connection that another program may get: no setting, no
/// prepared statement, no LISTEN.
#[tokio::test(flavor = "multi_thread")]
async fn connections_keep_no_state() {
    let server = TestServer::shared();
    let url = server.create_database().await;
    let pooler = TestPooler::start(server, "transaction", 1);
    let url = pooler.through(&url);
    let before = state(&url).await;
    let store = PgStore::connect(&url).await.expect("connects");
    store.migrate().await.expect("tables");
    store.create_each(&[task("a"), task("b")]).await.expect("created");
    assert_eq!(store.tasks(&all()).await.expect("a list").len(), 2);
    store.failure_counts().await.expect("no name is used");
    assert_eq!(store.verify().await.expect("verified"), []);
    assert_eq!(state(&url).await, before);
}

/// An application that is behind the pooler, too, creates in its own transaction.
#[tokio::test(flavor = "multi_thread")]
async fn application_transaction_creates_tasks() {
    let server = TestServer::shared();
    let pooler = TestPooler::start(server, "transaction", 2);
    let url = pooler.through(&server.create_database().await);
    let store = PgStore::connect(&url).await.expect("connects");
    store.migrate().await.expect("tables");
    let mut app = connect(&url).await;
    for commits in [true, false] {
        let transaction = app.transaction().await.expect("a transaction");
        let both = [task("a"), task("b").unique(Unique::by("one")).expect("a key")];
        store.schema().create_in(&transaction, &both).await.expect("created");
        if commits {
            transaction.commit().await.expect("committed");
        }
    }
    assert_eq!(store.tasks(&all()).await.expect("a list").len(), 2);
}

/// The lock timeout is the same as on a direct connection, also for a statement that is
/// sent for the first time.
#[tokio::test(flavor = "multi_thread")]
async fn lock_timeout_holds_behind_pooler() {
    let server = TestServer::shared();
    let direct = server.create_database().await;
    let pooler = TestPooler::start(server, "transaction", 4);
    let url = pooler.through(&direct);
    let store = PgStore::connect(&url).await.expect("connects");
    store.migrate().await.expect("tables");
    let locker = connect(&direct).await;
    let lock = "BEGIN; LOCK TABLE task_engine.created_tasks IN ACCESS EXCLUSIVE MODE";
    locker.batch_execute(lock).await.expect("locked");
    let watcher = PgStore::connect_to_watch(&url, Schema::default()).await.expect("connects");
    let (filter, limit) = (all(), Duration::from_secs(30));
    let answer = tokio::time::timeout(limit, watcher.tasks(&filter)).await.expect("an answer");
    let error = answer.expect_err("it is locked").to_string();
    assert!(error.contains("lock timeout"), "{error}");
}

/// Two clients in alternation always get the same connections.
#[tokio::test(flavor = "multi_thread")]
async fn alternating_pooler_is_detected() {
    let server = TestServer::shared();
    let pooler = TestPooler::start_with(server, "transaction", 2, "server_round_robin=1");
    let url = pooler.through(&server.create_database().await);
    let (one, other) = (connect(&url).await, connect(&url).await);
    one.batch_execute("BEGIN").await.expect("the first connection");
    other.batch_execute("BEGIN").await.expect("the second connection");
    one.batch_execute("COMMIT").await.expect("both are idle");
    other.batch_execute("COMMIT").await.expect("both are idle");
    let store = PgStore::connect(&url).await.expect("connects");
    store.migrate().await.expect("no name is used");
    assert_eq!(store.tasks(&all()).await.expect("a list").len(), 0);
}

/// A pooler may be set to another mode while programs are at work.
#[tokio::test(flavor = "multi_thread")]
async fn pooler_mode_change_is_detected() {
    let server = TestServer::shared();
    let mut pooler = TestPooler::start(server, "session", 10);
    let url = pooler.through(&server.create_database().await);
    let one = PgStore::connect(&url).await.expect("connects");
    one.migrate().await.expect("tables");
    let other = PgStore::connect(&url).await.expect("connects");
    for store in [&one, &other] {
        store.create_each(&[task("a")]).await.expect("prepared");
        store.failure_counts().await.expect("prepared");
    }
    pooler.switch("transaction");
    // A statement name is unknown as soon as two clients share a connection. After that,
    // no names are used.
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut in_a_row = 0;
    while in_a_row < 50 {
        assert!(Instant::now() < deadline, "it goes on to fail");
        let answers = tokio::join!(both(&one), both(&other));
        for error in [answers.0, answers.1].into_iter().filter_map(Result::err) {
            assert!(error.is_temporary(), "{error}");
            in_a_row = 0;
        }
        in_a_row += 1;
    }
    assert_eq!(one.verify().await.expect("verified"), []);
}

async fn both(store: &PgStore) -> Result<(), StoreError> {
    store.failure_counts().await?;
    store.create_each(&[task("a")]).await?;
    Ok(())
}

/// A pooler in statement mode has no transactions, so it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn statement_pooler_is_refused() {
    let server = TestServer::shared();
    let pooler = TestPooler::start(server, "statement", 2);
    let url = pooler.through(&server.create_database().await);
    let refused = PgStore::connect(&url).await.expect_err("it cannot be used").to_string();
    assert!(refused.contains("not allowed in statement pooling mode"), "{refused}");
}

fn all() -> TaskListQuery {
    TaskListQuery { limit: 10, ..TaskListQuery::default() }
}

fn task(class: &str) -> NewTask {
    NewTask::new(class, Json::parse("{}").expect("JSON")).expect("a task")
}

/// The state that the next client of the only server connection would find.
async fn state(url: &str) -> Vec<String> {
    let client = connect(url).await;
    let ask = "SELECT name || '=' || setting FROM pg_settings WHERE source = 'session' AND name <> 'application_name'
               UNION ALL SELECT 'prepared ' || statement FROM pg_prepared_statements
               UNION ALL SELECT 'listens to ' || pg_listening_channels()
               ORDER BY 1";
    let messages = client.simple_query(ask).await.expect("the state of a connection");
    let line = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    messages.iter().filter_map(line).collect()
}
