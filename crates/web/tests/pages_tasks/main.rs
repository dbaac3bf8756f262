//! The pages about tasks and their errors, as a browser without JavaScript sees
//! them.

#![allow(missing_docs)]

mod actions;
mod errors;
mod forms;
mod hostile;
mod lists;
mod site;
mod task_page;
