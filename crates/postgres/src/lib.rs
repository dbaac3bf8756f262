//! Task Engine's ledger on PostgreSQL, in a schema of its own.
//!
//! [`PgStore`] implements the contract of `task_engine_model::Store`. Creation
//! inside a transaction of the application's own is [`Schema::create_in`] (and
//! `Schema::create_in_sqlx` with the feature `sqlx`); from any other language
//! it is the SQL function `task_engine.create_task`.
//!
//! The statements are in `sql/`, each with its reason and the index it uses.
//!
//! # Map
//! - [`schema`]: which schema, and its statements;
//! - `connection`: sockets, on a thread of their own;
//! - `pooler`: what must not be in between;
//! - `migrate`: the tables and their versions;
//! - `create`, `look`, `claim`, `sleep`, `record`, `recover`: the life of a task;
//! - `complete`: its end in a transaction of the application's own;
//! - `schedules`: regular tasks;
//! - `instances`, `operate`, `report`, `read`, `flow`, `listen`: the rest of the
//!   contract;
//! - `audit`, `tokens`, `figures`: what a dashboard needs;
//! - `checks`, `drift`: whether all is well; `export`, `import`: all of it as lines.

mod audit;
mod change;
mod checks;
mod claim;
mod complete;
mod connection;
mod create;
#[cfg(feature = "testing")]
mod created;
mod drift;
mod error;
mod export;
mod failover;
mod figures;
mod flow;
mod import;
mod instances;
mod json;
mod listen;
mod look;
mod migrate;
mod operate;
mod pooler;
mod queues;
mod read;
mod record;
mod recover;
mod report;
mod scan;
mod schedules;
pub mod schema;
mod session;
mod sleep;
mod store;
mod tls;
mod tokens;
mod watch;

pub use schema::Schema;
pub use store::PgStore;
pub use tokio_postgres;

#[cfg(feature = "sqlx")]
pub use sqlx;
