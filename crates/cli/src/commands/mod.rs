//! One file a command.

pub(crate) mod bench;
pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod create;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod instances;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod queues;
pub(crate) mod recover;
pub(crate) mod retry;
pub(crate) mod schedules;
pub(crate) mod show;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod tail;
pub(crate) mod tasks;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod verify;
pub(crate) mod wait;
pub(crate) mod why;

use clap::Args;
use task_engine::TaskId;

use crate::exit::Fault;

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

/// How many of the tasks that a command was about it could do nothing for.
#[derive(Debug, Default)]
struct Tally {
    all: usize,
    missing: usize,
    conflicting: usize,
}

impl Tally {
    /// A missing task weighs more: it is a mistake, not a matter of time.
    fn verdict(&self) -> Result<(), Fault> {
        let Self { all, missing, conflicting } = self;
        match (missing, conflicting) {
            (0, 0) => Ok(()),
            (0, _) => Err(Fault::Conflict(format!("nothing was done for {conflicting} of {all}"))),
            _ => Err(Fault::NotFound(format!("{missing} of {all} not found"))),
        }
    }
}
