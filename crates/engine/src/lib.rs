//! Task Engine runs the background tasks of Rust applications, which are stored in PostgreSQL or
//! in a file of SQLite.
//!
//! An application creates tasks. Engines, in the same process or in others, execute them, retry
//! them, and record how each attempt ended.
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use task_engine::{Failure, Task, TaskEngine};
//!
//! #[derive(Serialize, Deserialize, Task)]
//! struct Greet { name: String }                                // the stored parameters
//!
//! async fn greet(task: Greet) -> Result<String, Failure> {
//!     Ok(format!("Hello {}!", task.name))                      // the stored result
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let tasks = TaskEngine::connect("sqlite:task-engine.db").await?;   // or postgres://…
//!     tasks.migrate().await?;                                  // creates the tables
//!     tasks.create(Greet { name: "Ada".into() }).await?;
//!     tasks.engine(()).handle(greet).run().await?;             // until SIGTERM or Ctrl-C
//!     Ok(())
//! }
//! ```
//!
//! # Map
//! | to | see |
//! |---|---|
//! | define a task, its retries, timeout, queue and priority | [`Task`], [`#[derive(Task)]`](derive@Task), [`TaskOptions`], [`RetryRule`] |
//! | connect to a database, create, read and cancel tasks | [`TaskEngine`] |
//! | create a task later, in a queue, or with a priority | [`Create`] |
//! | create a task at most once for each key | [`Create::unique`], [`Unique`], [`Scope`], [`OnConflict`] |
//! | create many tasks in one call | [`TaskEngine::create_many`], [`NewTask`] |
//! | create tasks inside your own transaction | [`Create::in_tx`], [`TaskEngine::create_many_in`] |
//! | run tasks after others: flows and batches | [`Flow`], [`Batch`], [`TaskEngine::create_flow`], [`Context::result_of`] |
//! | write what a task does: state, log, progress, children, cancellation | [`Context`] |
//! | fail, retry later, or postpone a task | [`Failure`] |
//! | run an engine: workers, queues, recovery | [`Engine`] |
//! | stop an engine | [`StopHandle`], [`RunningEngine`] |
//! | limit how many run at a time, for each key, and how often they start | [`limit`] |
//! | run tasks regularly | [`Schedule`], [`Engine::schedule`] |
//! | make an effect in your own database happen exactly once | [`complete`], [`Context::complete_in`] |
//! | write processes that last for days and survive crashes | [`durable`], [`Context::step`], [`TaskEngine::signal`] |
//! | put code around executions, or around creation | [`Hook`], [`hooks`], [`CreationHook`] |
//! | test tasks | [`testing`], [`testing::Harness`] |
//! | export metrics and traces | [`hooks::Metrics`], [`otlp`] |
//! | read tasks back, search, repair | [`TaskEngine::get`], [`TaskEngine::list`], [`Store`], [`store`] |
//! | handle errors | [`CreateError`], [`StoreError`], [`EngineError`], [`DependencyError`] |
//!
//! Points in time are [`jiff::Timestamp`]s. [`jiff`] is re-exported, so that an application
//! uses the same version.
//!
//! # Guide
//! The [guide] has one topic on a page:
//!
//! | topic | pages |
//! |---|---|
//! | first steps | [start], [recipes] |
//! | tasks | [writing tasks][writing], [creating tasks][creating], [testing][tests], [retries] |
//! | engines | [running engines][running], [recovery], [deployment] |
//! | operation | [finding and changing tasks][commands], [in production][production] |
//! | design | [how it works][how], [guarantees] when machines fail, [glossary] |
//!
//! The dashboard is the crate [`task-engine-web`], the program `task-engine` is the crate
//! [`task-engine-cli`].
//!
//! [guide]: https://github.com/task-engine/task-engine/blob/main/docs/README.md
//! [start]: https://github.com/task-engine/task-engine/blob/main/docs/start.md
//! [recipes]: https://github.com/task-engine/task-engine/blob/main/docs/recipes.md
//! [writing]: https://github.com/task-engine/task-engine/blob/main/docs/writing-tasks.md
//! [creating]: https://github.com/task-engine/task-engine/blob/main/docs/creating-tasks.md
//! [tests]: https://github.com/task-engine/task-engine/blob/main/docs/testing.md
//! [retries]: https://github.com/task-engine/task-engine/blob/main/docs/retries.md
//! [running]: https://github.com/task-engine/task-engine/blob/main/docs/running.md
//! [recovery]: https://github.com/task-engine/task-engine/blob/main/docs/recovery.md
//! [deployment]: https://github.com/task-engine/task-engine/blob/main/docs/deployment.md
//! [commands]: https://github.com/task-engine/task-engine/blob/main/docs/commands.md
//! [production]: https://github.com/task-engine/task-engine/blob/main/docs/production.md
//! [how]: https://github.com/task-engine/task-engine/blob/main/docs/how-it-works.md
//! [guarantees]: https://github.com/task-engine/task-engine/blob/main/docs/guarantees.md
//! [glossary]: https://github.com/task-engine/task-engine/blob/main/docs/glossary.md
//! [`task-engine-cli`]: https://docs.rs/task-engine-cli
//! [`task-engine-web`]: https://docs.rs/task-engine-web
//!
//! # Features
//! | feature | | what it adds |
//! |---|---|---|
//! | `derive` | default | [`#[derive(Task)]`](derive@Task) |
//! | `engine` | default | engines, which run tasks; without it, an application creates and reads them |
//! | `postgres` | default | tasks in PostgreSQL: [`postgres`] |
//! | `sqlite` | default | tasks in a file of SQLite, which is built in: [`sqlite`] |
//! | `sqlx` | | creation and completion inside a transaction of sqlx 0.9 (not 0.8) on PostgreSQL; needs Rust 1.94, as sqlx does |
//! | `schemars` | | JSON Schemas of the parameters, by `#[derive(JsonSchema)]` of schemars 1: [`Engine::publish_schema`] |
//! | `testing` | | for `[dev-dependencies]`: tests that run tasks, look at what was created, and move the clock: [`testing`] |
//! | `metrics` | | executions and the engine's own work through the facade `metrics`: [`hooks::Metrics`] |
//! | `otlp` | | executions as spans of OpenTelemetry, and an exporter for them: [`otlp`] |
//!
//! Without features, it works with any implementation of [`Store`].

#![cfg_attr(docsrs, feature(doc_cfg))]

// - `tasks`, `create`, `flow`, `transaction`, `pool`, `database_url`, `creation_hook`: what an
//   application without an engine needs;
// - `engine`: the engine and its settings; `session`: one registration of an engine,
//   and how its parts are connected;
// - `lifecycle`: how an engine is started, and its end;
// - `handler`, `context`, `failure`: what a handler sees;
// - `pools`: which workers serve which queues;
// - `dispatch` → `execute` → `record`: the path of a task through an engine;
//   `complete`, `settle`: an end in a transaction of the application;
// - `dependencies`, `members`: what a task of a flow sees of the others;
// - `durable`: steps, sleeps, signals and awaited children; `attempt_handle`: what the parts
//   of one attempt share;
// - `heartbeat`, `admission`, `recover`, `wake_up`, `schedule`, `progress`, `rollup`, `retention`:
//   background work; `stop`: how it ends;
// - `limits`: declares the limits of an engine, and wakes claimers when keys are free;
// - `hook`, `hooks`: code around executions;
// - `measure`: metrics of the engine itself; `trace`, `otlp`: executions as spans.
#[cfg(feature = "engine")]
mod admission;
#[cfg(feature = "engine")]
mod attempt_handle;
#[cfg(feature = "engine")]
mod backoff;
#[cfg(feature = "engine")]
mod claims;
#[cfg(feature = "engine")]
mod classes;
#[cfg(feature = "engine")]
pub mod complete;
#[cfg(feature = "engine")]
mod context;
mod create;
pub mod creation_hook;
mod database_url;
#[cfg(feature = "engine")]
mod dependencies;
#[cfg(feature = "engine")]
mod dispatch;
#[cfg(feature = "engine")]
pub mod durable;
#[cfg(feature = "engine")]
mod engine;
#[cfg(feature = "engine")]
mod engine_error;
#[cfg(feature = "engine")]
mod execute;
#[cfg(feature = "engine")]
mod failure;
mod flow;
#[cfg(feature = "engine")]
mod handler;
#[cfg(feature = "engine")]
mod heartbeat;
#[cfg(feature = "engine")]
mod hook;
#[cfg(feature = "engine")]
pub mod hooks;
#[cfg(feature = "engine")]
mod lifecycle;
pub mod limit;
#[cfg(feature = "engine")]
mod limits;
#[cfg(feature = "engine")]
mod measure;
#[cfg(feature = "engine")]
mod members;
#[cfg(feature = "otlp")]
pub mod otlp;
#[cfg(feature = "engine")]
mod panic;
#[cfg(feature = "postgres")]
mod pool;
#[cfg(feature = "engine")]
mod pools;
#[cfg(feature = "engine")]
mod progress;
#[cfg(feature = "engine")]
mod record;
#[cfg(feature = "engine")]
mod recover;
#[cfg(feature = "engine")]
mod retention;
#[cfg(feature = "engine")]
mod rollup;
#[cfg(feature = "engine")]
mod running;
#[cfg(feature = "engine")]
mod session;
// The tasks of the book: for the command line, the demo, and tests.
#[cfg(feature = "engine")]
#[doc(hidden)]
pub mod samples;
#[cfg(feature = "engine")]
mod schedule;
#[cfg(feature = "engine")]
mod settle;
#[cfg(feature = "engine")]
mod stop;
mod tasks;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "engine")]
mod trace;
mod transaction;
#[cfg(feature = "engine")]
mod wake_up;

/// The crate jiff, whose [`Timestamp`](jiff::Timestamp) is the type of points in time.
#[doc(no_inline)]
pub use jiff;

#[cfg(feature = "engine")]
pub use context::Context;
#[cfg(feature = "engine")]
pub use dependencies::{DependencyError, EndedDependency};
#[cfg(feature = "engine")]
pub use engine::Engine;
#[cfg(feature = "engine")]
pub use engine_error::EngineError;
#[cfg(feature = "engine")]
pub use failure::Failure;
#[cfg(feature = "engine")]
pub use handler::{BlockingHandler, Handler};
#[cfg(feature = "engine")]
pub use hook::Hook;
#[cfg(feature = "engine")]
pub use lifecycle::RunningEngine;
#[cfg(feature = "engine")]
pub use members::AddMembersError;
#[cfg(feature = "engine")]
pub use stop::{StopHandle, Stopped};

pub use crate::creation_hook::{CreationHook, Refusal};
pub use create::{Create, CreateError};
// For the command line.
#[doc(hidden)]
pub use database_url::DatabaseUrl;
pub use flow::FlowTasks;
#[cfg(feature = "postgres")]
pub use pool::CreationPool;
/// The types of tasks, attempts, engines, schedules and searches.
///
/// The root of this crate exports those that applications use every day.
#[doc(no_inline)]
pub use task_engine_core as core;
#[doc(inline)]
pub use task_engine_core::attempt::TaskError;
pub use task_engine_core::dependency::{
    Batch, DependencyCondition, DependencyTarget, Flow, FlowCounts, FlowRow, FlowState,
    IntoDependencies, IntoTask, InvalidFlow,
};
pub use task_engine_core::flow::Origin;
pub use task_engine_core::instance::Recovery;
pub use task_engine_core::json::{InvalidJson, Json};
pub use task_engine_core::progress::LogLevel;
pub use task_engine_core::retry::{RetryOverride, RetryRule};
pub use task_engine_core::schedule::{Missed, Overlap, Schedule};
pub use task_engine_core::step::{SignalReport, SignalStatus, SignalTarget};
pub use task_engine_core::task::{
    Due, InvalidTask, NewTask, Task, TaskId, TaskOptions, TaskStatus,
};
pub use task_engine_core::unique::{Creation, OnConflict, Scope, Unique};
#[cfg(feature = "derive")]
pub use task_engine_macros::Task;
/// The contract that stores implement, and its row types.
#[doc(no_inline)]
pub use task_engine_store as store;
pub use task_engine_store::contract::{CancelReport, Store};
pub use task_engine_store::error::StoreError;
pub use tasks::TaskEngine;
pub use transaction::Transaction;

/// The store on PostgreSQL.
#[cfg(feature = "postgres")]
#[doc(no_inline)]
pub use task_engine_postgres as postgres;
/// The store in a file of SQLite.
#[cfg(feature = "sqlite")]
#[doc(no_inline)]
pub use task_engine_sqlite as sqlite;
