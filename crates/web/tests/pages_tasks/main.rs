//! The pages about tasks and their errors, as a browser without JavaScript sees
//! them.

#![allow(missing_docs)]

mod acts;
mod errors;
mod forms;
mod hostile;
mod lists;
mod one;
mod site;
