//! The Rust in the documents compiles, and does what it says: see `build.rs`.
#![allow(unused, clippy::all, clippy::pedantic)]

use std::sync::Arc;

use task_engine::postgres::tokio_postgres::{self, NoTls};
use task_engine::postgres::{PgStore, Schema};
use task_engine::{Client, Engine, Store};
use task_engine_conformance::TestServer;

type Error = Box<dyn std::error::Error>;

/// What a reader has before the first line: a database with the tables of tasks,
/// and a table of orders.
struct Scene {
    url: String,
    store: Arc<dyn Store>,
}

impl Scene {
    async fn new() -> Self {
        let url = TestServer::shared().create_database().await;
        let store = Arc::new(PgStore::connect(&url).await.unwrap());
        store.migrate().await.unwrap();
        let scene = Self { url, store };
        let orders = "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY)";
        scene.connect().await.batch_execute(orders).await.unwrap();
        scene
    }

    async fn connect(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Every block has its own: it may give them away.
    async fn given(&self) -> (Arc<dyn Store>, Client, tokio_postgres::Client) {
        (self.store.clone(), Client::new(self.store.clone()), self.connect().await)
    }
}

/// The state of an application that has a database of its own.
struct Shop;

impl Shop {
    async fn connect(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        unimplemented!("no document runs this")
    }
}

/// Its settings are right.
async fn starts<S: Send + Sync + 'static>(engine: Engine<S>) -> Result<(), Error> {
    engine.stop_handle().stop();
    engine.run_until_stopped().await?;
    Ok(())
}

include!(concat!(env!("OUT_DIR"), "/documents.rs"));
