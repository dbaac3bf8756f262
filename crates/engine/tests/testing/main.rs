//! What `task_engine::testing` promises to the tests of applications.

mod created;
mod drained;
mod performed;
mod tasks;
mod time;
