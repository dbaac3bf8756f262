//! `task-engine rerun`.

use clap::Args;
use task_engine::{NewTask, Store, TaskId, TaskStatus};

use crate::bulk::{self, Action, Choice, Outcome, id_words};
use crate::choice::FILTERS;
use crate::console::Console;
use crate::database::OpenMode;
use crate::error::CliError;

/// Create tasks again, with the same class and parameters
///
/// A new task has the class, parameters, queue and priority of the old one, is due
/// at once, and belongs to the same flow; its context names the old one
/// (`rerun_of`). The old one stays as it is. A filter without a status matches
/// tasks that have ended.
#[derive(Debug, Args)]
#[command(after_help = FILTERS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    args.choice.chosen()?;
    let store = console.database()?.open(OpenMode::MustExist).await?;
    bulk::run(console, &*store, &args.choice, &mut Rerun::default()).await.map(|_| ())
}

#[derive(Default)]
struct Rerun {
    created: Vec<TaskId>,
}

impl Action for Rerun {
    const VERB: &'static str = "rerun";
    const STATUSES: &'static [TaskStatus] =
        &[TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled];

    async fn apply(&mut self, store: &dyn Store, ids: &[TaskId]) -> Result<Vec<Outcome>, CliError> {
        let mut outcomes = Vec::with_capacity(ids.len());
        let mut tasks = Vec::new();
        for id in ids {
            outcomes.push(match store.task(*id).await? {
                None => Outcome::missing(),
                Some(old) => match NewTask::rerun_of(&old) {
                    Ok(task) => {
                        tasks.push((outcomes.len(), task));
                        Outcome::done("is done once more")
                    }
                    Err(_) => Outcome::conflict("cannot be created again as it is"),
                },
            });
        }
        let (places, tasks): (Vec<_>, Vec<_>) = tasks.into_iter().unzip();
        let created = store.create(&tasks).await?;
        for (place, id) in places.into_iter().zip(&created) {
            outcomes[place] = outcomes[place].clone().and(format!(" as task {id}"));
        }
        self.created.extend(created);
        Ok(outcomes)
    }

    fn undo(&self, _: &[TaskId]) -> Option<String> {
        Some(format!("cancel {}", id_words(&self.created)))
    }
}
