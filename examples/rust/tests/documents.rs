//! The Rust code of the documents compiles and runs: see `build.rs`.
#![allow(unused, clippy::all, clippy::pedantic)]

use std::sync::Arc;

use task_engine::postgres::tokio_postgres::{self, NoTls};
use task_engine::postgres::{PgStore, Schema};
use task_engine::{Engine, Store, TaskEngine};
use task_engine_test_harness::TestServer;

type Error = Box<dyn std::error::Error>;

/// What every document starts with: a database with the tables of tasks, and a
/// table of orders of an application.
struct Scene {
    store: Arc<dyn Store>,
    shop: Shop,
}

struct Shop {
    url: String,
}

impl Scene {
    async fn new() -> Self {
        let shop = Shop { url: TestServer::shared().create_database().await };
        let store = PgStore::connect(&shop.url).await.unwrap();
        store.migrate().await.unwrap();
        let orders = "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY)";
        shop.connect().await.unwrap().batch_execute(orders).await.unwrap();
        Self { store: store.into(), shop }
    }

    /// Every block gets its own values, because it may consume them.
    async fn given(&self) -> (Arc<dyn Store>, TaskEngine, tokio_postgres::Client) {
        let db = self.shop.connect().await.unwrap();
        (self.store.clone(), TaskEngine::new(self.store.clone()), db)
    }
}

impl Shop {
    async fn connect(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

/// Starts the engine, which checks its settings, and stops it.
async fn starts<S: Send + Sync + 'static>(engine: Engine<S>) -> Result<(), Error> {
    engine.stop_handle().stop();
    engine.run_until(std::future::pending()).await?;
    Ok(())
}

include!(concat!(env!("OUT_DIR"), "/documents.rs"));
