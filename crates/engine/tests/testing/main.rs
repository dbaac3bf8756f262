//! What `task_engine::testing` promises to the tests of applications.

mod created;
mod drained;
mod durable;
mod flows;
mod limits;
mod performed;
mod tasks;
mod time;
