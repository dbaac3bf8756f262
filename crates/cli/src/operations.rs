//! What commands that change something share: the user who types them as the operator, and the
//! steps of commands that change many tasks.
//!
//! These steps are: show the selection, ask, apply it in batches, print the outcome of each task.

use std::collections::BTreeMap;
use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::Arc;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use task_engine::{Store, TaskId};
use task_engine_core::ParseError;
use task_engine_core::display::{capitalize, count};
use task_engine_core::process::host_name;
use task_engine_core::task::NAME_BYTES_MAX;
use task_engine_operations::report::{OperationOutcome, OutcomeKind, TaskOutcome};
use task_engine_operations::tasks::{BATCH, FindOptions, SelectedTasks, Selection, TaskOperation};
use task_engine_operations::{Actor, OperationError, Operator};
use task_engine_store::token::{Role, TERMINAL};

use crate::args::filter;
use crate::commands::tasks;
use crate::console::{Console, now};
use crate::error::CliError;
use crate::json_output::write_json_line;

/// Performs operations on this store; the audit has them as `terminal:user@host`.
pub(crate) fn operator(store: &Arc<dyn Store>) -> Operator {
    Operator::new(Arc::clone(store), Actor::new(user(), Role::Admin))
}

/// The user, as far as the system knows.
fn user() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let user = user.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()));
    let mut name = String::new();
    for c in format!("{TERMINAL}{user}@{}", host_name()).chars() {
        if !c.is_control() && name.len() + c.len_utf8() <= NAME_BYTES_MAX {
            name.push(c);
        }
    }
    name
}

/// Which tasks, and how.
#[derive(Debug, Args)]
pub(crate) struct SelectionArgs {
    /// The tasks: their ids, or a filter like status=failed class=send_mail
    #[arg(required = true, value_name = "ID|FILTER", allow_negative_numbers = true)]
    tasks: Vec<String>,
    /// The reason, for the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Do it without asking; needed in scripts
    #[arg(long, short)]
    yes: bool,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON, one task a line
    #[arg(long, visible_alias = "jsonl")]
    json: bool,
    /// With a filter: no more than so many, the newest first
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
}

/// What a command did to its tasks.
pub(crate) struct BulkResult {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) tasks: Vec<TaskOutcome>,
    /// Whether all of it was done, for the exit code.
    pub(crate) verdict: Result<(), CliError>,
}

/// So many tasks are shown before the question.
const SAMPLE: usize = 5;
/// More tasks than this are printed in groups, unless they were named.
const LINES_MAX: usize = 50;
/// An undo names no more tasks than this.
const UNDO_MAX: usize = 50;

/// Changes tasks, and says by the exit code whether all of it was done.
pub(crate) async fn change_tasks(
    console: &Console,
    operation: TaskOperation,
    args: &SelectionArgs,
) -> Result<(), CliError> {
    change(console, operation, args).await?.verdict
}

/// Changes tasks, and returns what became of each.
pub(crate) async fn change(
    console: &Console,
    operation: TaskOperation,
    args: &SelectionArgs,
) -> Result<BulkResult, CliError> {
    // Read before a database is opened: a mistake changes nothing.
    let selection = args.selection()?;
    let store = console.open().await?;
    let operator = operator(&store).reason(args.reason.as_deref());
    let must_look_up_ids = operation == TaskOperation::Delete || args.dry_run;
    let selected = match &selection {
        Selection::Ids(ids) if !must_look_up_ids => SelectedTasks::of_ids(ids),
        _ => {
            let bar = bar(console, None, "found");
            let options = FindOptions {
                limit: args.limit_of(&selection),
                sample: if args.dry_run && args.json { usize::MAX } else { LINES_MAX },
                timeout: None,
                progress: &|found| bar.inc(found as u64),
            };
            let found = operator.find(operation, &selection, options).await?;
            bar.finish_and_clear();
            if !ask(console, args, operation, &found, &selection)? {
                return Ok(BulkResult { store, tasks: Vec::new(), verdict: Ok(()) });
            }
            match &selection {
                Selection::Ids(ids) => SelectedTasks::of_ids(ids),
                Selection::Filter(_) => found,
            }
        }
    };
    let bar = bar(console, Some(selected.ids.len()), operation.as_str());
    let applied = operator.apply(operation, &selected, &|done| bar.inc(done as u64)).await;
    bar.finish_and_clear();
    let (tasks, verdict) = match applied {
        Ok(report) => {
            let verdict = verdict(&report.tasks, selected.named);
            (report.tasks, verdict)
        }
        Err(OperationError::Partial { report, left, cause }) => {
            let tasks = report.tasks.clone();
            (tasks, Err(OperationError::Partial { report, left, cause }.into()))
        }
        Err(error) => return Err(error.into()),
    };
    if tasks.is_empty() {
        let target = &selected.target;
        console.message(format_args!("No tasks match {target} on {}.", store.location()));
    }
    print(console, &tasks, selected.named, args.json)?;
    print_undo(console, operation, &tasks);
    Ok(BulkResult { store, tasks, verdict })
}

impl SelectionArgs {
    /// Ids if a word looks like one, else a filter.
    fn selection(&self) -> Result<Selection, CliError> {
        let words = &self.tasks;
        let is_id = |word: &String| word.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        if !words.iter().any(is_id) {
            return Ok(Selection::Filter(filter(words)?));
        }
        let ids = words.iter().map(|word| {
            if !is_id(word) {
                return Err(CliError::Usage(format!(
                    "{word:?} is not an id; give ids or a filter, as in id=7,9 {word}"
                )));
            }
            word.parse().map_err(|bad: ParseError| CliError::Usage(bad.into()))
        });
        Ok(Selection::Ids(ids.collect::<Result<_, _>>()?))
    }

    /// Whether the output is JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// The one task that is named by its id.
    pub(crate) fn one_id(&self) -> Result<Option<TaskId>, CliError> {
        Ok(match self.selection()? {
            Selection::Ids(ids) if ids.len() == 1 => ids.first().copied(),
            _ => None,
        })
    }

    fn limit_of(&self, selection: &Selection) -> usize {
        match selection {
            Selection::Ids(ids) => ids.len(),
            Selection::Filter(_) => self.limit as usize,
        }
    }
}

/// Shows the selection, and asks. True if it is to be done.
fn ask(
    console: &Console,
    args: &SelectionArgs,
    operation: TaskOperation,
    found: &SelectedTasks,
    selection: &Selection,
) -> Result<bool, CliError> {
    let all = match selection {
        Selection::Ids(ids) => SelectedTasks::of_ids(ids).ids.len(),
        Selection::Filter(_) => found.ids.len(),
    };
    let more = if found.and_more { "; there may be more, for another run" } else { "" };
    let number = count(all, "task");
    if args.dry_run {
        print_selection(console, found, args.json)?;
        let verb = operation.as_str();
        console.message(format_args!("Would {verb} {number}{more}; nothing was done."));
        return Ok(false);
    }
    if args.yes || all == 0 {
        return Ok(true);
    }
    let sample = &found.sample[..found.sample.len().min(SAMPLE)];
    if !sample.is_empty() {
        console.message(tasks::lines(sample, now().timestamp()));
        let hidden = all.saturating_sub(sample.len());
        if hidden > 0 {
            console.message(format_args!("… and {hidden} more{more}"));
        }
    }
    confirm(&format!("{} {number}?", capitalize(operation.as_str())))
}

fn print_selection(console: &Console, found: &SelectedTasks, json: bool) -> Result<(), CliError> {
    let mut out = console.results();
    if json {
        tasks::write_json(&mut out, &found.sample)?;
    } else if !found.sample.is_empty() {
        writeln!(out, "{}", tasks::lines(&found.sample, now().timestamp()))?;
        let hidden = found.ids.len() - found.sample.len();
        if hidden > 0 {
            writeln!(out, "… and {hidden} more")?;
        }
    }
    Ok(out.flush()?)
}

/// Asks on a terminal. Elsewhere, --yes must have been passed.
pub(crate) fn confirm(question: &str) -> Result<bool, CliError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CliError::Usage(format!(
            "{question} Not a terminal: pass --yes to confirm, or --dry-run to see what would be done. Nothing was changed"
        )));
    }
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    let yes = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    if !yes {
        let _ = writeln!(io::stderr(), "Nothing was changed.");
    }
    Ok(yes)
}

/// A bar on a terminal, and nothing elsewhere.
pub(crate) fn bar(console: &Console, length: Option<usize>, what: &'static str) -> ProgressBar {
    if !console.may_animate() || length.is_some_and(|length| length <= BATCH) {
        return ProgressBar::hidden();
    }
    let (bar, style) = match length {
        Some(length) => (ProgressBar::new(length as u64), "{msg} {bar:30} {pos}/{len} ({eta})"),
        None => (ProgressBar::new_spinner(), "{spinner} {pos} {msg}"),
    };
    let style = ProgressStyle::with_template(style);
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.with_message(what)
}

#[derive(Serialize)]
pub(crate) struct OutcomeLine {
    pub(crate) id: TaskId,
    pub(crate) outcome: OperationOutcome,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created_id: Option<TaskId>,
}

fn print(
    console: &Console,
    tasks: &[TaskOutcome],
    named: bool,
    json: bool,
) -> Result<(), CliError> {
    let mut out = console.results();
    if json {
        for task in tasks {
            let TaskOutcome { id, outcome, created: created_id } = *task;
            let line = OutcomeLine { id, outcome, message: sentence(task), created_id };
            write_json_line(&mut out, &line)?;
        }
    } else if named || tasks.len() <= LINES_MAX {
        for task in tasks {
            writeln!(out, "{}", sentence(task))?;
        }
    } else {
        let mut groups: BTreeMap<OperationOutcome, u64> = BTreeMap::new();
        for task in tasks {
            *groups.entry(task.outcome).or_default() += 1;
        }
        for (outcome, number) in groups {
            writeln!(out, "{}", outcome.counted(number))?;
        }
    }
    Ok(out.flush()?)
}

/// What became of one task, like `task 7 was created again as task 9`.
fn sentence(TaskOutcome { id, outcome, created }: &TaskOutcome) -> String {
    let created = created.map_or_else(String::new, |id| format!(" as task {id}"));
    format!("task {id} {}{created}", outcome.text())
}

/// Prints the command that undoes it, if there is one.
pub(crate) fn print_undo(console: &Console, operation: TaskOperation, tasks: &[TaskOutcome]) {
    let (to, undo, undone) = match operation {
        // They have failed, and would be cancelled. Not a task that waited for a later time:
        // `cancel` would end it.
        TaskOperation::Retry => ("To stop what was retried", "cancel", OperationOutcome::Retried),
        // A running task is not cancelled yet, and may never be.
        TaskOperation::Cancel => ("To undo it", "retry", OperationOutcome::Cancelled),
        TaskOperation::Rerun => ("To undo it", "cancel", OperationOutcome::Rerun),
        TaskOperation::Delete => return,
    };
    let undone = tasks.iter().filter(|task| task.outcome == undone);
    let ids: Vec<_> = undone.map(|task| task.created.unwrap_or(task.id).to_string()).collect();
    if !ids.is_empty() && ids.len() <= UNDO_MAX {
        let undo = console.command(&format!("{undo} {}", ids.join(" ")));
        console.message(format_args!("{to}: {undo}"));
    }
}

/// Decides how the command ends.
///
/// A named task that does not exist is an error of the user, so it counts more than one in another
/// state. Tasks that a filter found may have changed since.
fn verdict(tasks: &[TaskOutcome], named: bool) -> Result<(), CliError> {
    let of_kind = |kind| tasks.iter().filter(|task| task.outcome.kind() == kind).count();
    let all = tasks.len();
    let (missing, skipped) = (of_kind(OutcomeKind::Missing), of_kind(OutcomeKind::Skipped));
    match (missing, skipped) {
        (0, 0) => Ok(()),
        (0, _) if named || skipped == all => {
            Err(CliError::Conflict(format!("skipped {skipped} of {}", count(all, "task"))))
        }
        (_, _) if named => {
            Err(CliError::NotFound(format!("not found: {missing} of {}", count(all, "task"))))
        }
        _ => Err(CliError::Partial(format!(
            "skipped {} of {}: they have changed meanwhile",
            missing + skipped,
            count(all, "task")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use task_engine_core::filter::Filter;

    use super::*;

    fn read(words: &[&str]) -> Result<Selection, String> {
        let tasks = words.iter().map(|word| (*word).to_owned()).collect();
        let args = SelectionArgs {
            tasks,
            reason: None,
            yes: false,
            dry_run: false,
            json: false,
            limit: 1,
        };
        args.selection().map_err(|fault| fault.to_string())
    }

    #[test]
    fn selects_ids_or_a_filter() {
        assert_eq!(read(&["3", "1"]), Ok(Selection::Ids(vec![TaskId(3), TaskId(1)])));
        let filter = |it: Selection| match it {
            Selection::Filter(filter) => Filter::to_string(&filter),
            Selection::Ids(_) => panic!("ids"),
        };
        assert_eq!(read(&["status=failed", "id>3"]).map(filter), Ok("status=failed id>3".into()));
        assert!(read(&["3", "status=failed"]).unwrap_err().contains("is not an id"));
        assert!(read(&["-3"]).unwrap_err().contains("whole number from 1"));
        assert!(read(&["3x"]).unwrap_err().contains("whole number from 1"));
    }

    #[test]
    fn points_at_a_mistake() {
        let wrong = read(&["id>3", "status=failed clas=a"]).unwrap_err();
        assert!(wrong.ends_with("\n  status=failed clas=a\n                ^"), "{wrong}");
    }
}
