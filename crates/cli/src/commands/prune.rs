//! `task-engine prune`.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use task_engine::TaskStatus;
use task_engine_core::display::count;
use task_engine_core::filter::Filter;
use task_engine_operations::OperationReport;
use task_engine_operations::prune::{old_entries_text, old_tasks_text};
use task_engine_operations::search::{Search, TIMEOUT};
use task_engine_store::audit::{AuditFilter, check_prune};

use super::tasks;
use crate::args::status_of;
use crate::console::{Console, now};
use crate::error::CliError;
use crate::operations::operator;
use crate::operations::{bar, confirm};
use crate::times::duration;

/// Delete tasks that ended long ago, or old entries of the audit
///
/// Engines delete old successful tasks by themselves (start --retention); this
/// command does it once. A task that waits or runs is never deleted, nor an entry
/// of the audit that is younger than 90 days. This cannot be undone.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Those that ended in this status; `succeeded` means `stopped`
    #[arg(long, value_name = "STATUS", required_unless_present = "audit",
          value_parser = status_of(&ENDED))]
    status: Option<TaskStatus>,
    /// Entries of the audit, instead of tasks
    #[arg(long, conflicts_with = "status")]
    audit: bool,
    /// Those that ended, or were written, at least this long ago
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    older_than: Duration,
    /// Do not ask for confirmation; needed in scripts
    #[arg(long, short)]
    yes: bool,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// The count before the question does not go further.
const COUNT_MAX: u32 = 10_000;

const ENDED: [TaskStatus; 3] = [TaskStatus::Stopped, TaskStatus::Failed, TaskStatus::Cancelled];

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let Some(status) = args.status else { return prune_audit(console, &args).await };
    let store = console.open().await?;
    let what = old_tasks_text(status, args.older_than);
    if !args.yes || args.dry_run {
        let filter = Filter::default().and_status(&[status]).and_unchanged_for(args.older_than);
        let search = Search { filter, before: None, limit: COUNT_MAX, timeout: 5 * TIMEOUT };
        let found = search.run(&*store).await?;
        let at_least = if found.next.is_some() { "at least " } else { "" };
        let number = found.tasks.len();
        if number == 0 && found.next.is_none() {
            console.message(format_args!("There are no {what} on {}.", store.location()));
            return Ok(());
        }
        let sample = &found.tasks[..number.min(5)];
        if !sample.is_empty() {
            console.message(tasks::lines(sample, now().timestamp()));
        }
        console.message(format_args!("Found {at_least}{number} {what}."));
        if args.dry_run {
            console.message("Nothing was done.");
            return Ok(());
        }
        if !confirm("Delete them?")? {
            return Ok(());
        }
    }
    let bar = bar(console, None, "deleted");
    let progress = |deleted| bar.inc(deleted as u64);
    let pruned = operator(&store).prune_tasks(status, args.older_than, &progress).await;
    bar.finish_and_clear();
    print(console, &pruned?, "task")
}

async fn prune_audit(console: &Console, args: &Arguments) -> Result<(), CliError> {
    check_prune(args.older_than).map_err(|error| CliError::Usage(error.to_string()))?;
    let store = console.open().await?;
    let what = old_entries_text(args.older_than);
    if args.dry_run {
        let until = now().timestamp().checked_sub(args.older_than);
        let filter = AuditFilter { until: until.ok(), ..AuditFilter::newest(COUNT_MAX) };
        let number = store.audit_page(&filter).await?.len();
        let at_least = if number == COUNT_MAX as usize { "at least " } else { "" };
        console.message(format_args!("Found {at_least}{number} {what}. Nothing was done."));
        return Ok(());
    }
    if !args.yes && !confirm(&format!("Delete all {what}?"))? {
        return Ok(());
    }
    let bar = bar(console, None, "deleted");
    let progress = |deleted| bar.inc(deleted as u64);
    let pruned = operator(&store).prune_audit(args.older_than, &progress).await;
    bar.finish_and_clear();
    print(console, &pruned?, "entry")
}

fn print(console: &Console, report: &OperationReport, noun: &str) -> Result<(), CliError> {
    let mut out = console.results();
    let number = usize::try_from(report.total()).unwrap_or(usize::MAX);
    writeln!(out, "{} deleted", count(number, noun))?;
    Ok(out.flush()?)
}
