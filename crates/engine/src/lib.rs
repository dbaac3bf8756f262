//! A task engine: applications create tasks, engines execute them.
//!
//! ```no_run
//! use std::sync::Arc;
//! use serde::{Deserialize, Serialize};
//! use task_engine::{Client, Engine, Failure, Run, Task, sqlite::SqliteStore};
//!
//! #[derive(Serialize, Deserialize)]
//! struct SendMail { to: String }
//!
//! impl Task for SendMail {
//!     const CLASS: &'static str = "send_mail";
//! }
//!
//! struct App { sender: String }
//!
//! async fn send_mail(mail: SendMail, run: Run<App>) -> Result<String, Failure> {
//!     if mail.to.is_empty() {
//!         return Err(Failure::no_retry("nobody to send to"));
//!     }
//!     Ok(format!("from {} to {}", run.sender, mail.to)) // any Serialize: the result
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let store = Arc::new(SqliteStore::open("tasks.db")?);
//!     let client = Client::new(store.clone());
//!     let engine = Engine::new(store, App { sender: "me".into() }).handle(send_mail);
//!     engine.migrate().await?;
//!     client.create(SendMail { to: "you".into() }).await?;
//!     engine.run().await?; // until SIGTERM or SIGINT
//!     Ok(())
//! }
//! ```
//!
//! # Map
//! - [`engine`]: the engine and its settings;
//! - [`handler`], [`run`], [`failure`]: what a task's code sees;
//! - `life`: from registration to the end, and again if it was declared lost;
//! - `pools`: which workers take from which queues;
//! - `dispatch` → `execute` → `record`: the path of a task through an engine, at its `workplace`;
//! - [`complete`], `settle`: an end in a transaction of the application's own;
//! - `heartbeat`, `admission`, `wake_up`, `schedule`, `report`, `figures`, `retention`: what goes
//!   on beside it;
//! - [`stop`]: how an engine ends;
//! - [`samples`]: the four tasks of the book;
//! - [`hook`], [`hooks`], [`extensions`]: code around executions;
//! - `testing`: for the tests of applications, with the feature `testing`;
//! - `measure`: the engine's own work as metrics, with the feature `metrics`;
//! - `trace`: executions as spans; with the feature `otlp`, `otlp`: to OpenTelemetry.

mod admission;
pub mod complete;
mod dispatch;
pub mod engine;
mod execute;
pub mod extensions;
pub mod failure;
mod figures;
pub mod handler;
mod heartbeat;
pub mod hook;
pub mod hooks;
mod life;
mod measure;
#[cfg(feature = "otlp")]
pub mod otlp;
mod panic;
mod pools;
mod process;
mod record;
mod report;
mod retention;
pub mod run;
mod running;
pub mod samples;
mod schedule;
mod settle;
pub mod stop;
#[cfg(feature = "testing")]
pub mod testing;
mod trace;
mod wake_up;
mod workplace;

pub use engine::{Engine, EngineError};
pub use failure::Failure;
pub use hook::Hook;
pub use process::{default_instance, process_is_gone};
pub use run::Run;
pub use stop::{StopHandle, Stopped};
pub use task_engine_model as model;
pub use task_engine_model::instance::Recovery;
pub use task_engine_model::report::LogLevel;
pub use task_engine_model::store::CancelReport;
pub use task_engine_model::{
    ClassRules, Client, Json, Missed, NewTask, Overlap, RetryRule, Schedule, Store, StoreError,
    Task, TaskId, TaskStatus,
};
pub use task_engine_model::{Creation, CreationHook, OnConflict, Refusal, Scope, Unique};

#[cfg(feature = "postgres")]
pub use task_engine_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use task_engine_sqlite as sqlite;
