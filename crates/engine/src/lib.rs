//! Background tasks for Rust applications, on PostgreSQL or on embedded SQLite:
//! applications create tasks, engines execute them and record how each attempt ended.
//!
//! ```no_run
//! use task_engine::{Failure, Task, TaskEngine};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Greet { name: String }
//! impl Task for Greet { const CLASS: &'static str = "greet"; }
//!
//! async fn greet(task: Greet) -> Result<String, Failure> {
//!     Ok(format!("Hello {}!", task.name)) // any `Serialize` is a result, any error a `Failure`
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let tasks = TaskEngine::connect("sqlite:tasks.db").await?; // or postgres://…
//!     tasks.migrate().await?;
//!     tasks.create(Greet { name: "Ada".into() }).await?;
//!     tasks.engine(()).handle(greet).run().await?; // until SIGTERM or Ctrl-C
//!     Ok(())
//! }
//! ```
//!
//! # What to read next
//! | to | see |
//! |---|---|
//! | define a task, its retries, timeout, queue and priority | [`Task`], [`TaskOptions`], [`RetryRule`] |
//! | create tasks: later, unique, many at once, cancel them | [`TaskEngine`], [`NewTask`], [`Unique`] |
//! | create them inside your own transaction | [`Create::in_tx`], [`TaskEngine::create_many_in`] |
//! | write what a task does: state, log, progress, children, cancellation | [`Context`], [`Failure`] |
//! | run an engine: workers, queues, recovery, stopping | [`Engine`], [`RunningEngine`] |
//! | run tasks regularly | [`Schedule`] |
//! | make an effect in your own database happen exactly once | [`complete`] |
//! | put code around executions, or around creation | [`Hook`], [`hooks`], [`CreationHook`] |
//! | test it | [`testing`] |
//! | read tasks back, search, repair | [`Store`], [`store`] |
//!
//! The [guide] explains more: the guarantees when machines fail, operation, the
//! command line, and the dashboard ([`task-engine-web`]).
//!
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
mod backoff;
mod claims;
mod classes;
pub mod complete;
mod context;
mod create;
pub mod creation_hook;
mod database_url;
mod dispatch;
mod engine;
mod engine_error;
mod execute;
mod failure;
mod handler;
mod heartbeat;
mod hook;
pub mod hooks;
mod lifecycle;
mod measure;
#[cfg(feature = "otlp")]
pub mod otlp;
mod panic;
#[cfg(feature = "postgres")]
mod pool;
mod pools;
mod progress;
mod record;
mod recover;
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
mod tasks;
#[cfg(feature = "testing")]
pub mod testing;
mod trace;
mod transaction;
mod wake_up;

pub use context::Context;
pub use engine::Engine;
pub use engine_error::EngineError;
pub use failure::Failure;
pub use handler::{BlockingHandler, Handler};
pub use hook::Hook;
pub use lifecycle::RunningEngine;
pub use stop::{StopHandle, Stopped};

pub use crate::creation_hook::{CreationHook, Refusal};
pub use create::{Create, CreateError};
pub use database_url::DatabaseUrl;
#[cfg(feature = "postgres")]
pub use pool::CreationPool;
/// The types of tasks, attempts, engines, schedules and searches. The root of this
/// crate exports those that applications use every day.
#[doc(no_inline)]
pub use task_engine_core as core;
#[doc(inline)]
pub use task_engine_core::attempt::TaskError;
pub use task_engine_core::flow::Origin;
pub use task_engine_core::instance::Recovery;
pub use task_engine_core::json::{InvalidJson, Json};
pub use task_engine_core::progress::LogLevel;
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
pub use tasks::TaskEngine;
pub use transaction::Transaction;

/// Tasks in PostgreSQL.
#[cfg(feature = "postgres")]
#[doc(no_inline)]
pub use task_engine_postgres as postgres;
/// Tasks in a file of SQLite.
#[cfg(feature = "sqlite")]
#[doc(no_inline)]
pub use task_engine_sqlite as sqlite;
