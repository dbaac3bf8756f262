//! The store of Task Engine on embedded SQLite: one file and no server, with the same guarantees.
//!
//! **Applications do not add this crate**: [`task-engine`] exports it as `task_engine::sqlite`.
//! They need it rarely: `TaskEngine::connect("sqlite:app.db")` opens a store, and
//! `tasks.create(task).in_tx(&transaction)` creates a task in a transaction of rusqlite.
//!
//! [`task-engine`]: https://docs.rs/task-engine
//!
//! This example does both without `task-engine`:
//!
//! ```no_run
//! # mod task_engine { pub use task_engine_core::*; pub use task_engine_sqlite as sqlite; }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use task_engine::sqlite::{SqliteStore, create_in, rusqlite};
//! use task_engine::{Json, NewTask};
//!
//! let store = SqliteStore::open("app.db")?;
//! store.migrate().await?;
//!
//! // A task of its own …
//! let task = NewTask::new("send_mail", Json::parse(r#"{"to": "ada@example.org"}"#)?)?;
//! store.create(std::slice::from_ref(&task)).await?;
//!
//! // … or one that commits or rolls back with the application's own rows.
//! let mut connection = rusqlite::Connection::open("app.db")?;
//! let transaction = connection.transaction()?;
//! transaction.execute("INSERT INTO orders (customer) VALUES ('ada')", [])?;
//! create_in(&transaction, &[task])?;
//! transaction.commit()?;
//! # Ok(()) }
//! ```
//!
//! In SQL, create a task by
//! `INSERT INTO task_engine_tasks (task_class, task_parameters) VALUES (…)`.
//!
//! # Limits
//! One process writes at a time, and each commit waits for the disk. Many processes on one machine
//! may share a file; do not put it on a network drive, as the manual of SQLite says.
//!
//! # Features
//! - `testing`: a clock that can be moved on, and what a transaction has created
//!   before it commits.

#![cfg_attr(docsrs, feature(doc_cfg))]

// - `connection`: opens the file, and says what is wrong with it;
// - `connection_thread`: the threads that own the connections; jobs go in, answers come out;
// - `writer`: many jobs, one commit;
// - `savepoint`: calls in a transaction of the application's own;
// - `complete`: the end of an attempt in such a transaction;
// - `steps`, `signals`, `suspend`: durable tasks;
// - `flows`, `dependents`, `restore`, `dependencies`: tasks that depend on others;
// - `migrate`, `create`, `unique`, `claim`, `ending`, `record`, `recover`,
//   `instances`, `task_operations`, `queues`, `schedules`, `progress`, `read`, `flow`,
//   `verify`, `checks`, `audit`, `tokens`,
//   `rollups`, `export`, `import`: what the jobs do, each with its SQL in `sql/`;
// - `limits`, `limit_changes`, `limit_keys`, `limited_lanes`, `limited_claim`,
//   `limited_pick`, `limit_usage`: limits, and claims that respect them;
// - `listen`: wake-ups, within the process and across processes;
// - `clock`, `created`: for tests, with the feature `testing`.

/// A statement of a file in `sql/`, by its name.
macro_rules! sql {
    ($file:literal, $name:literal) => {
        const {
            task_engine_store::sql::statement(
                include_str!(concat!("../sql/", $file, ".sql")),
                $name,
            )
        }
    };
}

mod activity;
mod audit;
mod checks;
mod claim;
#[cfg(feature = "testing")]
mod clock;
mod complete;
mod connection;
mod connection_thread;
mod create;
#[cfg(feature = "testing")]
mod created;
mod dependencies;
mod dependents;
mod durable_store;
mod ending;
mod engine_store;
mod error;
mod export;
mod flow;
mod flow_store;
mod flows;
mod import;
mod instances;
mod lane;
mod limit_changes;
mod limit_keys;
mod limit_store;
mod limit_usage;
mod limited_claim;
mod limited_lanes;
mod limited_pick;
mod limits;
mod listen;
mod logins;
mod migrate;
mod moment;
mod operator_store;
mod progress;
mod queues;
mod read;
mod read_store;
mod record;
mod recover;
mod restore;
mod rollups;
mod savepoint;
mod scan;
mod schedules;
mod signals;
mod steps;
mod store;
mod suspend;
mod task_operations;
mod tokens;
mod unique;
mod value;
mod verify;
mod writer;

pub use complete::complete_in;
pub use create::{create_each_in, create_in};
#[cfg(feature = "testing")]
pub use created::created_in;
pub use flows::create_flow_in;
/// The driver rusqlite, in the version that this crate uses.
#[doc(no_inline)]
pub use rusqlite;
pub use signals::signal_in;
pub use steps::{record_step_in, recorded_step_in};
pub use store::SqliteStore;
