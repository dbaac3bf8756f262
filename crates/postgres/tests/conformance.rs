//! Every behaviour that any store has, on a real PostgreSQL server.

use std::pin::Pin;
use std::sync::Arc;

use task_engine_conformance::completions::{Local, Transaction};
use task_engine_conformance::{Database, TestServer};
use task_engine_model::{Completion, Store, StoreError, TaskId};
use task_engine_postgres::{PgStore, Schema};
use tokio_postgres::{Client, NoTls};

struct Postgres {
    url: String,
}

impl Database for Postgres {
    fn open(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>> {
        Box::pin(async {
            let store = PgStore::connect(&self.url).await.expect("the server is there");
            store.migrate().await.expect("the tables can be made");
            Arc::new(store) as Arc<dyn Store>
        })
    }

    fn begin(&self) -> Local<'_, Box<dyn Transaction>> {
        Box::pin(async {
            let client = self.connect().await;
            client.batch_execute("BEGIN").await.unwrap();
            Box::new(Own(client)) as Box<dyn Transaction>
        })
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
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let table = "CREATE TABLE IF NOT EXISTS effects (task_id bigint)";
        client.batch_execute(table).await.unwrap();
        client
    }
}

struct Own(Client);

impl Transaction for Own {
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

async fn fresh() -> Box<dyn Database> {
    Box::new(Postgres { url: TestServer::shared().create_database().await })
}

task_engine_conformance::suite!(fresh);
