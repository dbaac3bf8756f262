//! What is done to many tasks, in batches, up to a limit.

use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

use task_engine_core::attempt::NextState;
use task_engine_core::change::DeleteReport;
use task_engine_core::filter::{Filter, FoundTask};
use task_engine_core::task::{NewTask, TaskId, TaskStatus};
use task_engine_operations::recover::RecoverError;
use task_engine_operations::search::Search;
use task_engine_store::contract::Store;
use task_engine_store::contract::{CancelReport, RetryReport};
use task_engine_store::error::StoreError;
use task_engine_store::token::Role;

use super::{Done, no_task};
use crate::error::ApiError;

/// What can be done to tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Retry,
    Cancel,
    Rerun,
    Delete,
}

/// Which tasks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Choice {
    Ids(Vec<TaskId>),
    Filter(Filter),
}

/// So many tasks are changed by one request at the most.
pub(crate) const MAX: usize = 10_000;
/// So many are changed at a time.
const BATCH: usize = 200;
/// So many are shown before anybody is asked.
const SAMPLE: usize = 10;

impl Verb {
    pub(crate) const ALL: [Self; 4] = [Self::Retry, Self::Cancel, Self::Rerun, Self::Delete];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Rerun => "rerun",
            Self::Delete => "delete",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == name)
    }

    pub(super) fn action(self) -> &'static str {
        match self {
            Self::Retry => "tasks.retry",
            Self::Cancel => "tasks.cancel",
            Self::Rerun => "tasks.rerun",
            Self::Delete => "tasks.delete",
        }
    }

    /// Who may do it.
    pub(crate) fn needs(self) -> Role {
        if self == Self::Delete { Role::Admin } else { Role::Operator }
    }

    /// What a filter means that says nothing about the status.
    fn statuses(self) -> &'static [TaskStatus] {
        use TaskStatus::{Cancelled, Failed, Running, Stopped, Waiting};
        match self {
            Self::Retry => &[Failed],
            Self::Cancel => &[Waiting, Running],
            Self::Rerun => &[],
            Self::Delete => &[Stopped, Failed, Cancelled],
        }
    }

    /// What somebody should know before they do it.
    pub(crate) fn consequence(self) -> &'static str {
        match self {
            Self::Retry => {
                "They wait again and are due at once, with their attempts kept on record. Those that did their work are left alone."
            }
            Self::Cancel => {
                "Those that wait never run. Those that run are asked to stop; a task that does not listen goes on until its limit."
            }
            Self::Rerun => {
                "Each is created once more as a new task with the same parameters; the old ones stay as they are."
            }
            Self::Delete => {
                "Those that have ended are removed with their executions, results and logs. This cannot be undone."
            }
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ids(ids) if ids.len() == 1 => write!(f, "task {}", ids[0]),
            Self::Ids(ids) => {
                let shown: Vec<_> = ids.iter().take(50).map(ToString::to_string).collect();
                let more = if ids.len() > 50 { ", …" } else { "" };
                write!(f, "tasks {}{more}", shown.join(", "))
            }
            Self::Filter(filter) => write!(f, "{filter}"),
        }
    }
}

/// The tasks that are meant.
#[derive(Debug)]
pub(crate) struct Meant {
    /// With what the verb adds to it.
    pub(crate) filter: Filter,
    pub(crate) ids: Vec<TaskId>,
    pub(crate) sample: Vec<FoundTask>,
    /// Whether there may be more than one request changes.
    pub(crate) and_more: bool,
    /// How far was searched, if timeout ended first.
    pub(crate) down_to: Option<TaskId>,
}

/// Whether it is a choice that anything can be done to.
pub(super) fn check(choice: &Choice) -> Result<(), ApiError> {
    match choice {
        Choice::Ids(ids) if ids.is_empty() => {
            Err(ApiError::bad_request("No tasks were named: give ids, or a filter."))
        }
        Choice::Ids(ids) if ids.len() > MAX => Err(ApiError::bad_request(format!(
            "{} tasks are too many at once (at most {MAX}).",
            ids.len()
        ))),
        Choice::Filter(filter) if filter.is_empty() => Err(ApiError::bad_request(
            "An empty filter means every task there is. Say which ones, like status=failed.",
        )),
        _ => Ok(()),
    }
}

/// Finds them, those of a whole history if need be; or as many as can be found
/// while `timeout` lasts.
pub(crate) async fn meant(
    store: &dyn Store,
    verb: Verb,
    choice: &Choice,
    timeout: Option<Duration>,
) -> Result<Meant, ApiError> {
    let begun = Instant::now();
    check(choice)?;
    let filter = match choice {
        Choice::Ids(ids) => Filter::of_ids(ids),
        Choice::Filter(filter) if filter.has_status() || verb.statuses().is_empty() => {
            filter.clone()
        }
        Choice::Filter(filter) => filter.clone().and_status(verb.statuses()),
    };
    let (ids, sample) = (Vec::new(), Vec::new());
    let mut meant = Meant { filter, ids, sample, and_more: false, down_to: None };
    let mut before = None;
    loop {
        let limit = u32::try_from(MAX - meant.ids.len()).unwrap_or(u32::MAX).min(2_000);
        let step = Duration::from_millis(500).min(timeout.unwrap_or(Duration::MAX));
        let search = Search { filter: meant.filter.clone(), before, limit, timeout: step };
        let found = search.run(store).await?;
        for task in found.tasks {
            meant.ids.push(task.row.id);
            if meant.sample.len() < SAMPLE {
                meant.sample.push(task);
            }
        }
        before = found.next;
        if before.is_none() || meant.ids.len() >= MAX {
            meant.and_more = before.is_some();
            return Ok(meant);
        }
        if timeout.is_some_and(|timeout| begun.elapsed() >= timeout) {
            meant.down_to = before;
            return Ok(meant);
        }
    }
}

pub(super) async fn apply(
    store: &dyn Store,
    verb: Verb,
    choice: &Choice,
) -> Result<Done, ApiError> {
    let (ids, and_more) = match choice {
        // One that is not there is told, too.
        Choice::Ids(ids) if (1..=MAX).contains(&ids.len()) => {
            let mut seen = HashSet::new();
            (ids.iter().copied().filter(|id| seen.insert(*id)).collect(), false)
        }
        choice => {
            let meant = meant(store, verb, choice, None).await?;
            (meant.ids, meant.and_more)
        }
    };
    let mut done = Done { and_more, ..Done::default() };
    for batch in ids.chunks(BATCH) {
        apply_to(store, verb, batch, &mut done).await?;
    }
    match &ids[..] {
        [id] if done.counts.contains_key(MISSING) => Err(no_task(*id)),
        _ => Ok(done),
    }
}

const MISSING: &str = "does not exist";

async fn apply_to(
    store: &dyn Store,
    verb: Verb,
    ids: &[TaskId],
    done: &mut Done,
) -> Result<(), StoreError> {
    match verb {
        Verb::Retry => {
            for report in store.retry(ids).await? {
                done.add(match report {
                    RetryReport::Waiting => "waits again",
                    RetryReport::Advanced => "is due at once",
                    RetryReport::AlreadyDue => "was due already",
                    RetryReport::Running => "is running",
                    RetryReport::Stopped => "did its work, nothing to retry",
                    RetryReport::NotFound => MISSING,
                });
            }
        }
        Verb::Cancel => {
            for report in store.cancel(ids).await? {
                done.add(match report {
                    CancelReport::Cancelled => "cancelled",
                    CancelReport::Requested => "runs, and was asked to stop",
                    CancelReport::Ended(_) => "had ended before",
                    CancelReport::NotFound => MISSING,
                });
            }
        }
        Verb::Delete => {
            for report in store.delete(ids).await? {
                done.add(match report {
                    DeleteReport::Deleted => "removed",
                    DeleteReport::Open(_) => "has not ended, and stays",
                    DeleteReport::Busy => "is still in hand, and stays for now",
                    DeleteReport::NotFound => MISSING,
                });
            }
        }
        Verb::Rerun => rerun(store, ids, done).await?,
    }
    Ok(())
}

async fn rerun(store: &dyn Store, ids: &[TaskId], done: &mut Done) -> Result<(), StoreError> {
    let mut tasks = Vec::new();
    for id in ids {
        match store.task(*id).await? {
            None => done.add(MISSING),
            Some(old) => match NewTask::rerun_of(&old) {
                Ok(task) => tasks.push(task),
                Err(_) => done.add("cannot be created again as it is"),
            },
        }
    }
    for id in store.create(&tasks).await? {
        done.add("created once more");
        done.task_ids.push(id);
    }
    Ok(())
}

/// Recovers what a dead engine of this name has left.
pub(super) async fn recover(store: &dyn Store, name: &str) -> Result<Done, ApiError> {
    let recovered = task_engine_operations::recover::recover(store, name).await;
    let recovered = recovered.map_err(|error| match error {
        RecoverError::Unknown { .. } => ApiError::not_found(error.to_string()),
        RecoverError::Alive(_) | RecoverError::Left(_) => ApiError::conflict(error.to_string()),
        RecoverError::Store(error) => error.into(),
        _ => ApiError::bad_request(error.to_string()),
    })?;
    let mut done = Done::default();
    if recovered.dead == 0 {
        done.add("had nothing left to recover");
    }
    for task in &recovered.tasks {
        done.add(match task.next {
            NextState::Wait { .. } => "recovered, waits again",
            NextState::End(TaskStatus::Cancelled) => "was to be cancelled, and is",
            NextState::End(_) => "has failed, no retry is left",
        });
        done.task_ids.push(task.id.task_id);
    }
    Ok(done)
}
