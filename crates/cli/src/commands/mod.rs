//! One file a command.

pub(crate) mod bench;
pub(crate) mod cancel;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod edit;
pub(crate) mod errors;
pub(crate) mod instances;
pub(crate) mod logs;
pub(crate) mod migrate;
pub(crate) mod prune;
pub(crate) mod queues;
pub(crate) mod recover;
pub(crate) mod rerun;
pub(crate) mod retry;
pub(crate) mod schedules;
pub(crate) mod show;
pub(crate) mod start;
pub(crate) mod tasks;
pub(crate) mod trace;
