//! The conformance suite on a real PostgreSQL server: once with direct connections, and
//! once behind a pooler that gives each transaction another connection.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use task_engine_conformance::TestDatabase;
use task_engine_conformance::completions::{Local, TestTransaction};
use task_engine_core::completion::Completion;
use task_engine_core::task::TaskId;
use task_engine_postgres::{PgStore, Schema};
use task_engine_store::contract::Store;
use task_engine_store::error::StoreError;
use task_engine_test_harness::{TestPooler, TestServer, connect};
use tokio::sync::OnceCell;
use tokio_postgres::Client;

struct Postgres {
    url: String,
    /// Where the store connects to.
    store_url: String,
}

impl TestDatabase for Postgres {
    fn open(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>> {
        Box::pin(async {
            let store = PgStore::connect(&self.store_url).await.expect("the server is there");
            Arc::new(store) as Arc<dyn Store>
        })
    }

    fn begin(&self) -> Local<'_, Box<dyn TestTransaction>> {
        Box::pin(async {
            let client = self.connect().await;
            client.batch_execute("BEGIN").await.unwrap();
            Box::new(Own(client)) as Box<dyn TestTransaction>
        })
    }

    fn receives_wake_ups(&self) -> bool {
        self.store_url == self.url
    }

    fn effects(&self) -> Local<'_, Vec<TaskId>> {
        Box::pin(async {
            let ask = "SELECT task_id FROM effects ORDER BY task_id";
            let rows = self.connect().await.query(ask, &[]).await.unwrap();
            rows.iter().map(|row| TaskId(row.get(0))).collect()
        })
    }
}

impl Postgres {
    async fn connect(&self) -> Client {
        let client = connect(&self.url).await;
        let table = "CREATE TABLE IF NOT EXISTS effects (task_id bigint)";
        client.batch_execute(table).await.unwrap();
        client
    }
}

struct Own(Client);

impl TestTransaction for Own {
    fn effect(&mut self, task: TaskId) -> Local<'_, ()> {
        Box::pin(async move {
            let insert = "INSERT INTO effects VALUES ($1)";
            self.0.execute(insert, &[&task.0]).await.unwrap();
        })
    }

    fn complete<'a>(&'a mut self, completion: &'a Completion) -> Local<'a, Result<(), StoreError>> {
        Box::pin(async move { Schema::default().complete_in(&self.0, completion).await })
    }

    fn commit(self: Box<Self>) -> Local<'static, ()> {
        Box::pin(async move { self.0.batch_execute("COMMIT").await.unwrap() })
    }

    fn rollback(self: Box<Self>) -> Local<'static, ()> {
        Box::pin(async move { self.0.batch_execute("ROLLBACK").await.unwrap() })
    }
}

/// A database with the tables: a copy of one, because that is faster than to create them.
async fn database_with_tables() -> String {
    static ORIGINAL: OnceCell<String> = OnceCell::const_new();
    let original = ORIGINAL
        .get_or_init(async || {
            let url = TestServer::shared().create_database().await;
            let store = PgStore::connect(&url).await.expect("the server is there");
            store.migrate().await.expect("the tables can be made");
            // The server waits until its connections are closed.
            store.close().await.unwrap();
            url.rsplit('/').next().unwrap().to_owned()
        })
        .await;
    TestServer::shared().create_copy(original).await
}

async fn fresh() -> Box<dyn TestDatabase> {
    let url = database_with_tables().await;
    Box::new(Postgres { store_url: url.clone(), url })
}

task_engine_conformance::suite!(fresh);

/// The number of server connections for all stores of a database: fewer than the stores
/// open.
const POOLED_CONNECTIONS: u32 = 6;

fn pooler() -> &'static TestPooler {
    static POOLER: OnceLock<TestPooler> = OnceLock::new();
    POOLER
        .get_or_init(|| TestPooler::start(TestServer::shared(), "transaction", POOLED_CONNECTIONS))
}

async fn behind_a_pooler() -> Box<dyn TestDatabase> {
    let url = database_with_tables().await;
    Box::new(Postgres { store_url: pooler().through(&url), url })
}

mod behind_a_pooler {
    task_engine_conformance::suite!(super::behind_a_pooler);
}
