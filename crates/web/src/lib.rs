//! The dashboard and the HTTP API of Task Engine, as an axum router.
//!
//! ```no_run
//! use std::sync::Arc;
//! use task_engine::sqlite::SqliteStore;
//! use task_engine_web::{Access, Dashboard, Role};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Arc::new(SqliteStore::open("tasks.db")?);
//! let tasks = Dashboard::new(store, Access::open_to(Role::Viewer)).base_path("/tasks").router();
//! let application: axum::Router = axum::Router::new().nest_service("/tasks", tasks);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! axum::serve(listener, application).await?;
//! # Ok(()) }
//! ```
//!
//! [`Dashboard`] is what an application sets, [`Access`] who may come in;
//! [`serve`] is for programs that have no server of their own. Everything that a
//! page does, the API does, and both need the same role. Pages read without
//! JavaScript; with it, they stay up to date.
//!
//! # Features
//! - `prometheus`: [`Recorder`], which counts what code in this process measures
//!   through the facade `metrics`, for `/metrics`.

#![cfg_attr(docsrs, feature(doc_cfg))]

// `action` decides nothing about roles, `routes` does, for each route where it is
// declared.
//
// - `dashboard`: what an application sets; `app`: what every request sees;
// - `access`, `session`, `keys`, `guard`: who may come in, and what no request
//   may do; `visible`: what no page does;
// - `routes`: all routes with the role that each needs;
// - `action`: all that changes something, each with its line in the audit;
// - `glance`: what pages share, read once for all of them; `series`: what
//   engines have counted, ready to be drawn;
// - `layout`, `parts`, `chart`, `assets`: what pages are made of;
// - `shown`, `json_tree`: what tasks carry and say, as pages show it;
// - `pages`: one file a page; `api`: the same as JSON; `problem`: what went wrong;
// - `serve`: the router on a socket;
// - `recorder`: what code in this process measures, with the feature `prometheus`.

mod access;
mod action;
mod api;
mod app;
mod assets;
mod chart;
mod dashboard;
mod glance;
mod guard;
mod json_tree;
mod keys;
mod layout;
mod pages;
mod parts;
mod problem;
mod reading;
#[cfg(feature = "prometheus")]
mod recorder;
mod routes;
mod series;
mod serve;
mod session;
mod shown;
mod visible;

pub use access::{Access, Actor, InvalidAccess};
pub use dashboard::Dashboard;
#[cfg(feature = "prometheus")]
pub use recorder::{Recorder, RecorderTaken};
pub use routes::Route;
pub use serve::serve;
#[doc(inline)]
pub use task_engine_store::token::Role;
