//! Operations on tasks: retry, cancel, rerun and delete of many; edit and reveal of one.
//!
//! A bulk operation is one path for the command line, the pages and the HTTP API. A [`Selection`]
//! is found ([`Operator::find`]), shown if a user is to confirm it, and applied in batches
//! ([`Operator::apply`]). Each batch is one step for the store, whole or not at all: if one fails,
//! those before it are done, reported and audited.
//!
//! | operation | a filter without a status selects | why |
//! |---|---|---|
//! | `retry` | failed tasks | a cancelled task was cancelled on purpose: name the status |
//! | `cancel` | waiting and running tasks | the others have ended |
//! | `rerun` | tasks that have ended | the others run anyway |
//! | `delete` | tasks that have ended | the others are never deleted |

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::json;
use task_engine_core::change::{DeleteReport, Edit, EditReport};
use task_engine_core::filter::{Filter, FoundTask};
use task_engine_core::secret::Secrets;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::contract::{CancelReport, RetryReport, Store};
use task_engine_store::error::StoreError;
use task_engine_store::token::Role;

use crate::operator::{AuditedOperation, OperationError, Operator};
use crate::redaction;
use crate::report::{OperationOutcome, OperationReport, TaskOutcome};
use crate::rerun::{rerun, rerun_dependents};
use crate::search::Search;

/// A bulk operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskOperation {
    /// Send failed and cancelled tasks back to wait; make waiting ones due.
    Retry,
    /// Cancel waiting tasks at once, and running ones by request.
    Cancel,
    /// Create tasks again.
    Rerun,
    /// Delete ended tasks with everything recorded about them.
    Delete,
}

/// The tasks that an operation is about.
#[derive(Debug, Clone, PartialEq)]
pub enum Selection {
    /// These.
    Ids(Vec<TaskId>),
    /// The tasks that match this filter.
    Filter(Filter),
}

/// One HTTP request changes no more tasks than this.
pub const REQUEST_TASKS_MAX: usize = 10_000;
/// The most tasks that are changed in one step.
pub const BATCH: usize = 200;

/// The options of a search for tasks.
#[derive(Clone, Copy)]
pub struct FindOptions<'a> {
    /// No more tasks than this, the newest first.
    pub limit: usize,
    /// So many of them are kept to be shown.
    pub sample: usize,
    /// Stop after this time, with what was found.
    pub timeout: Option<Duration>,
    /// Is called with the number of tasks found, from time to time.
    pub progress: ProgressCallback<'a>,
}

/// Is called with a number of tasks that were just found or changed.
pub type ProgressCallback<'a> = &'a (dyn Fn(usize) + Send + Sync);

impl std::fmt::Debug for FindOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FindOptions")
            .field("limit", &self.limit)
            .field("sample", &self.sample)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl FindOptions<'_> {
    /// Creates options for as many tasks as one request may change, ten of which are shown.
    #[must_use]
    pub fn of_request() -> Self {
        Self { limit: REQUEST_TASKS_MAX, sample: 10, timeout: None, progress: &|_| {} }
    }
}

/// The tasks of a selection.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectedTasks {
    /// The selection in words, for the audit: `task 7`, `tasks 7, 9`, or the filter with the
    /// statuses that the operation adds.
    pub target: String,
    /// Whether they are named by their ids.
    pub named: bool,
    /// Their ids.
    pub ids: Vec<TaskId>,
    /// The newest of them.
    pub sample: Vec<FoundTask>,
    /// Whether there may be more beyond the limit.
    pub and_more: bool,
    /// How far was searched, if the time was over first.
    pub searched_to: Option<TaskId>,
}

impl SelectedTasks {
    /// Creates a selection of these tasks, each once, whether they exist or not.
    #[must_use]
    pub fn of_ids(ids: &[TaskId]) -> Self {
        const NAMED_MAX: usize = 50;
        let mut seen = HashSet::new();
        let ids: Vec<_> = ids.iter().copied().filter(|id| seen.insert(*id)).collect();
        let target = match &ids[..] {
            [id] => format!("task {id}"),
            ids => {
                let named: Vec<_> = ids.iter().take(NAMED_MAX).map(ToString::to_string).collect();
                let more = if ids.len() > NAMED_MAX { ", …" } else { "" };
                format!("tasks {}{more}", named.join(", "))
            }
        };
        Self { target, named: true, ids, sample: Vec::new(), and_more: false, searched_to: None }
    }
}

task_engine_core::enum_tokens!(TaskOperation {
    Retry = "retry", Cancel = "cancel", Rerun = "rerun", Delete = "delete",
});

impl TaskOperation {
    /// Returns its name in the audit.
    #[must_use]
    pub const fn action(self) -> &'static str {
        match self {
            Self::Retry => "tasks.retry",
            Self::Cancel => "tasks.cancel",
            Self::Rerun => "tasks.rerun",
            Self::Delete => "tasks.delete",
        }
    }

    /// Returns the role that it needs.
    #[must_use]
    pub fn needs(self) -> Role {
        if self == Self::Delete { Role::Admin } else { Role::Operator }
    }

    /// Returns the statuses that a filter selects if it names none.
    #[must_use]
    pub const fn default_statuses(self) -> &'static [TaskStatus] {
        use TaskStatus::{Cancelled, Failed, Running, Stopped, Waiting};
        match self {
            Self::Retry => &[Failed],
            Self::Cancel => &[Waiting, Running],
            Self::Rerun | Self::Delete => &[Stopped, Failed, Cancelled],
        }
    }

    /// Returns what to know before it is confirmed.
    #[must_use]
    pub const fn consequence(self) -> &'static str {
        match self {
            Self::Retry => {
                "They wait again and are due at once, or at their time if they were cancelled before it. Their attempts stay recorded. Tasks that have succeeded are left alone."
            }
            Self::Cancel => {
                "Waiting tasks never run. Running ones are asked to stop; code that does not check for the request runs until its time limit."
            }
            Self::Rerun => {
                "Each is created again as a new task with the same parameters; the old ones stay as they are. A new task depends on the new one of each selected task, and on the same tasks otherwise."
            }
            Self::Delete => {
                "Ended tasks are deleted with their attempts, results and logs. This cannot be undone."
            }
        }
    }

    /// Returns a filter with the default statuses, if it names none.
    #[must_use]
    pub fn selected_by(self, filter: Filter) -> Filter {
        if filter.has_status() { filter } else { filter.and_status(self.default_statuses()) }
    }
}

impl Operator {
    /// Finds the tasks of a selection, as far as the actor may ask for them.
    pub async fn find(
        &self,
        operation: TaskOperation,
        selection: &Selection,
        options: FindOptions<'_>,
    ) -> Result<SelectedTasks, OperationError> {
        let (filter, mut selected) = match selection {
            Selection::Ids(ids) => {
                check_ids(ids, options.limit)?;
                (Filter::of_ids(ids), SelectedTasks::of_ids(ids))
            }
            Selection::Filter(filter) if filter.is_empty() => {
                return Err(OperationError::invalid(
                    "an empty filter matches every task; say which ones, like status=failed",
                ));
            }
            Selection::Filter(filter) => {
                let filter = operation.selected_by(filter.clone());
                let target = filter.to_string();
                let filter = if self.actor.role < Role::Admin {
                    let secrets = redaction::secrets(&*self.store).await?;
                    redaction::allowed_filter(filter, self.actor.role, &secrets)?
                } else {
                    filter
                };
                (filter, SelectedTasks { target, named: false, ..SelectedTasks::of_ids(&[]) })
            }
        };
        selected.ids.clear();
        let started = Instant::now();
        let mut before = None;
        loop {
            let limit = u32::try_from(options.limit - selected.ids.len()).unwrap_or(u32::MAX);
            let step = STEP.min(options.timeout.unwrap_or(STEP));
            let search =
                Search { filter: filter.clone(), before, limit: limit.min(PAGE), timeout: step };
            let found = search.run(&*self.store).await?;
            (options.progress)(found.tasks.len());
            for task in found.tasks {
                selected.ids.push(task.row.id);
                if selected.sample.len() < options.sample {
                    selected.sample.push(task);
                }
            }
            before = found.next;
            if before.is_none() || selected.ids.len() >= options.limit {
                selected.and_more = before.is_some();
                return Ok(selected);
            }
            if options.timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
                selected.searched_to = before;
                return Ok(selected);
            }
        }
    }

    /// Does it to the tasks of a selection, without asking.
    ///
    /// Ids are not looked for first: one that does not exist is counted as such.
    pub async fn change_tasks(
        &self,
        operation: TaskOperation,
        selection: &Selection,
    ) -> Result<OperationReport, OperationError> {
        let options = FindOptions::of_request();
        let selected = match selection {
            Selection::Ids(ids) => {
                check_ids(ids, options.limit)?;
                SelectedTasks::of_ids(ids)
            }
            Selection::Filter(_) => self.find(operation, selection, options).await?,
        };
        self.apply(operation, &selected, &|_| {}).await
    }

    /// Does it to these tasks, in batches.
    pub async fn apply(
        &self,
        operation: TaskOperation,
        selected: &SelectedTasks,
        progress: ProgressCallback<'_>,
    ) -> Result<OperationReport, OperationError> {
        let named_one = match selected.ids[..] {
            [id] if selected.named => Some(id),
            _ => None,
        };
        if let Some(id) = named_one {
            redaction::task(&*self.store, id).await?;
        }
        let work = async {
            let mut report =
                OperationReport { and_more: selected.and_more, ..OperationReport::default() };
            let mut ids = selected.ids.clone();
            if operation == TaskOperation::Rerun {
                let outcome = rerun_dependents(&*self.store, &ids, &mut report).await;
                if let Err(error) = outcome {
                    let left = ids.len() - report.tasks.len();
                    return Err(error.after(report, left));
                }
                let done: HashSet<TaskId> = report.tasks.iter().map(|task| task.id).collect();
                ids.retain(|id| !done.contains(id));
                progress(done.len());
            }
            if operation == TaskOperation::Retry {
                // Before the tasks that depend on them, which then wait for them.
                ids.sort_unstable();
            }
            for batch in ids.chunks(BATCH) {
                match apply_batch(&*self.store, operation, batch).await {
                    Ok(tasks) => tasks.into_iter().for_each(|task| report.add_task(task)),
                    Err(error) => {
                        let left = selected.ids.len() - report.tasks.len();
                        return Err(OperationError::from(error).after(report, left));
                    }
                }
                progress(batch.len());
            }
            match named_one {
                Some(id) if report.has(OperationOutcome::NotFound) => {
                    Err(OperationError::no_task(id))
                }
                _ => Ok(report),
            }
        };
        let audited = AuditedOperation::new(operation.action(), selected.target.as_str());
        self.audited(audited, work).await
    }

    /// Changes a waiting task.
    ///
    /// Placeholders in new parameters become the stored secrets.
    pub async fn edit(&self, id: TaskId, edit: Edit) -> Result<OperationReport, OperationError> {
        let task = redaction::task(&*self.store, id).await?;
        if task.row.status != TaskStatus::Waiting {
            return Err(not_waiting(id, task.row.status));
        }
        let engines = self.store.instances(None).await?;
        let edit = redaction::restore_secrets(edit, &task, &Secrets::of(&engines))?;
        if let Some(parameters) = &edit.parameters {
            self.check_parameters(&engines, &task.row.class, parameters, &task.context)?;
        }
        let audited = AuditedOperation::new("tasks.edit", format!("task {id}")).detail(json!({
            "parameters": edit.parameters.is_some(),
            "due": edit.due.is_some(),
            "priority": edit.priority,
            "queue": edit.queue,
        }));
        let work = async {
            match self.store.edit(id, &edit).await? {
                EditReport::Changed => Ok(OperationReport::of(OperationOutcome::Changed)),
                EditReport::NotWaiting(status) => Err(not_waiting(id, status)),
                EditReport::NotFound => Err(OperationError::no_task(id)),
            }
        };
        self.audited(audited, work).await
    }

    /// Records that the actor is shown the secret parameters of a task.
    pub async fn reveal(&self, id: TaskId) -> Result<OperationReport, OperationError> {
        redaction::task(&*self.store, id).await?;
        let audited = AuditedOperation::new("tasks.reveal", format!("task {id}"));
        let report = OperationReport::of(OperationOutcome::Revealed);
        self.audited(audited, async { Ok(report) }).await
    }
}

/// One page of a search, and how long it may take.
const PAGE: u32 = 2_000;
const STEP: Duration = Duration::from_millis(500);

fn check_ids(ids: &[TaskId], limit: usize) -> Result<(), OperationError> {
    if ids.is_empty() {
        return Err(OperationError::invalid("no tasks are named; give ids or a filter"));
    }
    if ids.len() > limit {
        return Err(OperationError::invalid(format!(
            "{} tasks are too many at once (at most {limit})",
            ids.len()
        )));
    }
    Ok(())
}

fn not_waiting(id: TaskId, status: TaskStatus) -> OperationError {
    let advice = match status {
        TaskStatus::Running => "",
        _ => "; `rerun` creates a new one like it",
    };
    OperationError::Conflict(format!(
        "task {id} is {status}, and only a waiting task can be changed{advice}"
    ))
}

async fn apply_batch(
    store: &dyn Store,
    operation: TaskOperation,
    ids: &[TaskId],
) -> Result<Vec<TaskOutcome>, StoreError> {
    let outcomes: Vec<_> = match operation {
        TaskOperation::Retry => store.retry(ids).await?.into_iter().map(retried).collect(),
        TaskOperation::Cancel => {
            let reports = store.cancel(ids).await?;
            // A task that waited may have blocked others of a limit in order. If this fails,
            // the poll of an engine finds them.
            let _ = store.wake_limited().await;
            // It may have been what others depend on, too; heartbeats look at them, as well.
            let ended: Vec<TaskId> = ids
                .iter()
                .zip(&reports)
                .filter(|(_, report)| **report == CancelReport::Cancelled)
                .map(|(id, _)| *id)
                .collect();
            if !ended.is_empty() {
                let _ = store.resume_parents(&ended).await;
            }
            reports.into_iter().map(cancelled).collect()
        }
        TaskOperation::Delete => store.delete(ids).await?.into_iter().map(deleted).collect(),
        TaskOperation::Rerun => return rerun(store, ids).await,
    };
    let tasks = ids.iter().zip(outcomes);
    Ok(tasks.map(|(id, outcome)| TaskOutcome { id: *id, outcome, created: None }).collect())
}

fn retried(report: RetryReport) -> OperationOutcome {
    match report {
        RetryReport::Waiting => OperationOutcome::Retried,
        RetryReport::Advanced => OperationOutcome::Advanced,
        RetryReport::AlreadyDue => OperationOutcome::AlreadyDue,
        RetryReport::Blocked => OperationOutcome::SkippedBlocked,
        RetryReport::Running => OperationOutcome::SkippedRunning,
        RetryReport::Stopped => OperationOutcome::SkippedSucceeded,
        RetryReport::NotFound => OperationOutcome::NotFound,
    }
}

fn cancelled(report: CancelReport) -> OperationOutcome {
    match report {
        CancelReport::Cancelled => OperationOutcome::Cancelled,
        CancelReport::Requested => OperationOutcome::CancelRequested,
        CancelReport::Ended(TaskStatus::Cancelled) => OperationOutcome::AlreadyCancelled,
        CancelReport::Ended(TaskStatus::Failed) => OperationOutcome::SkippedFailed,
        CancelReport::Ended(_) => OperationOutcome::SkippedSucceeded,
        CancelReport::NotFound => OperationOutcome::NotFound,
    }
}

fn deleted(report: DeleteReport) -> OperationOutcome {
    match report {
        DeleteReport::Deleted => OperationOutcome::Deleted,
        DeleteReport::Open(TaskStatus::Running) => OperationOutcome::SkippedRunning,
        DeleteReport::Open(_) => OperationOutcome::SkippedWaiting,
        DeleteReport::Busy => OperationOutcome::SkippedUnreleased,
        DeleteReport::Needed => OperationOutcome::SkippedNeeded,
        DeleteReport::NotFound => OperationOutcome::NotFound,
    }
}
