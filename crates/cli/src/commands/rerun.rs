//! `task-engine rerun`.

use clap::Args;
use task_engine_operations::OperationOutcome;
use task_engine_operations::tasks::TaskOperation;

use crate::args::FILTERS;
use crate::console::Console;
use crate::error::CliError;
use crate::escape::escape;
use crate::operations::{OutcomeLine, SelectionArgs, change_tasks, operator, print_undo};

/// Create tasks again, with the same class and parameters
///
/// A new task has the class, parameters, queue and priority of the old one, is due at once, and
/// belongs to the same flow. Its context names the old one (`rerun_of`). The old one stays as it
/// is. A filter without a status matches tasks that have ended.
///
/// A new task depends on the new one of each selected task that the old one
/// depended on, and otherwise on the same tasks as the old one. It is skipped if
/// it would be cancelled at once because of them.
///
/// With --from, the new task keeps the steps that the old one recorded before that
/// step: they are not executed again.
#[derive(Debug, Args)]
#[command(after_help = FILTERS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Keep the recorded steps before this one; for one task, by its id. `steps`
    /// lists them
    #[arg(long, value_name = "STEP", conflicts_with_all = ["dry_run", "limit"])]
    from: Option<String>,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    match &args.from {
        Some(step) => rerun_from(console, &args.selection, step).await,
        None => change_tasks(console, TaskOperation::Rerun, &args.selection).await,
    }
}

async fn rerun_from(
    console: &Console,
    selection: &SelectionArgs,
    step: &str,
) -> Result<(), CliError> {
    let Some(id) = selection.one_id()? else {
        return Err(CliError::Usage(
            "--from is for one task: give its id, as in `rerun 7 --from charge`".to_owned(),
        ));
    };
    let store = console.open().await?;
    let report = operator(&store).rerun_from(id, step).await?;
    if selection.json() {
        let created_id = report.task_ids.first().copied();
        let message = report.message;
        console.print_json([OutcomeLine {
            id,
            outcome: OperationOutcome::Rerun,
            message,
            created_id,
        }])?;
    } else {
        console.print(escape(&report.message))?;
    }
    print_undo(console, TaskOperation::Rerun, &report.tasks);
    Ok(())
}
