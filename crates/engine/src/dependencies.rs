//! The results of the tasks that a task depends on.

use serde::de::DeserializeOwned;
use task_engine_core::attempt::TaskError;
use task_engine_core::dependency::{
    DependencyCondition, DependencyRow, DependencyTarget, FLOW_DEPENDENCIES_MAX,
};
use task_engine_core::json::Json;
use task_engine_core::step::is_dependent;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_store::error::StoreError;

use crate::context::Context;

impl<S> Context<S> {
    /// Returns the result of a task that this one depends on, by its name in the flow or by its id.
    ///
    /// The result is read from that task, not copied.
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// use task_engine::{Context, Failure, Task};
    ///
    /// #[derive(Serialize, Deserialize, Task)]
    /// struct Load;
    ///
    /// async fn load(_: Load, cx: Context<()>) -> Result<usize, Failure> {
    ///     let rows: Vec<String> = cx.result_of("extract").await?;
    ///     Ok(rows.len())
    /// }
    /// ```
    ///
    /// # Errors
    /// Fails with a [`DependencyError`] if the task does not depend on such a task, or if that task
    /// has no result of the type `R`. Return it with `?`, so that the attempt fails.
    pub async fn result_of<R: DeserializeOwned>(
        &self,
        task: impl Into<DependencyTarget>,
    ) -> Result<R, DependencyError> {
        let target = task.into();
        let row = find(self.dependency_rows().await?, &target)?.clone();
        let mut read = self.read_dependencies(std::slice::from_ref(&row)).await?;
        match read.pop() {
            Some(one) => one.result(),
            None => Err(DependencyError::unknown(&target, &[])),
        }
    }

    /// Returns all tasks that this one depends on and how they ended, in the order of their ids.
    ///
    /// Each has its result or its error. Use it in tasks that run after an end or a failure of
    /// others.
    ///
    /// ```
    /// use task_engine::{Context, Failure, TaskStatus};
    ///
    /// async fn alert(cx: Context<()>) -> Result<(), Failure> {
    ///     for dependency in cx.dependencies().await? {
    ///         if let Some(error) = dependency.error {
    ///             cx.log(format!("task {} failed: {error}", dependency.id));
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn dependencies(&self) -> Result<Vec<EndedDependency>, DependencyError> {
        if !self.has_dependencies() {
            return Ok(Vec::new());
        }
        let rows = self.dependency_rows().await?.to_vec();
        self.read_dependencies(&rows).await
    }

    /// Returns whether this task depends on others.
    ///
    /// Reads nothing.
    #[must_use]
    pub fn has_dependencies(&self) -> bool {
        is_dependent(&self.context)
    }

    /// What this task depends on: read once, because it does not change while the task runs.
    async fn dependency_rows(&self) -> Result<&[DependencyRow], DependencyError> {
        let read = || async {
            let limit = u32::try_from(FLOW_DEPENDENCIES_MAX).unwrap_or(u32::MAX);
            self.handle.session.store.dependencies(&[self.id.task_id], limit).await
        };
        Ok(self.on_demand().dependencies.get_or_try_init(read).await?)
    }

    async fn read_dependencies(
        &self,
        rows: &[DependencyRow],
    ) -> Result<Vec<EndedDependency>, DependencyError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<_> = rows.iter().map(|row| (row.depends_on, None)).collect();
        let outcomes = self.handle.session.store.child_outcomes(&ids).await?;
        let task = |(row, outcome): (&DependencyRow, Option<_>)| {
            let mut task = EndedDependency {
                id: row.depends_on,
                name: row.name.clone(),
                condition: row.condition,
                // It has been retried, and has not ended again.
                status: row.status.or(Some(TaskStatus::Waiting)),
                result: None,
                error: None,
            };
            if let Some(outcome) = outcome {
                let outcome: task_engine_core::step::ChildOutcome = outcome;
                task.status = outcome.status;
                task.result = outcome.result;
                task.error = outcome.error;
            }
            task
        };
        Ok(rows.iter().zip(outcomes).map(task).collect())
    }
}

/// A task that another one depends on, as that one sees it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EndedDependency {
    /// The task.
    pub id: TaskId,
    /// Its name in the flow; `None` if it was created without one.
    pub name: Option<String>,
    /// When the dependent task may start.
    pub condition: DependencyCondition,
    /// Its status; `None` if it was removed.
    pub status: Option<TaskStatus>,
    /// Its result, if it succeeded.
    pub result: Option<Json>,
    /// Its error, if it did not.
    pub error: Option<TaskError>,
}

impl EndedDependency {
    /// Returns the decoded result.
    pub fn result<R: DeserializeOwned>(&self) -> Result<R, DependencyError> {
        let task = named(self.id, self.name.as_deref());
        let Some(result) = &self.result else {
            return Err(DependencyError::NotSucceeded {
                task,
                status: self.status,
                error: self.error.clone().map(Box::new),
            });
        };
        result.decode().map_err(|error| DependencyError::NotDecodable {
            task,
            expected: std::any::type_name::<R>(),
            why: error.to_string(),
        })
    }
}

/// The error of [`Context::result_of`]: the result of a task that this one depends on cannot be
/// read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DependencyError {
    /// The task does not depend on such a task: check the name in the flow.
    #[error("this task does not depend on {wanted}; {}", listed(.dependencies))]
    Unknown {
        /// The name or id.
        wanted: String,
        /// The tasks that it depends on.
        dependencies: Vec<String>,
    },
    /// The task depends on several tasks with this name, of different flows: use an id.
    #[error("this task depends on several tasks named {name:?}: {}; use an id", .dependencies.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// The tasks with this name.
        dependencies: Vec<String>,
    },
    /// The other task has no result, because it failed or was cancelled, or was removed.
    #[error("{task} has no result: it {}{}", status_text(*.status), caused_by(.error))]
    NotSucceeded {
        /// The task.
        task: String,
        /// Its status; `None` if it was removed.
        status: Option<TaskStatus>,
        /// Its error.
        error: Option<Box<TaskError>>,
    },
    /// The result of the other task is not of the expected type: change the type that you read it
    /// as.
    #[error("the result of {task} is no {expected}: {why}")]
    NotDecodable {
        /// The task.
        task: String,
        /// The type.
        expected: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The store failed: return the error, so that the attempt is retried.
    #[error("the results of the tasks that this one depends on cannot be read: {0}")]
    Store(#[from] StoreError),
}

impl DependencyError {
    fn unknown(target: &DependencyTarget, rows: &[DependencyRow]) -> Self {
        let dependencies = rows.iter().map(|row| named(row.depends_on, row.name.as_deref()));
        Self::Unknown { wanted: target.to_string(), dependencies: dependencies.collect() }
    }
}

/// So many names are in a message.
const LISTED_MAX: usize = 10;

fn find<'r>(
    rows: &'r [DependencyRow],
    target: &DependencyTarget,
) -> Result<&'r DependencyRow, DependencyError> {
    let fits = |row: &&DependencyRow| match target {
        DependencyTarget::Id(id) => row.depends_on == *id,
        DependencyTarget::Name(name) => row.name.as_ref() == Some(name),
    };
    let found: Vec<_> = rows.iter().filter(fits).collect();
    match (found.as_slice(), target) {
        ([one], _) => Ok(one),
        ([_, ..], DependencyTarget::Name(name)) => Err(DependencyError::Ambiguous {
            name: name.clone(),
            dependencies: found.iter().map(|row| format!("task {}", row.depends_on)).collect(),
        }),
        _ => Err(DependencyError::unknown(target, rows)),
    }
}

fn named(id: TaskId, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("task {id} ({name})"),
        None => format!("task {id}"),
    }
}

fn listed(dependencies: &[String]) -> String {
    if dependencies.is_empty() {
        return "it depends on no task".to_owned();
    }
    let first = dependencies.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match dependencies.len().saturating_sub(LISTED_MAX) {
        0 => format!("it depends on {first}"),
        more => format!("it depends on {first} and {more} more"),
    }
}

fn status_text(status: Option<TaskStatus>) -> &'static str {
    match status {
        Some(TaskStatus::Failed) => "failed",
        Some(TaskStatus::Cancelled) => "was cancelled",
        Some(TaskStatus::Stopped) => "ended without one",
        Some(_) => "has not ended",
        None => "was removed",
    }
}

fn caused_by(error: &Option<Box<TaskError>>) -> String {
    error.as_ref().map_or_else(String::new, |error| format!(" ({error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: i64, name: Option<&str>) -> DependencyRow {
        let success = DependencyCondition::Success;
        DependencyRow::new(TaskId(9), TaskId(id), success, name.map(str::to_owned), None)
    }

    #[test]
    fn messages_name_parents() {
        let rows = [row(1, Some("extract")), row(2, None), row(3, Some("extract"))];
        let failed = |target: DependencyTarget| find(&rows, &target).unwrap_err().to_string();
        assert_eq!(
            failed("extrat".into()),
            "this task does not depend on \"extrat\"; it depends on task 1 (extract), task 2, task 3 (extract)"
        );
        assert_eq!(
            failed("extract".into()),
            "this task depends on several tasks named \"extract\": task 1, task 3; use an id"
        );
        assert_eq!(find(&rows, &TaskId(2).into()).unwrap().depends_on, TaskId(2));
        let alone = find(&[], &"extract".into()).unwrap_err().to_string();
        assert_eq!(alone, "this task does not depend on \"extract\"; it depends on no task");
        let mut task = EndedDependency {
            id: TaskId(1),
            name: Some("extract".to_owned()),
            condition: DependencyCondition::End,
            status: Some(TaskStatus::Failed),
            result: None,
            error: Some(TaskError::new("Closed", "the bank is closed")),
        };
        assert_eq!(
            task.result::<u32>().unwrap_err().to_string(),
            "task 1 (extract) has no result: it failed (Closed: the bank is closed)"
        );
        task.result = Some(Json::parse("\"x\"").unwrap());
        let wrong = task.result::<u32>().unwrap_err().to_string();
        assert!(wrong.starts_with("the result of task 1 (extract) is no u32: "), "{wrong}");
    }
}
