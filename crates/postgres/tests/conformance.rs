//! Every behaviour that any store has, on a real PostgreSQL server.

use std::pin::Pin;
use std::sync::Arc;

use task_engine_conformance::{Database, TestServer};
use task_engine_model::Store;
use task_engine_postgres::PgStore;

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
}

async fn fresh() -> Box<dyn Database> {
    Box::new(Postgres { url: TestServer::shared().create_database().await })
}

task_engine_conformance::suite!(fresh);
