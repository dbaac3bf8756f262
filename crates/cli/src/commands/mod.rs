//! One file a command.

pub(crate) mod audit;
pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod classes;
pub(crate) mod completions;
pub(crate) mod create;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod edit;
pub(crate) mod errors;
pub(crate) mod export;
pub(crate) mod flow;
pub(crate) mod import;
pub(crate) mod instances;
pub(crate) mod limits;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod prune;
pub(crate) mod queues;
pub(crate) mod recover;
pub(crate) mod rerun;
pub(crate) mod schedules;
pub(crate) mod show;
pub(crate) mod signal;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod steps;
pub(crate) mod tail;
pub(crate) mod tasks;
pub(crate) mod tokens;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod types;
pub(crate) mod verify;
pub(crate) mod wait;
pub(crate) mod web;
pub(crate) mod why;

use clap::Args;
use task_engine::TaskId;

/// The tasks that a command is about.
#[derive(Debug, Args)]
pub(crate) struct TaskIds {
    /// The tasks, by their ids
    #[arg(required = true, value_name = "ID", allow_negative_numbers = true)]
    ids: Vec<TaskId>,
}

impl TaskIds {
    /// Each once, in the order given.
    fn each_once(self) -> Vec<TaskId> {
        let mut seen = std::collections::HashSet::new();
        self.ids.into_iter().filter(|id| seen.insert(*id)).collect()
    }
}
