//! The pages about tasks and their errors, as a browser without JavaScript sees
//! them.

#![allow(missing_docs)]

mod errors;
mod forms;
mod hostile;
mod lists;
mod operations;
mod site;
mod steps;
mod task_page;
