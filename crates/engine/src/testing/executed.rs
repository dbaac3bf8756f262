//! The results of tasks that ran.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use serde::de::DeserializeOwned;
use task_engine_core::attempt::{AttemptId, TaskError};
use task_engine_core::json::Json;
use task_engine_core::progress::{LogRow, ProgressRow};
use task_engine_core::task::{ExecutionStatus, TaskDetails};
use task_engine_core::task::{Task, TaskId, TaskStatus};

/// One recorded attempt at a task.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Executed {
    /// The task.
    pub task_id: TaskId,
    /// The number of the attempt.
    pub attempt: i32,
    /// The class.
    pub class: String,
    /// The result, or why the attempt failed or was snoozed.
    pub outcome: Result<Json, TaskError>,
    /// The status of the task after this attempt: `Waiting` if it will be retried, or
    /// was snoozed.
    pub status: TaskStatus,
    /// How long after the end of this attempt the next one is to begin.
    pub retry_in: Option<Duration>,
    /// The last reported progress.
    pub progress: Option<ProgressRow>,
    /// The log lines.
    pub lines: Vec<LogRow>,
}

impl Executed {
    pub(super) fn of(id: AttemptId, details: TaskDetails, lines: Vec<LogRow>) -> Self {
        let row = details.row;
        let mut executions = details.executions.into_iter();
        let this = executions.find(|execution| execution.attempt == id.attempt);
        let Some(this) = this else {
            panic!("{id} has run, and is not recorded: a bug of Task Engine");
        };
        let retry_in = this.retry_at.zip(this.stopped_at).map(|(next, end)| {
            Duration::try_from(next.duration_since(end)).unwrap_or(Duration::ZERO)
        });
        Self {
            task_id: id.task_id,
            attempt: id.attempt,
            class: row.class,
            outcome: match this.error {
                Some(error) => Err(error),
                None => Ok(this.result.unwrap_or_else(Json::null)),
            },
            status: this.ends_task.unwrap_or(TaskStatus::Waiting),
            retry_in: retry_in.filter(|_| this.ends_task.is_none()),
            progress: this.progress,
            lines,
        }
    }

    /// Returns the decoded result, or the error.
    ///
    /// # Panics
    /// Panics if there is a result that does not decode as an `R`.
    #[track_caller]
    pub fn result<R: DeserializeOwned>(&self) -> Result<R, TaskError> {
        let result = self.outcome.clone()?;
        match result.decode() {
            Ok(result) => Ok(result),
            Err(error) => panic!(
                "the result of {self} is {}, which is no {}: {error}",
                result.as_str(),
                std::any::type_name::<R>()
            ),
        }
    }

    /// Returns the error of an attempt that has failed.
    ///
    /// # Panics
    /// Panics if the attempt has not failed.
    #[must_use]
    #[track_caller]
    pub fn error(&self) -> &TaskError {
        match &self.outcome {
            Err(error) => error,
            Ok(result) => panic!("{self}; it has no error, its result is {}", result.as_str()),
        }
    }

    /// Returns whether the task did its work.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.status == TaskStatus::Stopped
    }

    /// Returns whether the task has failed or was released, and waits for another attempt.
    #[must_use]
    pub fn will_be_retried(&self) -> bool {
        self.status == TaskStatus::Waiting && !self.is_snoozed()
    }

    /// Returns whether the handler has postponed the task: see
    /// [`Failure::snooze`](crate::Failure::snooze).
    ///
    /// `retry_in` is the time.
    #[must_use]
    pub fn is_snoozed(&self) -> bool {
        let (error, ends_task) = match self.status {
            TaskStatus::Waiting => (self.outcome.as_ref().err(), None),
            status => (self.outcome.as_ref().err(), Some(status)),
        };
        ExecutionStatus::of_ended(error, ends_task, true) == ExecutionStatus::Snoozed
    }

    /// Returns the messages of the log lines.
    #[must_use]
    pub fn log(&self) -> Vec<&str> {
        self.lines.iter().map(|line| line.message.as_str()).collect()
    }
}

/// For messages: `task 3 (send_mail), attempt 1: stopped`.
impl fmt::Display for Executed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, attempt, class) = (self.task_id, self.attempt, &self.class);
        write!(f, "task {id} ({class}), attempt {attempt}: {}", self.status)?;
        if let Some(wait) = self.retry_in {
            let what = if self.is_snoozed() { "snoozed for" } else { "to be retried after" };
            write!(f, ", {what} {wait:.0?}")?;
        }
        match &self.outcome {
            Err(error) => write!(f, ": {error}"),
            Ok(_) => Ok(()),
        }
    }
}

/// The attempts of one drain, in order.
///
/// It dereferences to a slice of [`Executed`].
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Drained {
    /// The attempts.
    pub executed: Vec<Executed>,
    /// Tasks that are due, and that this engine does not take.
    pub passed_over: Vec<PassedOver>,
}

/// A task that is due, and that the engine does not take.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PassedOver {
    /// The task.
    pub task_id: TaskId,
    /// The class.
    pub class: String,
    /// The queue that it waits in.
    pub queue: String,
    /// Why, in words.
    pub why: String,
}

impl Drained {
    /// Returns the attempts at tasks of one class.
    #[must_use]
    pub fn of<T: Task>(&self) -> Vec<&Executed> {
        self.executed.iter().filter(|executed| executed.class == T::CLASS).collect()
    }

    /// Checks that every task succeeded in the end, after any number of retries, and
    /// that none was passed over.
    ///
    /// # Panics
    /// Panics if one did not succeed or was passed over. The message lists what ran.
    #[track_caller]
    pub fn assert_all_done(&self) {
        let last = |task: &Executed| {
            let mut later = self.executed.iter().rev();
            later.find(|one| one.task_id == task.task_id).is_some_and(Executed::is_done)
        };
        let done = self.executed.iter().all(last) && self.passed_over.is_empty();
        assert!(done, "not all tasks are done:\n{self}");
    }
}

impl Deref for Drained {
    type Target = [Executed];

    fn deref(&self) -> &[Executed] {
        &self.executed
    }
}

/// A line each.
impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.executed.is_empty() && self.passed_over.is_empty() {
            return writeln!(f, "nothing was due");
        }
        for executed in &self.executed {
            writeln!(f, "{executed}")?;
        }
        for task in &self.passed_over {
            writeln!(f, "task {} ({}) was passed over: {}", task.task_id, task.class, task.why)?;
        }
        Ok(())
    }
}
