//! The dashboard and the HTTP API of Task Engine, as an axum router.
//!
//! ```no_run
//! use task_engine::sqlite::SqliteStore;
//! use task_engine_web::{Access, Dashboard, Role};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let store = SqliteStore::open("tasks.db")?;
//! let tasks = Dashboard::new(store, Access::open_to(Role::Viewer)).base_path("/tasks").router();
//! let application: axum::Router = axum::Router::new().nest_service("/tasks", tasks);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! axum::serve(listener, application).await?;
//! # Ok(()) }
//! ```
//!
//! An application that serves the dashboard adds this crate beside `task-engine`. [`Dashboard`]
//! holds the settings, and [`Access`] decides which users have access. [`serve`] is for programs
//! without a server of their own. Pages and API offer the same operations and need the same roles.
//! Pages work without JavaScript; with it, they update themselves.
//!
//! # Features
//! - `prometheus`: [`Recorder`], which exports metrics of this process (facade
//!   `metrics`) on `/metrics`.

#![cfg_attr(docsrs, feature(doc_cfg))]

// Roles are checked in `routes` only, where each route is declared.
//
// - `dashboard`: the settings of an application; `app`: the state of all requests;
// - `access`, `session`, `keys`, `guard`: authentication and request checks;
//   `visible`: escapes invisible characters on all pages;
// - `routes`: all routes with the role that each needs;
// - `operation`: all operations, each with its audit entry;
// - `redacted_reads`: reads without secrets; `cache`: reads that pages share; `series`: rollups as steps of a chart;
// - `layout`, `parts`, `chart`, `json_tree`, `assets`: building blocks of pages;
// - `pages`: one file a page; `api`: the HTTP API; `error`: errors of both;
// - `serve`: the router on a socket;
// - `recorder`: metrics of this process, with the feature `prometheus`.

mod access;
mod api;
mod app;
mod assets;
mod cache;
mod chart;
mod dashboard;
mod error;
mod guard;
mod json_tree;
mod keys;
mod layout;
mod operation;
mod pages;
mod parts;
#[cfg(feature = "prometheus")]
mod recorder;
mod redacted_reads;
mod routes;
mod series;
mod serve;
mod session;
mod visible;

pub use access::{Access, Actor, InvalidAccess};
pub use dashboard::Dashboard;
#[cfg(feature = "prometheus")]
pub use recorder::{Recorder, RecorderTaken};
pub use routes::Route;
pub use serve::serve;
#[doc(inline)]
pub use task_engine_store::token::Role;
