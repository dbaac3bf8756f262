//! The store of Task Engine on PostgreSQL, in a schema of its own.
//!
//! **Applications do not add this crate**: [`task-engine`] exports it as `task_engine::postgres`.
//! They need it rarely: `TaskEngine::connect(url)` opens a store, and
//! `tasks.create(task).in_tx(&transaction)` creates a task in a transaction of tokio-postgres or
//! sqlx.
//!
//! [`task-engine`]: https://docs.rs/task-engine
//!
//! This example does both without `task-engine`:
//!
//! ```no_run
//! # mod task_engine { pub use task_engine_core::*; pub use task_engine_postgres as postgres; }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use task_engine::postgres::{PgStore, tokio_postgres};
//! use task_engine::{Json, NewTask};
//!
//! let url = "postgres://app@localhost/shop";
//! let store = PgStore::connect(url).await?;
//! store.migrate().await?;
//!
//! // A task that commits or rolls back with the application's own rows.
//! let (mut client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
//! tokio::spawn(connection);
//! let transaction = client.transaction().await?;
//! transaction.execute("INSERT INTO orders (customer) VALUES ('ada')", &[]).await?;
//! let task = NewTask::new("send_mail", Json::parse(r#"{"to": "ada@example.org"}"#)?)?;
//! store.schema().create_in(&transaction, &[task]).await?;
//! transaction.commit().await?;
//! # Ok(()) }
//! ```
//!
//! From any other language, call the SQL function `task_engine.create_task`.
//!
//! # Features
//! - `sqlx`: creation and completion inside a transaction of sqlx;
//! - `testing`: what a transaction has created before it commits.

#![cfg_attr(docsrs, feature(doc_cfg))]

// The statements are in `sql/`, each with its reason and the index it uses.
//
// - `schema`: which schema, and its statements;
// - `hosts`: which of the servers of a URL to connect to;
// - `connection`: sockets, on a thread of their own, and how long to wait on them;
// - `executor`: how a statement is sent, with a pooler and without;
// - `pooler`, `encoding`: what is found out when a store is opened;
// - `migrate`: the tables and their versions;
// - `create`, `claim`, `queue_heads`, `take`, `record`, `recover`: the path of a task;
// - `complete`: its end in a transaction of the application's own;
// - `durable`, `suspend`: steps, signals and awaited children;
// - `schedules`: regular tasks;
// - `rights`: whether an engine may do what it must;
// - `instances`, `task_operations`, `progress`, `read`, `flow`, `listen`: the rest of the
//   contract;
// - `audit`, `tokens`, `rollups`: what a dashboard needs;
// - `checks`, `drift`: whether all is well; `export`, `import`: all of it as lines.
mod activity;
mod audit;
mod checks;
mod claim;
mod complete;
mod connection;
mod create;
#[cfg(feature = "testing")]
mod created;
mod drift;
mod durable;
mod durable_store;
mod encoding;
mod engine_store;
mod error;
mod executor;
mod export;
mod failover;
mod flow;
mod flow_pool;
mod flow_store;
mod flows;
mod hosts;
mod import;
mod instances;
mod json;
mod known_lanes;
mod known_limits;
mod limit_keys;
mod limit_store;
mod limited_claim;
mod limited_lanes;
mod limits;
mod listen;
mod locks;
mod logins;
mod migrate;
mod operator_store;
mod pooler;
mod progress;
mod queue_heads;
mod queues;
mod read;
mod read_store;
mod record;
mod recover;
mod rights;
mod rollups;
mod scan;
mod schedules;
mod schema;
mod store;
mod suspend;
mod take;
mod task_operations;
mod tls;
mod tokens;
mod value;

pub use schema::Schema;
pub use store::PgStore;

/// The driver tokio-postgres, in the version that this crate uses.
#[doc(no_inline)]
pub use tokio_postgres;

/// The pool of connections, in the version that this crate uses.
#[doc(no_inline)]
pub use deadpool_postgres;

/// The driver sqlx, in the version that this crate uses.
#[cfg(feature = "sqlx")]
#[doc(no_inline)]
pub use sqlx;
