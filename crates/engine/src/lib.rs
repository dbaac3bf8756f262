//! Background tasks for Rust applications, on PostgreSQL or on embedded SQLite:
//! applications create tasks, engines execute them and record how each attempt ended.
//!
//! ```no_run
//! use std::sync::Arc;
//! use task_engine::{Client, Engine, Failure, Context, Task, sqlite::SqliteStore};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Greet { name: String }
//! impl Task for Greet { const CLASS: &'static str = "greet"; }
//!
//! async fn greet(task: Greet, cx: Context<()>) -> Result<usize, Failure> {
//!     cx.log(format!("Hello {}", task.name));
//!     Ok(task.name.len()) // any `Serialize` is a result, any error a `Failure`
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let store = Arc::new(SqliteStore::open("tasks.db")?);
//!     let engine = Engine::new(store.clone(), ()).handle(greet);
//!     engine.migrate().await?;
//!     Client::new(store).create(Greet { name: "Ada".into() }).await?;
//!     engine.run().await?; // until SIGTERM or Ctrl-C
//!     Ok(())
//! }
//! ```
//!
//! # What to read next
//! | to | see |
//! |---|---|
//! | define a task, its retries, timeout, queue and priority | [`Task`], [`TaskOptions`], [`RetryRule`] |
//! | create tasks: later, unique, many at once, cancel them | [`Client`], [`NewTask`], [`Unique`] |
//! | create them inside your own transaction | [`Schema::create_in`], [`sqlite::create_in`], [`Client::prepare`] |
//! | write what a task does: state, log, progress, children, cancellation | [`Context`], [`Failure`] |
//! | run an engine: workers, queues, recovery, stopping | [`Engine`], [`StopHandle`] |
//! | run tasks regularly | [`Schedule`] |
//! | make an effect in your own database happen exactly once | [`complete`] |
//! | put code around executions, or around creation | [`Hook`], [`hooks`], [`CreationHook`] |
//! | test it | [`testing`] |
//! | read tasks back, search, repair | [`Store`], [`store`] |
//!
//! The [guide] explains more: the guarantees when machines fail, operation, the
//! command line, and the dashboard ([`task-engine-web`]).
//!
//! [`Schema::create_in`]: postgres::Schema::create_in
//! [guide]: https://github.com/task-engine/task-engine/tree/main/docs
//! [`task-engine-web`]: https://docs.rs/task-engine-web
//!
//! # Features
//! | feature | | what it adds |
//! |---|---|---|
//! | `derive` | default | [`#[derive(Task)]`](derive@Task) |
//! | `postgres` | default | tasks in PostgreSQL: [`postgres`] |
//! | `sqlite` | default | tasks in a file of SQLite, which is built in: [`sqlite`] |
//! | `sqlx` | | creation and completion inside a transaction of sqlx 0.9 (not 0.8) on PostgreSQL; needs Rust 1.94, as sqlx does |
//! | `testing` | | for `[dev-dependencies]`: tests that run tasks, look at what was created, and move the clock: [`testing`] |
//! | `metrics` | | executions and the engine's own work through the facade `metrics`: [`hooks::Metrics`] |
//! | `otlp` | | executions as spans of OpenTelemetry, and an exporter for them: [`otlp`] |
//!
//! Without any of them, it runs on whatever implements [`Store`].

#![cfg_attr(docsrs, feature(doc_cfg))]

// - `engine`: the engine and its settings; `session`: one registration of an engine,
//   and how its parts are connected;
// - `handler`, `run`, `failure`: what a handler sees;
// - `pools`: which workers serve which queues;
// - `dispatch` → `execute` → `record`: the path of a task through an engine;
//   `complete`, `settle`: an end in a transaction of the application;
// - `heartbeat`, `admission`, `wake_up`, `schedule`, `report`, `rollup`, `retention`:
//   background work; `stop`: how it ends;
// - `hook`, `hooks`: code around executions;
// - `measure`: metrics of the engine itself; `trace`, `otlp`: executions as spans.
mod admission;
pub mod client;
pub mod complete;
mod context;
pub mod creation_hook;
mod dispatch;
mod engine;
mod execute;
mod failure;
mod handler;
mod heartbeat;
mod hook;
pub mod hooks;
mod measure;
#[cfg(feature = "otlp")]
pub mod otlp;
mod panic;
mod pools;
mod record;
mod report;
mod retention;
mod rollup;
mod running;
mod session;
// The tasks of the book: for the command line, the demo, and tests.
#[doc(hidden)]
pub mod samples;
mod schedule;
mod settle;
mod stop;
#[cfg(feature = "testing")]
pub mod testing;
mod trace;
mod wake_up;

pub use context::Context;
pub use engine::{Engine, EngineError};
pub use failure::Failure;
pub use hook::Hook;
pub use stop::{StopHandle, Stopped};

pub use crate::client::{Client, Create, CreateError};
pub use crate::creation_hook::{CreationHook, Refusal};
/// The types of tasks, attempts, engines, schedules and searches. The root of this
/// crate exports those that applications use every day.
#[doc(no_inline)]
pub use task_engine_core as core;
#[doc(inline)]
pub use task_engine_core::attempt::TaskError;
pub use task_engine_core::flow::Origin;
pub use task_engine_core::instance::Recovery;
pub use task_engine_core::json::{InvalidJson, Json};
pub use task_engine_core::report::LogLevel;
pub use task_engine_core::retry::{RetryOverride, RetryRule};
pub use task_engine_core::schedule::{Missed, Overlap, Schedule};
pub use task_engine_core::task::{
    Due, InvalidTask, NewTask, Task, TaskId, TaskOptions, TaskStatus,
};
pub use task_engine_core::unique::{Creation, OnConflict, Scope, Unique};
#[cfg(feature = "derive")]
pub use task_engine_macros::Task;
/// The contract of stores, and its rows.
#[doc(no_inline)]
pub use task_engine_store as store;
pub use task_engine_store::contract::{
    CancelReport, EngineStore, OperatorStore, ReadStore, Store, StoreBase,
};
pub use task_engine_store::error::StoreError;

/// Tasks in PostgreSQL.
#[cfg(feature = "postgres")]
#[doc(no_inline)]
pub use task_engine_postgres as postgres;
/// Tasks in a file of SQLite.
#[cfg(feature = "sqlite")]
#[doc(no_inline)]
pub use task_engine_sqlite as sqlite;
